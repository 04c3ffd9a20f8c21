"""The process grid of the 1.5D algorithms: p ranks as p/c process rows of c members.

Rank i c + j stands at (i, j). Block row i of every distributed matrix lives on all c members of process row i; each
process column holds every block row once. Column j works on a contiguous share of the q = p/c block columns: the
published rule gives each column q/c of them and asks that c**2 divide p; here the shares may differ by one, so every
c that divides p is legal, and a column may have no share at all.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
"""

from __future__ import annotations

from ...errors import UsageError
from ..comm.base import Comm


class ProcessGrid:
    """p/c process rows x c process columns.

    Parameters
    ----------
    comm : Comm
        All p ranks; collective.
    replication : int
        c.

    Raises
    ------
    UsageError
        If c does not divide p; on every rank, before anything moves.
    """

    def __init__(self, comm: Comm, replication: int = 1) -> None:
        fits = [c for c in range(1, comm.size + 1) if comm.size % c == 0]
        if replication not in fits:
            raise UsageError(
                f"replication must divide the number of ranks: got c = {replication} with p = {comm.size}; "
                f"c in {{{', '.join(map(str, fits))}}} would fit"
            )
        self.comm, self.replication = comm, replication
        self.rows = comm.size // replication
        self.row, self.column = divmod(comm.rank, replication)
        self.row_comm = comm.split(self.row, self.column)
        self.column_comm = comm.split(self.column, self.row)

    def block_columns(self, column: int) -> range:
        """The block columns that a process column works on; the stages of the staged product."""
        each, more = divmod(self.rows, self.replication)
        first = column * each + min(column, more)
        return range(first, first + each + (column < more))
