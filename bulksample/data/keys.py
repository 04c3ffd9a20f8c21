"""Edges as 64-bit keys ``row << 32 | column``: sorted and distinct, they are the canonical matrix."""

from __future__ import annotations

import numpy as np

from ..mapped import pieces
from ..sparse import CSR

STEP = 2**22  # keys processed at a time, which bounds temporary arrays
COLUMN = np.int64(2**32 - 1)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Move the distinct ones of sorted keys to the front of the array, and return that part as a view."""
    kept, last = 0, -1  # a key is never negative
    for start in range(0, len(keys), STEP):
        part = keys[start : start + STEP]
        new = np.empty(len(part), bool)
        new[0] = part[0] != last
        np.not_equal(part[1:], part[:-1], out=new[1:])
        last = part[-1]
        fresh = part[new]
        keys[kept : kept + len(fresh)] = fresh  # writes never overtake reads
        kept += len(fresh)
    return keys[:kept]


def from_keys(keys: np.ndarray, n: int, values: np.ndarray | None = None) -> CSR:
    """Return the n x n matrix with an entry at each key ``row << 32 | column``.

    The keys are sorted and distinct; `values`, if given, are in the order of the keys.
    """
    indptr = np.empty(n + 1, np.int64)
    for start in range(0, n + 1, STEP):
        rows = np.arange(start, min(start + STEP, n + 1), dtype=np.int64)
        indptr[start : start + STEP] = np.searchsorted(keys, rows << 32)
    indices = np.empty(len(keys), np.int32)
    for start in range(0, len(keys), STEP):
        np.bitwise_and(keys[start : start + STEP], COLUMN, out=indices[start : start + STEP], casting="unsafe")
    return CSR(indptr, indices, values, (n, n))


def diagonal(keys: np.ndarray) -> int:
    """Return the number of keys on the diagonal."""
    return sum(int(((part >> 32) == (part & COLUMN)).sum()) for _, part in pieces(keys, STEP))
