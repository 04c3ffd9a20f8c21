"""Fetch rows of a matrix in block rows by the stages of the 1.5D algorithm.

Process (i, j) works on the block columns k of column j, one in each stage. It requests the rows of all its stages at once from the ranks
of its process column that hold them, and they tell it the lengths of these rows. In a stage it receives the rows of block row k; or it
receives whole block rows (`oblivious`). The rows of stage k + 1 travel while the caller works with those of stage k.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2 and algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...backends.base import Backend
from ...errors import PeerLost
from ...sparse import CSR, row_pointers
from .grid import ProcessGrid
from .row_requests import RowRequests, request_rows
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

    Attributes
    ----------
    shares : int64, shape (c + 1,)
        Process column j works on the rows of the places ``shares[j]:shares[j + 1]``: its block columns.
    """

    def __init__(
        self, grid: ProcessGrid, backend: Backend, bounds: np.ndarray, width: int, weighted: bool = False, oblivious: bool = False
    ) -> None:  # fmt: skip
        self.grid, self.backend, self.bounds, self.width = grid, backend, bounds, width
        self.weighted, self.oblivious = weighted, oblivious
        self.shares = bounds[[0, *(grid.block_columns(j).stop for j in range(grid.replication))]]

    def fetch(self, own: np.ndarray, extract: Extract) -> CSR:
        """Fetch the rows of distinct places, int32 and ascending: row r of the result is that of place ``own[r]``.

        Each rank requests rows from the members of its process row, of each those in its block columns. A member fetches what they all
        name, each row once, and sends every member its rows.
        """
        row_comm = self.grid.row_comm
        if row_comm.size == 1:
            return self._stacked(own, extract)
        asked = request_rows(row_comm, self.shares, [own])[0]
        ids = np.unique(asked.requested)
        sent = self.backend.extract_rows(self._stacked(ids, extract), np.searchsorted(ids, asked.requested).astype(np.int32))
        answers = exchange_ragged_rows(row_comm, asked.requested_counts, sent.indptr, _entries(sent), asked.expected)
        return self._matrix(answers.counts, answers.arrays)  # columns of the grid ascend, so places do

    def stages(self, ids: np.ndarray, extract: Extract) -> Iterator[tuple[int, np.ndarray, CSR]]:
        """Yield for each block column of this process column its first place, the `ids` in it, and their rows.

        `ids` are distinct places in these block columns, int32, that ascend. `extract` returns rows of this rank's block, all with values
        or all without.
        """
        grid, column = self.grid, self.grid.column_comm
        stages = grid.block_columns(grid.column)
        if not stages:
            return
        asked = self._whole_blocks(stages) if self.oblivious else request_rows(column, self.bounds, [ids])[0]
        sent = extract(asked.requested - np.int32(0 if self.oblivious else self.bounds[grid.row]))
        known = None if self.oblivious else asked.expected  # requests have compared the places of the ranks in the program
        told = column.alltoall_rows(np.diff(sent.indptr).astype(np.int32), asked.requested_counts, "topology", incoming=known)
        if told.min(initial=0) < 0:
            raise PeerLost("a rank sent lengths of rows below zero")
        ends, cuts = row_pointers(asked.expected), np.searchsorted(ids, self.bounds)

        def start(k: int) -> PendingRaggedRows:
            lengths, expected = told[ends[k] : ends[k + 1]], np.where(np.arange(column.size) == k, asked.expected, 0)
            if grid.row == k:
                return start_ragged_rows(column, asked.requested_counts, sent.indptr, _entries(sent), expected, counts=lengths)
            nothing = [array[:0] for array in _entries(sent)]
            return start_ragged_rows(column, np.zeros_like(expected), np.zeros(1, np.int64), nothing, expected, counts=lengths)

        waiting = [start(stages[0])]
        for k in stages:
            pending = waiting.pop()
            waiting += [start(following) for following in (k + 1,) if following in stages]
            found, needed = pending.wait(), ids[cuts[k] : cuts[k + 1]]
            rows = self._matrix(found.counts, found.arrays)
            if self.oblivious:
                rows = self.backend.extract_rows(rows, needed - np.int32(self.bounds[k]))
            yield int(self.bounds[k]), needed, rows

    def _whole_blocks(self, stages: range) -> RowRequests:
        """Return the requests of all ranks of the process column for whole block rows: no rank need tell them."""
        heights = np.diff(self.bounds)
        own, size = int(heights[self.grid.row]) * (self.grid.row in stages), self.grid.column_comm.size
        expected = np.where(np.isin(np.arange(size), stages), heights, 0)
        return RowRequests(expected, np.tile(np.arange(own, dtype=np.int32), size), np.full(size, own))

    def _stacked(self, ids: np.ndarray, extract: Extract) -> CSR:
        """Fetch the rows of places in the block columns of this process column, one below the other."""
        parts = [CSR(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64) if self.weighted else None, (0, self.width))]
        parts += [rows for _, _, rows in self.stages(ids, extract)]
        arrays = [np.concatenate(arrays) for arrays in zip(*map(_entries, parts), strict=True)]
        return self._matrix(np.concatenate([part.degrees for part in parts]), arrays)

    def _matrix(self, counts: np.ndarray, arrays: list[np.ndarray]) -> CSR:
        """Return rows of so many entries, with the columns in ``arrays[0]`` and perhaps values in ``arrays[1]``."""
        return CSR(row_pointers(counts), arrays[0], arrays[1] if len(arrays) > 1 else None, (len(counts), self.width))


def _entries(rows: CSR) -> list[np.ndarray]:
    return [rows.indices] if rows.values is None else [rows.indices, rows.values]
