"""The files that a run has written, so that a run that goes on knows its own from those of other runs.

The record lies with the checkpoints. A file is known by its place, as seen from there, and by how it began when the run wrote it: the whole
of a report or a configuration, the first of the lines of epochs. A folder that moves together with its results keeps them, and one that
moves alone knows a file by its name and its beginning, as nothing lies where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ..config.train import TrainOptions
from ..data.atomic import is_device, write_file
from ..errors import DataError

CONFIG, LINES = "config.yaml", "metrics.jsonl"  # what a run keeps among its checkpoints: its options, and the lines of its epochs
FILE = ".bulksample-outputs"
LINE = b'{"epoch": '  # how a line of an epoch begins


class Outputs:
    """The outputs of a run that keeps checkpoints in `folder`; without a folder nothing is noted.

    Parameters
    ----------
    folder : path, optional
    goes_on : bool
        The run continues the one that wrote the checkpoints; else its first note replaces the record.

    Raises
    ------
    DataError
        If the run goes on, and there is a record that cannot be read.
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
        return any(_begins(data, one) for noted, own in known.items() if noted == place or self._moved(noted, place) for one in own)

    def _moved(self, noted: str, place: str) -> bool:
        """Return True if the file that was noted at one place may lie at another: the names agree, and nothing lies at the first."""
        return os.path.basename(noted) == os.path.basename(place) and not os.path.lexists(os.path.join(self._folder or "", noted))

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
        found = json.loads(record.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not all(_is_beginning(one) for own in found.values() for one in own):
            raise ValueError("is damaged")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{record}, the outputs of the run, cannot be read: {error}; remove it if they may be replaced") from error
    return {place: [(size, digest) for size, digest in own] for place, own in found.items()}


def _is_beginning(one: object) -> bool:
    return isinstance(one, list) and [type(part) for part in one] == [int, str]
