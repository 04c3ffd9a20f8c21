"""The adjacency A in block rows on a process grid: the part that does not depend on the policy, and what each policy sends.

Rank (i, j) holds block row i of a layout, over all n columns. Every method is collective: all ranks call it in the same order,
each with its own mini-batches. A rank may pass none.

Let a rank of a p/c x c grid sample k mini-batches with R rows in all. E is the number of entries drawn or kept from those rows. N_m
is the number of entries of P = Q A in the columns of block m. N^j is that of Q^j A, where Q^j is the part of Q whose vertices process
column j works on. U is the number of distinct rows that the rank requests, and D that of their entries. U' and D' are the same for
the requests of its whole process row in the block columns of the stages. v is 8 if the matrix holds values, else 0. Bytes sent:

======================== ============== ==================================== ==========================================
operation                among          by the requesting rank               back to it
======================== ============== ==================================== ==========================================
owner: sample_rows       process column 4 + 8 k to owners, 4 R (8 R named)   4 s R in all, or 4 E where not padded
owner: restrict          process column 4 + 12 k + 4 C to owners, 4 R        4 R + 4 E in all (4 R + 12 E with shares)
owner: left_multiply     process column 4 + 8 k + 4 R to each                4 k + 12 N_m from each m
owner: sample_layer      process column 4 + 8 k + 4 R to each                4 k + 12 min(N_m, s + 1) from each m
rows: sample_rows,       process row    4 U in all                           4 U + (4 + v) D in all
restrict                 process column 4 U' in all                          4 U', then (4 + v) D' in each stage
rows: left_multiply,     process row    4 + 8 k to those named, 4 R in all   4 k + 12 N^j from each j
sample_layer             process column 4 U' in all                          4 U', then (4 + v) D' in each stage
======================== ============== ==================================== ==========================================

C is the number of selected columns; the minimum is taken in each mini-batch. A rank sends nothing to itself, and no request without a
row; owners are the ranks that own one. `reply_slots.is_padded` says which replies of `sample_rows` are padded.
With `rows` the members of the process row are named whose process column works on a row. `rows-oblivious` sends no requests in the process
column; its U', D' are whole block rows. Each direction is one message to each rank; in the process column lengths and entries of rows are
two. Every all-to-all adds g - 1 messages and 8 (g - 1) bytes of kind control among g ranks (see `Comm`), but those of replies of `owner:
sample_rows`, of entries in the stages, and of the lengths of rows that were requested.
"""

from __future__ import annotations

import numpy as np

from ...adjacency import Adjacency, Entries
from ...backends.base import Backend
from ...errors import UsageError
from ...local_adjacency import LocalAdjacency
from ...sparse import CSR
from ..comm.base import Comm
from .grid import ProcessGrid
from .layout import Layout


class InBlockRows(Adjacency):
    """An adjacency of any graph in block rows on a process grid; its methods are collective."""

    collective = True
    grid: ProcessGrid

    def at(self, place: str) -> None:
        self.grid.column_comm.at(place, f"rank {self.grid.comm.rank} samples {place}")


class BlockRowAdjacency(InBlockRows):
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

    def with_entries(self, entries: Entries) -> CSR:
        """Return the block with the given entries (see `Adjacency.left_multiply`).

        The first call with squares is collective: see `count_references`; then each rank sends 8 bytes to each other rank.
        """
        if entries == "ones":
            return self.block.with_values(None)
        if entries == "weights":
            return self.block
        if self._squares is None:
            counts = count_references(self.grid.column_comm, self.layout, self.block.indices)
            longest = int(self.grid.column_comm.allgather(np.array([np.max(counts, initial=0)]), "topology").max())
            self._squares = LocalAdjacency(self.block, self.backend, longest).squares
        return self._squares


def count_references(column: Comm, layout: Layout, vertices: np.ndarray) -> np.ndarray:
    """Count how often each vertex of this rank's block row occurs in `vertices` on all ranks of a process column: int64, shape (m,).

    Collective in the process column: each rank sends 8 n bytes of counts to their owners.
    """
    counts = np.bincount(layout.places(vertices), minlength=layout.n)
    return np.asarray(np.sum(column.alltoall(np.split(counts, layout.bounds[1:-1]), "topology"), axis=0))
