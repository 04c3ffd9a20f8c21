"""Communicators that loaders use one after another, since an MPI library has few of them and gives none back by itself."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from ..comm.base import Comm

T = TypeVar("T")
U = TypeVar("U")

_MANY = 16  # made: look for garbage in reference cycles before making more


class CommPool(Generic[T]):
    """Lends communicators, or what is made of them, and takes them back from users that are no more.

    Parameters
    ----------
    comm : Comm
        The ranks that lend together.
    make : callable
        Makes communicators; collective.

    Notes
    -----
    Garbage is collected at other times on other ranks. So each rank notes what is free for itself, and ranks compare their notes when
    they lend, which is a collective call anyway: all take the first communicators that are free on every rank, or make new ones.
    """

    def __init__(self, comm: Comm, make: Callable[[], T]) -> None:
        self._comm, self._make = comm, make
        self._made: list[T] = []
        self._free: set[int] = set()

    def lend(self, use: Callable[[T], U]) -> U:
        """Return ``use(communicators)``; they are free again once that object is garbage. Collective."""
        number = self._first_free()
        if number == len(self._made) >= _MANY:
            gc.collect()
            number = self._first_free()
        if number == len(self._made):
            self._made.append(self._make())
        self._free.discard(number)
        user = use(self._made[number])
        weakref.finalize(user, self._free.add, number).atexit = False
        return user

    def _first_free(self) -> int:
        """Return the number of the first communicators that are free on every rank, or of the next to be made."""
        everyone = self._comm.gather_control(sorted(self._free))
        return min(set(everyone[0]).intersection(*everyone), default=len(self._made))
