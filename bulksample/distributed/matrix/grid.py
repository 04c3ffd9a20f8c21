"""The process grid of the 1.5D algorithms: p ranks as p/c process rows of c members.

All c members of process row i hold block row i of every distributed matrix, so each process column holds every block row once.
Column j works on a contiguous share of the q = p/c block columns. The published rule gives each column q/c of them, which requires
that c**2 divides p. Here shares may differ by one, so every c that divides p is allowed, and a column may have no share.

Ranks are numbered machine by machine. In the order ``rows`` the c members of a process row are consecutive: rank i c + j is at (i, j), as
published. In the order ``columns`` the q members of a process column are: rank j q + i. Most bytes travel inside process columns (owners
of rows, features), and between machines of g ranks goes the share

    rows      1 - max(g/c, 1) / q            columns      max(0, 1 - g/q)

of what a rank requests there. Products of the policy ``rows`` are added inside process rows. No order changes a mini-batch.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...errors import UsageError
from ..comm.base import Comm
from ..comm.machines import uneven

ORDERS = ("auto", "rows", "columns")
Order = Literal["rows", "columns"]


class ProcessGrid:
    """A grid of p/c process rows x c process columns, with a communicator for each direction.

    Parameters
    ----------
    comm : Comm
        All p ranks. Making a grid is collective: two splits.
    replication : int
        c, the number of ranks that hold each block row.
    order : {"rows", "columns"}
        The direction in which consecutive ranks lie. It has no effect with c = 1 and c = p.

    Raises
    ------
    UsageError
        On every rank, before any communication, if c does not divide p.
    """

    def __init__(self, comm: Comm, replication: int = 1, order: Order = "rows") -> None:
        fits = [c for c in range(1, comm.size + 1) if comm.size % c == 0]
        if replication not in fits:
            raise UsageError(
                f"replication must divide the number of ranks: got c = {replication} with p = {comm.size}; "
                f"use c in {{{', '.join(map(str, fits))}}}"
            )
        self.comm, self.replication, self.order = comm, replication, order
        self.rows = comm.size // replication
        self.row, self.column = position_in_grid(comm, replication, order)
        self.row_comm = comm.split(self.row, self.column)
        self.column_comm = comm.split(self.column, self.row)

    def block_columns(self, column: int) -> range:
        """Return the block columns that a process column works on, one for each stage of the 1.5D product."""
        each, more = divmod(self.rows, self.replication)
        first = column * each + min(column, more)
        return range(first, first + each + (column < more))


def position_in_grid(comm: Comm, replication: int, order: Order) -> tuple[int, int]:
    """Return the process row and the process column of this rank; needs no communication."""
    at = _position(comm) if 1 < replication < comm.size else comm.rank
    if order == "rows" or replication == 1:
        return divmod(at, replication)
    column, row = divmod(at, comm.size // replication)
    return row, column


def choose_order(comm: Comm, asked: str, adds_in_rows: bool = False) -> Order:
    """Return the order of a grid that keeps most bytes inside machines; the same on every rank, without communication.

    Parameters
    ----------
    asked : {"auto", "rows", "columns"}
    adds_in_rows : bool
        True if ranks of a process row add their products, as the policy ``rows`` does; ``auto`` then keeps rows on a machine.

    Raises
    ------
    UsageError
        On every rank, if ``columns`` was asked for and the machines do not have equally many ranks.
    """
    if asked not in ORDERS:
        raise UsageError(f"grid_order must be one of {', '.join(ORDERS)}; got {asked!r}")
    different = uneven(comm)
    if asked == "columns" and different:
        raise UsageError(f"grid_order columns needs machines of equally many ranks; they have {different}: use grid_order auto or rows")
    if asked == "auto":
        return "rows" if adds_in_rows or different or not comm.machine_of.any() else "columns"
    return "rows" if asked == "rows" else "columns"


def _position(comm: Comm) -> int:
    """Return the number of this rank when ranks are counted machine by machine; its rank if machines have unequal numbers of ranks."""
    return comm.rank if uneven(comm) else int(np.flatnonzero(np.argsort(comm.machine_of, kind="stable") == comm.rank)[0])
