"""Gather rows of a dense matrix by vertex, into memory that is reused; or average them where they lie.

    out = Q D X,    mean = A Q D X        Q selects the rows, D scales each, A is a block; X is float32, float16 or bfloat16

A new array of some hundred megabytes costs as much as filling it, because the system clears its pages. `RowPool` keeps arrays
that are no longer in use.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ..backends import on_host
from ..backends.base import Backend
from ..backends.reference import Reference
from ..graph.minibatch import InputHop

_SLACK = 1.25  # mini-batches differ in size: a slightly larger buffer fits more of them


class OwnAndMean(NamedTuple):
    """The rows of the destinations of a block, and the means of those of their sources: float32, shape (D, f) each.

    They are arrays or tensors. Of several types and relations `own` is a dict by type, and `mean` one by (source, name, destination).
    """

    own: Any
    mean: Any


class RowPool:
    """Memory for gathered rows, for any thread. A buffer is free when no array or tensor refers to it."""

    def __init__(self) -> None:
        self._buffers = deque[np.ndarray]()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowPool, ()

    def rows(self, count: int, width: int) -> np.ndarray:
        """Return an array to write to: float32, shape (count, width)."""
        size = count * width
        for _ in range(len(self._buffers)):
            try:
                claimed = [self._buffers.popleft()]  # no other thread sees it until it is put back
            except IndexError:  # other threads have claimed the rest
                break
            if sys.getrefcount(claimed[0]) > 2:  # this list, and the argument
                self._buffers.append(claimed.pop())
                continue
            if len(claimed[0]) < size:
                claimed[0] = np.empty(int(size * _SLACK), np.float32)
            return self._lent(claimed.pop(), count, width)
        return self._lent(np.empty(int(size * _SLACK), np.float32), count, width)

    def _lent(self, buffer: np.ndarray, count: int, width: int) -> np.ndarray:
        """Put a buffer back, in use, and return its rows."""
        rows = buffer[: count * width].reshape(count, width)
        self._buffers.appendleft(buffer)
        return rows

    def nbytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.copy())


def gather_rows(
    x: np.ndarray, vertices: np.ndarray, scale: np.ndarray | None = None, pool: RowPool | None = None, backend: Backend | None = None
) -> np.ndarray:
    """Gather rows of a dense matrix: float32, shape (N, f); reads the bytes of N rows at random places and writes 4 N f.

    `x` is float32, float16, or uint16 for bfloat16, shape (n, f), and `scale` has the factor of each of its rows, float32. `pool` lends
    memory for the rows, fresh memory by default; `backend` gathers, by default the fastest one of the host on one thread.
    """
    rows = np.ascontiguousarray(vertices, np.int32)
    out = (pool or RowPool()).rows(len(rows), x.shape[1])
    _engine(x, backend).gather(x, rows, scale, out)
    return out


def gather_own_and_mean(
    x: np.ndarray, destinations: np.ndarray, hop: InputHop, scale: np.ndarray | None = None, pool: RowPool | None = None,
    backend: Backend | None = None,
) -> OwnAndMean:  # fmt: skip
    """Gather the rows of destinations, and average those of the sources of their edges where they lie: float32, shape (D, f) each.

    `destinations` are int32, shape (D,); the other arguments are those of `gather_rows`. Reads D + E rows at random places and writes
    8 D f bytes; see `gather_mean`.
    """
    pool = pool or RowPool()
    return OwnAndMean(gather_rows(x, destinations, scale, pool, backend), gather_mean(x, hop, scale, pool, backend))


def gather_mean(
    x: np.ndarray, hop: InputHop, scale: np.ndarray | None = None, pool: RowPool | None = None, backend: Backend | None = None
) -> np.ndarray:
    """Average the rows of the sources of each destination where they lie: float32, shape (D, f); zeros without edges.

    The bits are those of rows that were gathered first. Reads E rows at random places and writes 4 D f bytes; edges with weights are
    summed with these. The other arguments are those of `gather_rows`.
    """
    out = (pool or RowPool()).rows(len(hop.pointers) - 1, x.shape[1])
    return _engine(x, backend).spmm(hop.pointers, hop.vertices, hop.weights, x, scale, hop.weights is None, out)


def _engine(x: np.ndarray, backend: Backend | None) -> Backend:
    return (backend or on_host(1)) if x.flags.c_contiguous else Reference()
