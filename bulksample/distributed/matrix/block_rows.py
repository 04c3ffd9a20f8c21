"""The adjacency A in block rows on a process grid: the part that does not depend on the policy.

Rank (i, j) holds block row i of a layout, over all n columns. Every method is collective: all ranks call it in the same order,
each with its own mini-batches. A rank may pass none.
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
    """An `Adjacency` in block rows. Samplers use it like one that is stored in a single process.

    Parameters
    ----------
    grid : ProcessGrid
    block : CSR, shape (bounds[i + 1] - bounds[i], n)
        Block row i: the rows of its vertices, ascending. All members of process row i hold the same one.
    backend : Backend
    layout : Layout, optional
        Layout of p / c block rows; by default as even as possible.

    Raises
    ------
    UsageError
        If the layout or the number of rows of the block does not match the grid.
    """

    collective = True

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None) -> None:
        self.grid, self.backend, self.block = grid, backend, block
        self.n = block.shape[1]
        self.weighted = block.values is not None
        self.layout = layout = layout or Layout.even(self.n, grid.rows)
        if (layout.n, layout.blocks) != (self.n, grid.rows):
            raise UsageError(f"the layout must divide {self.n} rows into {grid.rows} blocks; got {layout.n} rows in {layout.blocks}")
        self.bounds = layout.bounds
        self.first, last = (int(bound) for bound in self.bounds[grid.row : grid.row + 2])
        if block.shape[0] != last - self.first:
            raise UsageError(f"block row {grid.row} must have {last - self.first} rows; it has {block.shape[0]}")
        self._squares: CSR | None = None
        self.local = LocalAdjacency(block, backend)  # for operations on own rows

    def at(self, place: str) -> None:
        self.grid.column_comm.at(place, f"rank {self.grid.comm.rank} samples {place}")

    def with_entries(self, entries: Entries) -> CSR:
        """Return the block with the given entries (see `Adjacency.left_multiply`). The first call with squares is collective."""
        if entries == "ones":
            return self.block.with_values(None)
        if entries == "weights":
            return self.block
        if self._squares is None:
            self._squares = LocalAdjacency(self.block, self.backend, self._longest_column()).squares
        return self._squares

    def _longest_column(self) -> int:
        """Return the largest column count of A; collective in the process column.

        Each rank sends 8 n bytes of counts to their owners, who add them up, then 8 bytes to each other rank.
        """
        counts = np.bincount(self.block.indices, minlength=self.n)
        column = self.grid.column_comm
        own = sum(column.alltoall(np.split(counts, self.bounds[1:-1]), "topology"))
        return int(column.allgather(np.array([np.max(own, initial=0)]), "topology").max())
