"""Write files that survive a crash: hash them while writing, and sync them before they are renamed into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError, UsageError

PIECE = 2**24  # bytes


def folder_of(given: Any, what: str) -> Path:
    """Return a path that the user gave for a folder; raises `UsageError` naming `what` for anything else."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise UsageError(f"{what}: got a {type(given).__name__}; use the path of a folder")


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and sync it."""
    with open(path, "wb") as stream:
        stream.write(data)
        sync(stream)


def sync(stream: BinaryIO) -> None:
    """Sync what was written to a stream."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(path: Path) -> None:
    """Sync a folder, so that the names of its files survive a crash."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_below(folder: Path) -> None:
    """Sync every file and folder below a folder."""
    for path in folder.rglob("*"):
        sync_folder(path)  # a file is opened and synced alike


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, 16 MiB at a time; raises `DataError` if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            while piece := stream.read(PIECE):
                yield piece
    except OSError as error:
        raise DataError(f"{path.parent.name}/{path.name}: cannot be read: {error.strerror}") from error
