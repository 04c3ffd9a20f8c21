"""Products by a library, behind a guard: cuSPARSE through CuPy adds floats, and has given zeros and wrapped counts without an error.

    C = A B, one of them of ones:   count = 1 1^T,   C_i = sum of (piece_i + 1)  - count,   C = sum over i of 2^(21 i) C_i

An integer below 2^63 is three pieces of 21 bits, and a sum of up to 2^31 of them is exact in float64. One is added to each, so that no
sum is zero and all products have the pattern of the count. Rows are taken as many at a time as have few products, and what comes back
must add up: the counts to the number of products, each piece to its sum along the rows of B. What does not is not used.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .device import Device, Matrix

PIECE, PIECES = 21, 3  # bits, and how many of them an entry has
MOST_PRODUCTS = 2**28  # of one call
_MOST_ENTRIES = 2**31 - 1


def checked_product(device: Device, sparse: Any, a: Matrix, b: Matrix) -> tuple[Any, Any, Any] | None:
    """Row pointers, columns and sums of A B by the library; None where it cannot, or where what it gave is wrong, which is told.

    `sparse` is ``cupyx.scipy.sparse``, or SciPy's in tests. Waits for the number of products of each row, and for every check.
    """
    apart = type(a.indices) is not type(b.indices)  # one of them is in memory of the host
    if apart or (a.values is not None and b.values is not None) or max(len(a.indices), len(b.indices)) > _MOST_ENTRIES:
        return None
    starts, ends = b.indptr[a.indices], b.indptr[a.indices + 1]
    products = _before(device, ends - starts)  # of the entries of A before each
    rows = device.get(products[a.indptr])
    parts, row = [], 0
    while row < a.shape[0]:
        last = max(row + 1, int(np.searchsorted(rows, rows[row] + MOST_PRODUCTS, side="right")) - 1)
        part = _rows(device, sparse, a, b, row, last, int(rows[last] - rows[row]), (starts, ends))
        if part is None:
            warnings.warn("the library's product does not add up; our own is used", stacklevel=2)
            return None
        parts.append(part)
        row = last
    counts, columns, sums = (device.arrays.concatenate([part[i] for part in parts]) for i in range(3))
    return _before(device, counts), columns, sums


def _rows(
    device: Device, sparse: Any, a: Matrix, b: Matrix, first: int, last: int, products: int, reach: tuple[Any, Any]
) -> tuple[Any, Any, Any] | None:
    """Entries of each of some rows of A B, their columns and their sums."""
    begin, end = (int(at) for at in device.get(a.indptr[[first, last]]))
    own, pointers = slice(begin, end), (a.indptr[first : last + 1] - begin).astype(np.int32)
    shape = last - first, a.shape[1]
    starts, ends = (edge[own] for edge in reach)

    def product(piece: int | None) -> Any:
        left, right = (_piece(device, matrix, piece) for matrix in (a, b))
        one = sparse.csr_matrix((left[own], a.indices[own], pointers), shape=shape)
        made = one @ sparse.csr_matrix((right, b.indices, b.indptr.astype(np.int32)), shape=b.shape)
        made.sort_indices()
        running = _before(device, right.astype(np.int64))
        expected = (left[own].astype(np.int64) * (running[ends] - running[starts])).sum()
        return made, bool(made.data.astype(np.int64).sum() == expected)

    count, right = product(None)
    if not right or int(count.data.sum()) != products:
        return None
    sums = count.data.astype(np.int64)
    if a.values is not None or b.values is not None:
        ones, sums = sums, sums * 0
        for piece in range(PIECES):
            made, right = product(piece)
            if not right or made.nnz != count.nnz or not bool((made.indices == count.indices).all()):
                return None
            sums += (made.data.astype(np.int64) - ones) << (PIECE * piece)
    kept = _before(device, (sums != 0).astype(np.int64))  # sums of zero are not stored
    ends_kept = kept[count.indptr]
    return ends_kept[1:] - ends_kept[:-1], count.indices[sums != 0].astype(np.int32), sums[sums != 0]


def _piece(device: Device, matrix: Matrix, piece: int | None) -> Any:
    """Ones, or one of the pieces of every entry, and one more: float64."""
    if matrix.values is None or piece is None:
        return device.full(len(matrix.indices), 1, np.float64)
    return ((matrix.values >> (PIECE * piece)) & (2**PIECE - 1)).astype(np.float64) + 1


def _before(device: Device, counts: Any) -> Any:
    """Sums before each, one longer: int64."""
    running = device.arrays.zeros(len(counts) + 1, np.int64)
    running[1:] = counts.astype(np.int64).cumsum()
    return running
