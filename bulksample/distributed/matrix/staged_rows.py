"""Fetch rows of a matrix in block rows by the stages of the 1.5D algorithm.

Process (i, j) works on the block columns k of column j, one in each stage. In a stage it requests rows of block row k from the rank of its
process column that holds it, and receives them; or it receives the whole block row (`oblivious`). The rows of stage k + 1 travel while
the caller works with those of stage k.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2 and algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...backends.base import Backend
from ...sparse import CSR, row_pointers
from .grid import ProcessGrid
from .selection_exchange import PendingRaggedRows, exchange_ragged_rows, start_ragged_rows

Extract = Callable[[np.ndarray], CSR]  # rows of this rank's block, int32 of shape (R,), which may repeat -> a CSR of R rows


class StagedRows:
    """The stages in which rows travel on a process grid. Its methods are collective over the grid.

    Parameters
    ----------
    grid : ProcessGrid
    backend : Backend
    bounds : int64, shape (p / c + 1,)
        Block row i holds the rows of the places ``bounds[i]:bounds[i + 1]``.
    width : int
        Columns of the matrix.
    weighted : bool
        True if rows have int64 values when `fetch` is called.
    oblivious : bool
        Send whole block rows instead of the requested rows; serves as a baseline for measurements.
    """

    def __init__(
        self, grid: ProcessGrid, backend: Backend, bounds: np.ndarray, width: int, weighted: bool = False, oblivious: bool = False
    ) -> None:  # fmt: skip
        self.grid, self.backend, self.bounds, self.width = grid, backend, bounds, width
        self.weighted, self.oblivious = weighted, oblivious

    def fetch(self, own: np.ndarray, extract: Extract) -> CSR:
        """Fetch the rows of distinct places, int32 and ascending: row r of the result is that of place ``own[r]``.

        Each rank tells its places to all members of its process row. Member j fetches what they name in its block columns, each row
        once, and sends every member its rows.
        """
        row_comm = self.grid.row_comm
        pending = row_comm.start_alltoall_rows(np.tile(own, row_comm.size), np.full(row_comm.size, len(own)), "topology")
        together, ends = pending.wait(), row_pointers(pending.counts)
        nothing = CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64) if self.weighted else None, (0, self.width))
        fetched = [(np.empty(0, np.int32), nothing)]
        fetched += [(needed, rows) for _, needed, rows in self.stages(np.unique(together), extract)]
        ids, rows = np.concatenate([needed for needed, _ in fetched]), _stacked([part for _, part in fetched])
        held = np.isin(together, ids)
        sent = self.backend.extract_rows(rows, np.searchsorted(ids, together[held]).astype(np.int32))
        entries = [sent.indices] if sent.values is None else [sent.indices, sent.values]
        of_each = np.diff(row_pointers(held)[ends])
        answers = exchange_ragged_rows(row_comm, of_each, sent.indptr, entries, self._held_by_columns(own))
        values = answers.arrays[1] if self.weighted else None  # columns of the grid ascend, so places do
        return CSR(row_pointers(answers.counts), answers.arrays[0], values, (len(own), self.width))

    def stages(self, ids: np.ndarray, extract: Extract) -> Iterator[tuple[int, np.ndarray, CSR]]:
        """Yield for each block column of this process column its first place, the `ids` in it, and their rows.

        `ids` are distinct places that ascend. `extract` returns rows of this rank's block, all with values or all without.
        """
        stages = self.grid.block_columns(self.grid.column)
        waiting = [self._start(k, ids, extract) for k in stages[:1]]
        for t, k in enumerate(stages):
            needed, pending = waiting.pop()
            waiting += [self._start(following, ids, extract) for following in stages[t + 1 : t + 2]]
            found = pending.wait()
            values = found.arrays[1] if len(found.arrays) > 1 else None
            rows = CSR(row_pointers(found.counts), found.arrays[0], values, (len(found.counts), self.width))
            if self.oblivious:
                rows = self.backend.extract_rows(rows, needed - np.int32(self.bounds[k]))
            yield int(self.bounds[k]), needed, rows

    def _start(self, k: int, ids: np.ndarray, extract: Extract) -> tuple[np.ndarray, PendingRaggedRows]:
        """Request rows of block row k from its holder; the holder begins to send all requested rows."""
        column, grid = self.grid.column_comm, self.grid
        needed = ids[np.searchsorted(ids, self.bounds[k]) : np.searchsorted(ids, self.bounds[k + 1])].astype(np.int32)
        holder = np.arange(column.size) == k
        height = int(self.bounds[k + 1] - self.bounds[k])
        if self.oblivious:
            counts = np.full(column.size, height if grid.row == k else 0)
            requested = np.tile(np.arange(height, dtype=np.int32), column.size if grid.row == k else 0)
            expected = holder * height
        else:
            expected = holder * len(needed)
            asked = column.start_alltoall_rows(needed - np.int32(self.bounds[k]), expected, "topology")
            requested, counts = asked.wait(), asked.counts
        sent = extract(requested)
        entries = [sent.indices] if sent.values is None else [sent.indices, sent.values]
        return needed, start_ragged_rows(column, counts, sent.indptr, entries, expected)

    def _held_by_columns(self, own: np.ndarray) -> np.ndarray:
        """Return how many of these ascending places lie in the block columns of each process column: int64, shape (c,)."""
        grid = self.grid
        cuts = [0, *(grid.block_columns(j).stop for j in range(grid.replication))]
        return np.diff(np.searchsorted(own, self.bounds[cuts]))


def _stacked(parts: list[CSR]) -> CSR:
    """Stack matrices of one width vertically."""
    values = None if parts[0].values is None else np.concatenate([part.entries() for part in parts])
    counts = np.concatenate([part.degrees for part in parts])
    return CSR(row_pointers(counts), np.concatenate([part.indices for part in parts]), values, (len(counts), parts[0].shape[1]))
