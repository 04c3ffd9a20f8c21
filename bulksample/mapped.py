"""Arrays in files that are mapped into memory: read once from end to end, with pages released so that they do not count as used, and
mapped again by other processes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from .errors import DataError


class Mark(NamedTuple):
    """Identifies the content of a file without reading it. Programs can set the mtime, and the kernel alone the ctime."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def mark_of(path: Path) -> Mark:
    """Return the mark of a file now; raises OSError."""
    status = os.stat(path)
    return Mark(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class MappedFile(NamedTuple):
    """A file that was mapped into memory from byte `start` on, and its mark at that time."""

    path: str
    mark: Mark
    start: int


_FILES: WeakKeyDictionary[mmap.mmap, MappedFile] = WeakKeyDictionary()  # those that `map_file` mapped


def map_file(path: Path, dtype: Any, shape: tuple[int, ...], offset: int, order: Any = "C") -> np.ndarray:
    """Map an array of a file, read-only, so that its pickle is a `MappedPart`."""
    mark = mark_of(path)
    array: Any = np.memmap(path, dtype, "r", offset, shape, order)
    _FILES[array._mmap] = MappedFile(os.path.abspath(path), mark, offset - offset % mmap.ALLOCATIONGRANULARITY)
    made: np.ndarray = array
    return made


class MappedPart:
    """An array that lies in a mapped file, as a pickle holds it: the path, and the place in the file."""

    def __init__(self, *place: Any) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return map_again, self._place

    @classmethod
    def of(cls, array: np.ndarray) -> MappedPart | None:
        """Return the place of an array; None if `map_file` did not map it, it is empty or has gaps, or another file is there by now."""
        root: Any = array
        while isinstance(root, np.ndarray):
            root = root.base
        file = _FILES.get(root) if isinstance(root, mmap.mmap) and array.flags.c_contiguous and array.size else None
        if file is None or not _unchanged(file):
            return None
        offset = file.start + _address(array) - _address(np.frombuffer(root, np.uint8))
        return cls(*file[:2], array.dtype.str, array.shape, offset)


def map_again(path: str, mark: Mark, dtype: str, shape: tuple[int, ...], offset: int) -> np.ndarray:
    """Map a part of a file; raises `DataError` unless the file has that mark."""
    if not _unchanged(MappedFile(path, mark, 0)):
        raise DataError(f"{path}: is missing or has changed since its array was pickled; open the store anew")
    return map_file(Path(path), dtype, shape, offset)


def _unchanged(file: MappedFile) -> bool:
    try:
        return mark_of(Path(file.path)) == file.mark
    except OSError:
        return False


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def pieces(array: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (start, rows) in steps of `step` rows; the pages of a mapped file are released before the next step."""
    for start in range(0, len(array), step):
        part = array[start : start + step]
        yield start, part
        forget(part)


def is_mapped(array: np.ndarray) -> bool:
    """True if an array lies in a file that is mapped into memory."""
    return getattr(array, "_mmap", None) is not None


def forget(part: np.ndarray) -> None:
    """Release the pages of rows of a file that is mapped for reading; a later access reads them from the file again."""
    file = getattr(part, "_mmap", None)
    if file is None or not part.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    address = _address(part) - _address(np.frombuffer(file, np.uint8))
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    if part.nbytes:
        file.madvise(mmap.MADV_DONTNEED, first, address + part.nbytes - first)
