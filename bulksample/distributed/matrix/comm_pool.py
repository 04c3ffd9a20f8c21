"""Communicators that graphs and loaders use one after another, since an MPI library has few of them and gives none back by itself.

To free one is collective, so no finalizer can do it. Instead the ranks use those of graphs and loaders that are no more.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from ..comm.base import Comm
from .grid import Order, ProcessGrid

T = TypeVar("T")
U = TypeVar("U")

_MANY = 16  # made: look for garbage in reference cycles before making more
_DUPLICATES = 8  # of gloo, each has a socket to every rank


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
