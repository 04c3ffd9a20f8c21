"""A in block rows on a process grid: what every rank holds, whichever way it multiplies.

Rank (i, j) holds block row i of a layout, its columns being all vertices. Every method is collective:
all ranks call it, in the same order, each with the minibatches it samples itself (a rank may bring none).
"""

from __future__ import annotations

import numpy as np

from ...adjacency import Adjacency, Entries, LocalAdjacency
from ...backends.base import Backend
from ...errors import UsageError
from ...sparse import CSR
from .grid import ProcessGrid
from .layout import Layout


class BlockRowAdjacency(Adjacency):
    """The adjacency protocol over block rows; samplers cannot tell it from one that lies in one process.

    Parameters
    ----------
    grid : ProcessGrid
    block : CSR, shape (bounds[i + 1] - bounds[i], n)
        The rows of the vertices of block row i, ascending, on all members of process row i.
    backend : Backend
    layout : Layout, optional
        Of p / c block rows; even ones unless given.

    Raises
    ------
    UsageError
        If the block does not have the rows that the layout says.
    """

    collective = True

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None) -> None:
        self.grid, self.backend, self.block = grid, backend, block
        self.n = block.shape[1]
        self.weighted = block.values is not None
        self.layout = layout or Layout.even(self.n, grid.rows)
        if self.layout.blocks != grid.rows or self.layout.n != self.n:
            raise UsageError(f"the layout must deal {self.n} rows to {grid.rows} blocks; got {self.layout.n} rows in {self.layout.blocks}")
        self.bounds = self.layout.bounds
        self.first, last = (int(bound) for bound in self.bounds[grid.row : grid.row + 2])
        if block.shape[0] != last - self.first:
            raise UsageError(f"block row {grid.row} must have {last - self.first} rows; it has {block.shape[0]}")
        self._squares: CSR | None = None
        self.local = LocalAdjacency(block, backend)  # for what concerns rows alone

    def with_entries(self, entries: Entries) -> CSR:
        """The block with the entries that `Adjacency.left_multiply` names; collective where the squares are not made yet."""
        if entries == "ones":
            return self.block.with_values(None)
        if entries == "weights":
            return self.block
        if self._squares is None:
            self._squares = LocalAdjacency(self.block, self.backend, self._longest_column()).squares
        return self._squares

    def _longest_column(self) -> int:
        """Of the whole of A. Collective in the process column: n counts are added up range by range, then one number each."""
        counts = np.bincount(self.block.indices, minlength=self.n)
        column = self.grid.column_comm
        own = sum(column.alltoall(np.split(counts, self.bounds[1:-1]), "topology"))
        return int(column.allgather(np.array([np.max(own, initial=0)]), "topology").max())
