"""Rows of a dense matrix by vertex: a threaded gather with prefetching, into memory that is used again.

    out = D Q X        Q selects the rows, D scales each; X is held as float32, as half, or as bfloat16

A fresh array of some hundred megabytes costs as much as filling it, because the system clears its pages; `RowPool` keeps those that
nobody looks at any more.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..distributed.matrix.codec import CODECS

_native: Any
try:
    from bulksample import _native  # type: ignore[attr-defined, no-redef]
except ImportError:
    _native = None

_STORED = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}
_SLACK = 1.25  # minibatches differ in size: a buffer that is a little too large serves longer


class RowPool:
    """Memory for gathered rows. A buffer is free once no array and no tensor refers to it."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def rows(self, count: int, width: int) -> np.ndarray:
        """float32, shape (count, width), of any content."""
        size = count * width
        for i in range(len(self._buffers)):
            if sys.getrefcount(self._buffers[i]) <= 2:  # the list, and the argument
                if len(self._buffers[i]) < size:
                    self._buffers[i] = np.empty(int(size * _SLACK), np.float32)
                return self._buffers[i][:size].reshape(count, width)
        self._buffers.append(np.empty(int(size * _SLACK), np.float32))
        return self._buffers[-1][:size].reshape(count, width)

    def nbytes(self) -> int:
        """What it holds."""
        return sum(buffer.nbytes for buffer in self._buffers)


def gather_rows(
    x: np.ndarray, vertices: np.ndarray, scale: np.ndarray | None = None, pool: RowPool | None = None, threads: int = 1
) -> np.ndarray:
    """Some rows of a dense matrix: float32, shape (N, f).

    Parameters
    ----------
    x : float32, float16, or uint16 for bfloat16, shape (n, f)
    vertices : integer, shape (N,)
    scale : float32, shape (n,), optional
        What each row of x is multiplied by.
    pool : RowPool, optional
        Where the rows are put; in a fresh array unless given.

    Notes
    -----
    Reads the bytes of N rows at random places and writes 4 N f.
    """
    rows = np.ascontiguousarray(vertices, np.int32)
    out = (pool or RowPool()).rows(len(rows), x.shape[1])
    if _native is not None and x.flags.c_contiguous:
        _native.gather(x if x.dtype == np.float32 else x.view(np.uint16), _STORED[x.dtype], rows, scale, out, threads)
        return out
    out[:] = CODECS["bf16"].decode(x[rows]) if x.dtype == np.uint16 else x[rows]
    if scale is not None:
        out *= scale[rows][:, None]
    return out
