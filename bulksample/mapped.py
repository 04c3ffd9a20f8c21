"""Read files that are mapped into memory once from end to end, and release pages after reading, so that they do not count as used."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np


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
    address = part.__array_interface__["data"][0] - np.frombuffer(file, np.uint8).__array_interface__["data"][0]
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    if part.nbytes:
        file.madvise(mmap.MADV_DONTNEED, first, address + part.nbytes - first)
