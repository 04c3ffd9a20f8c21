"""Files mapped into memory, read once from end to end: what has been read is given back, so that it does not count as used."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import numpy as np


def pieces(array: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """(start, rows from there on), `step` rows at a time; those of a mapped file are forgotten when the next are asked for."""
    for start in range(0, len(array), step):
        part = array[start : start + step]
        yield start, part
        forget(part)


def forget(part: np.ndarray) -> None:
    """Give back the pages of rows of a file that is mapped for reading; they come again from the file if they are asked for again."""
    file = getattr(part, "_mmap", None)
    if file is None or not part.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    address = part.__array_interface__["data"][0] - np.frombuffer(file, np.uint8).__array_interface__["data"][0]
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    if part.nbytes:
        file.madvise(mmap.MADV_DONTNEED, first, address + part.nbytes - first)
