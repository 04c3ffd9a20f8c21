"""The process grid of the 1.5D algorithms: p ranks as p/c process rows of c members.

All c members of process row i hold block row i of every distributed matrix, so each process column holds every block row once.
Column j works on a contiguous share of the q = p/c block columns. The published rule gives each column q/c of them, which requires
that c**2 divides p. Here shares may differ by one, so every c that divides p is allowed, and a column may have no share.

Ranks are numbered machine by machine. In the order ``rows`` the c members of a process row are consecutive: rank i c + j is at (i, j), as
published. In the order ``columns`` the q members of a process column are: rank j q + i. Most bytes travel inside process columns (owners
of rows, features), and between machines of g ranks goes the share

    rows      1 - max(g/c, 1) / q            columns      max(0, 1 - g/q)

of what a rank requests there. Products of the policy ``rows`` are added inside process rows. No order changes a mini-batch.

An MPI library has few communicators and gives none back by itself. To free one is collective, so no finalizer can do it. Instead graphs and
loaders use those of others that are no more: `CommPool`.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Generic, Literal, TypeVar, cast

import numpy as np

from ...errors import UsageError
from ..comm.base import Comm
from ..comm.machines import uneven

ORDERS = ("auto", "rows", "columns")
Order = Literal["rows", "columns"]
_MANY = 16  # made: look for garbage in reference cycles before making more
_DUPLICATES = 8  # of gloo, each has a socket to every rank
T = TypeVar("T")
U = TypeVar("U")


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
        check_replication(replication, comm.size)
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


def check_replication(c: int, p: int) -> None:
    """Raise `UsageError` if c does not divide p."""
    if c not in (fits := divisors(p)):
        use = f"use c in {{{', '.join(map(str, fits))}}}"
        raise UsageError(f"replication must divide the number of ranks: got c = {c} with p = {p}; {use}")


def divisors(p: int) -> list[int]:
    """Return the divisors of p, ascending: every replication that p ranks can have."""
    return [c for c in range(1, p + 1) if p % c == 0]


def position_in_grid(comm: Comm, replication: int, order: Order) -> tuple[int, int]:
    """Return the process row and the process column of this rank; needs no communication."""
    at = comm.rank
    if 1 < replication < comm.size and not uneven(comm):  # ranks are counted machine by machine
        at = int(np.flatnonzero(np.argsort(comm.machine_of, kind="stable") == comm.rank)[0])
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


class CommPool(Generic[T]):
    """Lends communicators of the ranks of `comm`, or objects made of them, and takes them back when their users have been deleted.

    ``make()`` makes one more; collective. After the first `most`, further users have `spare` together. Garbage is collected at other times
    on other ranks. So each rank notes what is free for itself, and ranks compare their notes when they lend, which is a collective call
    anyway: all take the first communicators that are free on every rank, or make new ones.
    """

    def __init__(self, comm: Comm, make: Callable[[], T], most: int | None = None, spare: T | None = None) -> None:
        self._comm, self._make, self._most, self._spare = comm, make, most, spare
        self._made: list[T] = []
        self._free: set[int] = set()
        self._many = _MANY if most is None else most

    def lend(self, use: Callable[[T], U]) -> U:
        """Return ``use(communicators)``; they are free again once that object is garbage. Collective."""
        number = self._first_free()
        if number == len(self._made) >= self._many:
            gc.collect()
            number = self._first_free()
            if number == len(self._made):  # all are in use: look again when they have doubled
                self._many = 2 * number
        if number == self._most:
            return use(cast(T, self._spare))
        if number == len(self._made):
            self._made.append(self._make())
        self._free.discard(number)
        user = use(self._made[number])
        weakref.finalize(user, self._free.add, number).atexit = False
        return user

    def lease(self) -> Lease[T]:
        """Return the communicators in an object, which is their user. Collective."""
        return self.lend(Lease)

    def _first_free(self) -> int:
        """Return the number of the first communicators that are free on every rank, or of the next to be made."""
        everyone = self._comm.gather_control(sorted(self._free))
        return min(set(everyone[0]).intersection(*everyone), default=len(self._made))


class Lease(Generic[T]):
    """Keeps communicators from other users for as long as it is there."""

    def __init__(self, lent: T) -> None:
        self.lent = lent


def duplicates(comm: Comm) -> CommPool[Comm]:
    """Return the pool of communicators of the same ranks, for loaders that threads of a rank may use at once.

    Eight loaders have communicators of their own; more at a time use `comm` itself.
    """
    made: CommPool[Comm] = comm.pools.setdefault("duplicates", CommPool(comm, comm.duplicate, _DUPLICATES, comm))
    return made


def grids(comm: Comm, replication: int, order: Order, own_tally: bool) -> CommPool[ProcessGrid]:
    """Return the pool of process grids of a communicator, which all graphs share that its ranks open; see `ProcessGrid`.

    With `own_tally` each grid has a tally of its own, for a thread that samples; otherwise it counts into that of `comm`.
    """
    name = f"grids of replication {replication}, {order}, {'own' if own_tally else 'common'} tally"

    def make() -> ProcessGrid:
        return ProcessGrid(comm.duplicate() if own_tally else comm, replication, order)

    made: CommPool[ProcessGrid] = comm.pools.setdefault(name, CommPool(comm, make))
    return made
