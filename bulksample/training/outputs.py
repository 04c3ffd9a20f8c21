"""The files that a run has written, so that a run that goes on knows its own from those of other runs.

The record lies with the checkpoints. A file is known by its place, as seen from there, and by how it began when the run wrote it: the whole
of a report or a configuration, the first of the lines of epochs. A folder that moves together with its results keeps them.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from ..data.atomic import write_file
from ..errors import DataError

FILE = ".bulksample-outputs"
_KEPT = 2  # beginnings of a file: it may be the one before, if the run is killed between its note and its write


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
        self._known = _read(folder / FILE) if folder is not None and goes_on else None

    @property
    def recorded(self) -> bool:
        """True if there is a record; earlier versions kept none."""
        return self._known is not None

    def note(self, file: Path, beginning: str | bytes) -> None:
        """Note that the run is about to write a file that begins with this text, or that is empty. Raises OSError."""
        if self._folder is None:
            return
        data = beginning.encode() if isinstance(beginning, str) else beginning
        known, place = self._known or {}, self._place(file)
        before = known.get(place, [])
        own = [(len(data), hashlib.sha256(data).hexdigest())] if data else []
        now = [*[one for one in before if one not in own], *own][-_KEPT:]
        if self._known is None or place not in known or now != before:
            self._known = {**known, place: now}
            write_file(self._folder / FILE, json.dumps(self._known, indent=1) + "\n")

    def write(self, file: Path, text: str) -> None:
        """Note a file and write it. Raises OSError."""
        self.note(file, text)
        write_file(file, text)

    def hold(self, file: Path) -> bool:
        """Return True if the run wrote this file: it has no complete line, or begins as the run noted."""
        beginnings = (self._known or {}).get(self._place(file))
        if beginnings is None:
            return False
        try:
            data = file.read_bytes()
        except OSError:
            return False
        return b"\n" not in data or any(hashlib.sha256(data[:size]).hexdigest() == digest for size, digest in beginnings)

    def _place(self, file: Path) -> str:
        return os.path.relpath(os.path.realpath(file), os.path.realpath(self._folder or ""))


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
