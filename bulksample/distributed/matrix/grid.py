"""The process grid of the 1.5D algorithms: p ranks as p/c process rows of c members.

Rank i c + j is at (i, j). All c members of process row i hold block row i of every distributed matrix, so each process column
holds every block row once. Column j works on a contiguous share of the q = p/c block columns. The published rule gives each
column q/c of them, which requires that c**2 divides p. Here shares may differ by one, so every c that divides p is allowed, and
a column may have no share.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
"""

from __future__ import annotations

from ...errors import UsageError
from ..comm.base import Comm


class ProcessGrid:
    """A grid of p/c process rows x c process columns, with a communicator for each direction.

    Parameters
    ----------
    comm : Comm
        All p ranks. Making a grid is collective: two splits.
    replication : int
        c, the number of ranks that hold each block row.

    Raises
    ------
    UsageError
        On every rank, before any communication, if c does not divide p.
    """

    def __init__(self, comm: Comm, replication: int = 1) -> None:
        fits = [c for c in range(1, comm.size + 1) if comm.size % c == 0]
        if replication not in fits:
            raise UsageError(
                f"replication must divide the number of ranks: got c = {replication} with p = {comm.size}; "
                f"use c in {{{', '.join(map(str, fits))}}}"
            )
        self.comm, self.replication = comm, replication
        self.rows = comm.size // replication
        self.row, self.column = divmod(comm.rank, replication)
        self.row_comm = comm.split(self.row, self.column)
        self.column_comm = comm.split(self.column, self.row)

    def block_columns(self, column: int) -> range:
        """Return the block columns that a process column works on, one for each stage of the 1.5D product."""
        each, more = divmod(self.rows, self.replication)
        first = column * each + min(column, more)
        return range(first, first + each + (column < more))
