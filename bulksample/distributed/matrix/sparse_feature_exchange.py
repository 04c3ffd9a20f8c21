"""Fetch rows of a sparse matrix in block rows from the ranks that hold them: X = H[ids] for a sparse n x f matrix H.

Each rank requests every distinct row of another rank once. A fetch sends 4 bytes for each requested id (kind "topology"), then
4 bytes for each row and 8 bytes for each stored entry (kind "features"). The ids of several fetches may travel at once: see `request_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...errors import PeerLost, UsageError
from ...sparse import CSR, row_pointers
from ..comm.base import Comm
from .layout import checked_bounds
from .messages import PendingRaggedRows, RowRequests, RowsToSend, request_ids, start_ragged_rows


class SparseRowExchange:
    """A sparse n x f matrix in block rows over the ranks of a communicator (a process column), whose rows any rank can fetch.

    Rank i holds the rows ``bounds[i]:bounds[i + 1]``, float32. A fetch sends 4 bytes for each requested id (kind "topology"), then 4 bytes
    for each row and 8 bytes for each stored entry (kind "features"). Raises `UsageError` if the rows do not match the bounds, or have no
    values.
    """

    def __init__(self, comm: Comm, bounds: np.ndarray, rows: CSR) -> None:
        self.comm, self.bounds, self._rows = comm, checked_bounds(bounds), rows
        self._first, last = (int(bound) for bound in self.bounds[comm.rank : comm.rank + 2])
        if rows.shape[0] != last - self._first or rows.values is None:
            raise UsageError(f"rank {comm.rank} holds rows {self._first} to {last} of a matrix with values; got {rows.shape[0]} rows")

    def start(self, ids: np.ndarray) -> SparseFetch:
        """Begin to fetch rows in the requested order; collective. On return the ids have been exchanged."""
        return self.ask([ids])[0]()

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], SparseFetch]]:
        """Exchange the ids of several fetches at once; return a function for each that begins it. See `RowExchange.ask`."""
        named = [np.unique(ids, return_inverse=True) for ids in fetches]
        for unique, _ in named:
            if len(unique) and not 0 <= unique[0] <= unique[-1] < self.bounds[-1]:
                raise UsageError(f"ids must be rows of the matrix, 0 to {self.bounds[-1] - 1}; got {unique[0]} to {unique[-1]}")
        requests = request_ids(self.comm, self.bounds, [unique.astype(np.int32) for unique, _ in named])
        return [partial(self._begin, position, own) for (_, position), own in zip(named, requests, strict=True)]

    def _begin(self, position: np.ndarray, requests: RowRequests) -> SparseFetch:
        local = requests.requested - np.int32(self._first)
        if len(local) and not 0 <= local.min() <= local.max() < self._rows.shape[0]:
            raise PeerLost(f"rank {self.comm.rank} was asked for rows that it does not hold")
        sent, counts = self._rows.take(local), requests.requested_counts
        part = RowsToSend(counts, sent.indptr, [sent.indices, sent.entries()], requests.expected)
        return SparseFetch(start_ragged_rows(self.comm, [part], "features"), position, self._rows.shape[1])


class SparseFetch:
    """A fetch of sparse rows that has been started. Call `wait` on every fetch; calling it again is allowed."""

    def __init__(self, pending: PendingRaggedRows, position: np.ndarray, width: int) -> None:
        self._pending, self._position, self._width = pending, position, width

    def wait(self) -> CSR:
        """Return the rows in the requested order: float32, shape (m, f)."""
        found = self._pending.wait()[0]  # owners ascend as ids do
        columns, values = found.arrays
        return CSR(row_pointers(found.counts), columns, values, (len(found.counts), self._width)).take(self._position)
