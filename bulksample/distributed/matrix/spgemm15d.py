"""The `rows` policy: the 1.5D product Q A. Rows of A travel to the ranks that multiply with them.

Process row i stacks the mini-batches of its c members as Q_i. Process (i, j) works on the block columns k of column j, one in each
stage. In a stage it requests the rows of block row k that the nonzero columns of Q_ik name (`rows`) or receives the whole block
row (`rows-oblivious`), and multiplies. The rows of stage k + 1 travel while stage k multiplies. In the end the partial products of
the c members are summed inside the process row; each member receives the rows of its own mini-batches.

A frontier with one row of Q for each vertex needs no product: the fetched rows are the rows of P.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2
and algorithm 2. Their all-reduce over the process row is a reduce-scatter here, because no member needs another's rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...adjacency import Entries, KeptEdges, LocalAdjacency
from ...backends.base import Backend, Picks, check_fanout
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR, row_pointers, runs
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout
from .selection_exchange import PendingRaggedRows, exchange_ragged_rows, request_from_all, start_ragged_rows, to_places


class RowsAdjacency(BlockRowAdjacency):
    """An adjacency in block rows that sends rows of A to the ranks that need them.

    Parameters
    ----------
    oblivious : bool
        Send whole block rows instead of the requested rows; serves as a baseline for measurements.
    """

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None, oblivious: bool = False) -> None:
        super().__init__(grid, block, backend, layout)
        self.oblivious = oblivious

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        members = request_from_all(self.grid.row_comm, q)
        q_row = to_places(members.rows, self.layout)
        products = [self._empty(len(q_row))]
        for first, needed, rows in self._stages(np.unique(q_row.vertices), self.with_entries(entries)):
            here = (q_row.vertices >= first) & (q_row.vertices <= (needed[-1] if len(needed) else -1))
            places = np.searchsorted(needed, q_row.vertices[here])
            q_k = CSR.from_edges(q_row.minibatch_of_row()[here], places, (len(q_row), len(needed)))
            products.append(self.backend.spgemm(q_k, rows))
        own = _sum(products)
        expected = np.full(self.grid.replication, len(q) if len(q.vertices) else 0)
        answers = exchange_ragged_rows(self.grid.row_comm, members.minibatches, own.indptr, [own.indices, own.entries()], expected)
        row = runs(np.zeros(len(answers.rows)), answers.rows)
        return CSR.from_edges(np.repeat(row, answers.counts), answers.arrays[0], (len(q), self.n), answers.arrays[1])

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        rows, places = self._fetch(q.vertices)
        at = Selection(q.minibatches, q.pointers, places, q.n, q.names)
        return self.backend.sample_rows(rows, at, check_fanout(fanout), draw)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        fetched, places = self._fetch(rows.vertices)
        at = Selection(rows.minibatches, rows.pointers, places, rows.n)
        return LocalAdjacency(fetched, self.backend, checked=True).restrict(at, columns, shares)

    def _fetch(self, vertices: np.ndarray) -> tuple[CSR, np.ndarray]:
        """Fetch the distinct rows of A of some vertices, by place; return them and the position of each vertex among them."""
        row_comm = self.grid.row_comm
        own, places = np.unique(self.layout.places(vertices), return_inverse=True)
        pending = row_comm.start_alltoall_rows(np.tile(own, row_comm.size), np.full(row_comm.size, len(own)), "topology")
        together, ends = pending.wait(), row_pointers(pending.counts)
        fetched = [(np.empty(0, np.int32), CSR(np.zeros(1, np.int64), np.empty(0, np.int32), self._no_values(), (0, self.n)))]
        fetched += [(needed, rows) for _, needed, rows in self._stages(np.unique(together), self.block)]
        ids, rows = np.concatenate([needed for needed, _ in fetched]), _stacked_rows([part for _, part in fetched])
        held = np.isin(together, ids)
        sent = self.backend.extract_rows(rows, np.searchsorted(ids, together[held]).astype(np.int32))
        entries = [sent.indices] if sent.values is None else [sent.indices, sent.values]
        of_each = np.diff(row_pointers(held)[ends])
        answers = exchange_ragged_rows(row_comm, of_each, sent.indptr, entries, self._held_by_columns(own))
        values = answers.arrays[1] if self.weighted else None  # columns of the grid ascend, so ids do
        return CSR(row_pointers(answers.counts), answers.arrays[0], values, (len(own), self.n)), places

    def _held_by_columns(self, own: np.ndarray) -> np.ndarray:
        """Return how many of these ascending places lie in the block columns of each process column: int64, shape (c,)."""
        grid = self.grid
        cuts = [0, *(grid.block_columns(j).stop for j in range(grid.replication))]
        return np.diff(np.searchsorted(own, self.bounds[cuts]))

    def _stages(self, ids: np.ndarray, block: CSR) -> Iterator[tuple[int, np.ndarray, CSR]]:
        """Yield for each block column of this process column its first place, the `ids` in it, and their rows of A."""
        stages = self.grid.block_columns(self.grid.column)
        waiting = [self._start(k, ids, block) for k in stages[:1]]
        for t, k in enumerate(stages):
            needed, pending = waiting.pop()
            waiting += [self._start(following, ids, block) for following in stages[t + 1 : t + 2]]
            found = pending.wait()
            values = found.arrays[1] if len(found.arrays) > 1 else None
            rows = CSR(row_pointers(found.counts), found.arrays[0], values, (len(found.counts), self.n))
            if self.oblivious:
                rows = self.backend.extract_rows(rows, needed - np.int32(self.bounds[k]))
            yield int(self.bounds[k]), needed, rows

    def _start(self, k: int, ids: np.ndarray, block: CSR) -> tuple[np.ndarray, PendingRaggedRows]:
        """Request rows of block row k from its holder; the holder begins to send all requested rows."""
        column, grid = self.grid.column_comm, self.grid
        needed = ids[np.searchsorted(ids, self.bounds[k]) : np.searchsorted(ids, self.bounds[k + 1])].astype(np.int32)
        holder = np.arange(column.size) == k
        if self.oblivious:
            counts = np.full(column.size, block.shape[0] if grid.row == k else 0)
            requested = np.tile(np.arange(block.shape[0], dtype=np.int32), column.size if grid.row == k else 0)
            expected = holder * int(self.bounds[k + 1] - self.bounds[k])
        else:
            expected = holder * len(needed)
            asked = column.start_alltoall_rows(needed - np.int32(self.bounds[k]), expected, "topology")
            requested, counts = asked.wait(), asked.counts
        sent = self.backend.extract_rows(block, requested)
        entries = [sent.indices] if sent.values is None else [sent.indices, sent.values]
        return needed, start_ragged_rows(column, counts, sent.indptr, entries, expected)

    def _empty(self, rows: int) -> CSR:
        return CSR(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), (rows, self.n))

    def _no_values(self) -> np.ndarray | None:
        return np.empty(0, np.int64) if self.weighted else None


def _sum(parts: list[CSR]) -> CSR:
    """Add integer matrices of one shape; the sum is canonical and stores no zeros."""
    rows, columns, values = (
        np.concatenate(arrays) for arrays in zip(*[(m.row_of_entry(), m.indices, m.entries()) for m in parts], strict=True)
    )
    return CSR.from_edges(rows, columns, parts[0].shape, values)


def _stacked_rows(parts: list[CSR]) -> CSR:
    """Stack matrices of one width vertically."""
    values = None if parts[0].values is None else np.concatenate([part.entries() for part in parts])
    counts = np.concatenate([part.degrees for part in parts])
    return CSR(row_pointers(counts), np.concatenate([part.indices for part in parts]), values, (len(counts), parts[0].shape[1]))
