"""The `rows` policy: the 1.5D product Q A. Rows of A travel to the ranks that multiply with them.

Process row i stacks the mini-batches of its c members as Q_i; member j receives the part of Q_i in its block columns. In the stages of
`staged_rows`, process (i, j) fetches the rows of each block row k of its column that the nonzero columns of Q_ik name (`rows`), or the
whole block row (`rows-oblivious`), and multiplies while the next rows travel. In the end the partial products of the c members are summed
inside the process row; each member receives the rows of its own mini-batches.

A frontier with one row of Q for each vertex needs no product: the fetched rows are the rows of P.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2
and algorithm 2. Their all-reduce over the process row is a reduce-scatter here, because no member needs another's rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...adjacency import Entries, KeptEdges, LocalAdjacency
from ...backends.base import Backend, Picks, check_fanout
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR, runs
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout
from .selection_exchange import exchange_ragged_rows, request_rows, route, to_places
from .staged_rows import Extract, StagedRows


class RowsAdjacency(BlockRowAdjacency):
    """An adjacency in block rows that sends rows of A to the ranks that need them.

    Parameters
    ----------
    oblivious : bool
        Send whole block rows instead of the requested rows; serves as a baseline for measurements.
    """

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None, oblivious: bool = False) -> None:
        super().__init__(grid, block, backend, layout)
        self._rows = StagedRows(grid, backend, self.bounds, self.n, self.weighted, oblivious)
        self._shares = Layout(self._rows.shares, self.layout.order, self.layout.position)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        routed = route(q, self._shares)
        members = request_rows(self.grid.row_comm, q, routed)
        q_row = to_places(members.rows, self.layout)
        products = [self._empty(len(q_row))]
        for first, needed, rows in self._rows.stages(np.unique(q_row.vertices), self._extract(self.with_entries(entries))):
            here = (q_row.vertices >= first) & (q_row.vertices <= (needed[-1] if len(needed) else -1))
            places = np.searchsorted(needed, q_row.vertices[here])
            q_k = CSR.from_edges(q_row.minibatch_of_row()[here], places, (len(q_row), len(needed)))
            products.append(self.backend.spgemm(q_k, rows))
        own = _sum(products)
        expected = np.where(routed.rows > 0, len(q), 0)
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
        own, places = np.unique(self.layout.places(vertices), return_inverse=True)
        return self._rows.fetch(own, self._extract(self.block)), places

    def _extract(self, block: CSR) -> Extract:
        return partial(self.backend.extract_rows, block)

    def _empty(self, rows: int) -> CSR:
        return CSR(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), (rows, self.n))


def _sum(parts: list[CSR]) -> CSR:
    """Add integer matrices of one shape; the sum is canonical and stores no zeros."""
    rows, columns, values = (
        np.concatenate(arrays) for arrays in zip(*[(m.row_of_entry(), m.indices, m.entries()) for m in parts], strict=True)
    )
    return CSR.from_edges(rows, columns, parts[0].shape, values)
