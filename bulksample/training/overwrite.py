"""Refuse to overwrite another run: a run owns the places of its results, and what lies there stays unless it continues that run.

A record beside the checkpoints names the files that a run has written, so that a run that goes on knows its own. A file is known by its
place, as seen from there, and by how it began when the run wrote it: the whole of a report or a configuration, the first of the lines of
epochs. A folder that moves together with its results keeps them, and one that moves alone knows a file by its name and its beginning, as
nothing lies where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..config.train import TrainOptions
from ..data.atomic import is_device, write_file
from ..data.result_places import check_ending, check_outputs, holding
from ..distributed.comm.agree import checked_on_rank_0
from ..distributed.comm.base import Comm
from ..errors import DataError, UsageError
from . import checkpoint

CONFIG, LINES = "config.yaml", "metrics.jsonl"  # what a run keeps among its checkpoints: its options, and the lines of its epochs
FILE = ".bulksample-outputs"
LINE = b'{"epoch": '  # how a line of an epoch begins


class Outputs:
    """The outputs of a run that keeps checkpoints in `folder`; without a folder nothing is noted.

    If the run goes on, it continues the one that wrote the checkpoints, and a record that cannot be read raises `DataError`; else its first
    note replaces the record.
    """

    def __init__(self, folder: Path | None, goes_on: bool = False) -> None:
        self._folder = folder
        self._known = self._stored = _read(folder / FILE) if folder is not None and goes_on else None

    @property
    def recorded(self) -> bool:
        """True if there is a record; earlier versions kept none."""
        return self._known is not None

    def note(self, file: Path, beginning: str | bytes) -> None:
        """Note that the run is about to write a file that begins with this text, or that is empty. Raises OSError."""
        if self._folder is None or is_device(file):
            return
        self.take_over(file, beginning)
        if self._known != self._stored:
            write_file(self._folder / FILE, json.dumps(self._known, indent=1) + "\n")
            self._stored = self._known

    def take_over(self, file: Path, beginning: str | bytes) -> None:
        """Note a file as `note` does, but write the record with the next note: a run that fails before leaves it as it was."""
        data = beginning.encode() if isinstance(beginning, str) else beginning
        known, place = self._known or {}, self._place(file)
        now = [(len(data), hashlib.sha256(data).hexdigest())] if data else []
        present = _content(file)  # it stays if the run is killed before it writes, or cannot write
        before = [one for one in known.get(place, []) if one not in now and present is not None and _begins(present, one)]
        self._known = {**known, place: [*before, *now]}

    def write(self, file: Path, text: str) -> None:
        """Note a file and write it. Raises OSError."""
        self.note(file, text)
        write_file(file, text)

    def hold(self, file: Path) -> bool:
        """Return True if the run wrote this file: it begins as the run noted, or holds at most a part of the line of an epoch."""
        data, place, known = _content(file), self._place(file), self._known or {}
        if data is None:
            return False
        if place in known and b"\n" not in data and (data.startswith(LINE) or LINE.startswith(data)):
            return True
        for noted, beginnings in known.items():
            same_name = os.path.basename(noted) == os.path.basename(place)
            moved = same_name and not os.path.lexists(os.path.join(self._folder or "", noted))  # nothing lies where it was noted
            if (noted == place or moved) and any(_begins(data, one) for one in beginnings):
                return True
        return False

    def _place(self, file: Path) -> str:
        return os.path.relpath(os.path.realpath(file), os.path.realpath(self._folder or ""))


def among_checkpoints(config: TrainOptions, name: str) -> Path | None:
    """Return the path of a file in the folder of the checkpoints; None for a run without checkpoints."""
    return Path(config.checkpoint) / name if config.checkpoint else None


def _content(file: Path) -> bytes | None:
    """Return the content of a file; None if there is none, or if it is a pipe or a device, which would wait or be used up."""
    try:
        return file.read_bytes() if file.is_file() else None
    except OSError:
        return None


def _begins(data: bytes, beginning: tuple[int, str]) -> bool:
    size, digest = beginning
    return len(data) >= size and hashlib.sha256(data[:size]).hexdigest() == digest


def _read(record: Path) -> dict[str, list[tuple[int, str]]] | None:
    """Return the record of a folder; None if there is none."""
    try:
        files = json.loads(record.read_text(encoding="utf-8"))
        pairs = [one for beginnings in files.values() for one in beginnings] if isinstance(files, dict) else [None]
        if not all(isinstance(one, list) and [type(part) for part in one] == [int, str] for one in pairs):
            raise ValueError("is damaged")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{record}, the outputs of the run, cannot be read: {error}; remove it if they may be replaced") from error
    return {place: [(size, digest) for size, digest in beginnings] for place, beginnings in files.items()}


@contextmanager
def owned(
    config: TrainOptions, overwrite: bool, comm: Comm, lines: Path | None, json_file: Path | None = None, *configs: Path | None
) -> Iterator[Outputs]:
    """Hold the checkpoints and the files of a run while the block runs, on rank 0; collective when it begins.

    The block notes its files in the `Outputs` that it gets, on rank 0. A run that goes on replaces the files that it has noted. The files
    are the JSON lines of the epochs, the report (``-`` stands for standard output) and copies of the configuration.

    Raises `UsageError` on every rank if another run holds one of the places, if what lies there is not of the run that this one continues,
    unless `overwrite`, or if it cannot be written; and `DataError` if the checkpoints cannot be listed, or the record cannot be read.
    """
    folder = Path(config.checkpoint) if config.checkpoint else None
    outputs, results = Outputs(folder), (json_file, *configs, lines)
    beside = [among_checkpoints(config, name) for name in (CONFIG, LINES)]

    def check() -> None:
        nonlocal outputs
        check_ending("metrics", lines, ".jsonl", ".ndjson")
        check_ending("checkpoint", folder)
        check_checkpoints(config, overwrite)
        goes_on = False  # the run continues a checkpoint in its own folder
        if folder is not None and config.resume:
            resumed = Path(config.resume).resolve()
            goes_on = bool(checkpoint.listed(folder)) and (config.resume == "auto" or folder.resolve() in (resumed, resumed.parent))
        check_outputs(True, *results)  # together, since two results need two files
        # killed before its first checkpoint: the run to resume has kept its configuration alone
        begun = not goes_on and config.resume == "auto" and beside[0] is not None and beside[0].exists()
        outputs = Outputs(folder, goes_on or begun)

        def is_own(file: Path) -> bool:
            if not (goes_on or begun) or (outputs.recorded and not outputs.hold(file) and file not in beside):
                return False
            # a run that was killed before its first checkpoint has no report, and at most the line of its first epoch
            return goes_on or file in configs or (file == lines and _of_first_epoch(file))

        for file in filter(None, results):
            check_outputs(overwrite or is_own(file), file)

    def take() -> None:
        check()
        locks.enter_context(holding(*results, inside=folder))
        check()  # nobody else changes it from now on
        for file in filter(None, results):
            if file.is_file() and not outputs.hold(file):  # the run may replace it, also when it goes on after it was killed
                outputs.take_over(file, file.read_bytes())

    with ExitStack() as locks:
        checked_on_rank_0(comm, take)
        yield outputs


def check_checkpoints(config: TrainOptions, overwrite: bool) -> None:
    """Raise `UsageError` if a run would remove checkpoints that it does not continue, unless `overwrite`.

    Saving a checkpoint removes later ones in its folder. ``resume="auto"`` continues from the newest, so no other run is there.
    """
    if not config.checkpoint or config.resume == "auto" or overwrite:
        return
    folder = Path(config.checkpoint)
    steps = {path.resolve(): path.name for path in checkpoint.listed(folder)}
    if not steps:
        return
    if not config.resume:
        fits = "use resume='auto' to continue it, another folder, or overwrite=True"
        raise UsageError(f"{folder} holds checkpoints of an earlier run; {fits}")
    resumed = Path(config.resume).resolve()
    if resumed not in {folder.resolve(), *steps}:
        fits = "use another folder, or overwrite=True to replace them"
        raise UsageError(f"{folder} holds checkpoints of a run other than {config.resume}; {fits}")
    if resumed in steps and (later := max(steps.values())) > steps[resumed]:
        fits = "use resume='auto' to continue from the newest, another folder, or overwrite=True"
        raise UsageError(f"{folder} holds {later}, after {config.resume}; {fits}")


def _of_first_epoch(path: Path) -> bool:
    """Return True if a file holds at most the line of epoch 0, which a crash may have cut short; a run that goes on writes it again."""
    if not path.is_file():
        return True
    begin, text = json.dumps({"epoch": 0})[:-1], path.read_text(encoding="utf-8", errors="replace")
    return text.count("\n") < 2 and (text.startswith(f"{begin},") or begin.startswith(text))
