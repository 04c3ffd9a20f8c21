"""The few operations with which a transport moves bytes, the tally of the bytes sent, and the order of floating-point sums.

A new transport implements `Primitives`. `Comm` in base.py defines the collectives on top of them. Floats are added in the order of a
balanced binary tree, so that one rank can add the terms of several and leave every bit as it was:

    s = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ...        an odd last sum waits for the next level

The tree over p terms is the tree over p / 2**i sums of 2**i consecutive terms each, if p is a multiple of 2**i.
"""

from __future__ import annotations

import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from ...errors import UsageError
from ...pickled import Unpicklable

KINDS = ("topology", "features", "activations", "gradients", "model", "control")
MOST_ELEMENTS = 2**30  # of one message; several MPI libraries fail from 2**31 on
_COUNTING = threading.Lock()
Term = TypeVar("Term", bound=Any)
T = TypeVar("T")


class SentCount(NamedTuple):
    """Messages and bytes that one rank has sent."""

    messages: int
    bytes: int


class CudaAware(NamedTuple):
    """Answer of the MPI library: True if it accepts device memory, and the reason."""

    aware: bool
    reason: str


class PendingRows:
    """An all-to-all of rows under way. Call `wait` on each, and do not change the sent rows before it returns.

    Some MPI libraries move long messages only while the process is inside one of their calls. `counts`, int64 of shape (size,), holds the
    number of rows from each rank.
    """

    def __init__(self, rows: np.ndarray, counts: np.ndarray, arrive: Callable[[], None]) -> None:
        self._rows, self.counts, self._arrive = rows, counts, arrive

    def wait(self) -> np.ndarray:
        """Return the rows that all ranks sent to this one, in rank order. May be called again."""
        self._arrive()
        return self._rows


class Pending(Generic[T]):
    """Something under way. Call `wait` on each, which returns it; it may be called again."""

    def __init__(self, wait: Callable[[], T]) -> None:
        self.wait = wait


class Primitives(Unpicklable, ABC):
    """Operations that move bytes between `size` ranks, with the tally of this rank.

    Attributes
    ----------
    rank, size : int
    machine_of : int64, shape (size,)
        The machine of each rank; all 0 unless `machines_of_ranks` found several.
    tally : dict of kind to SentCount
        Messages and bytes that this rank has sent so far.
    between_machines : dict of kind to int
        How many of these bytes went to ranks of other machines.
    collectives : dict of kind to int
        How many collectives this rank has taken part in, among several ranks. Row counts that go ahead of an all-to-all are one of kind
        "control".
    pools : dict
        Communicators of the same ranks that are used again; see `matrix.grid`.
    """

    stays = "it connects this process with other ranks; make the graph or the loader that uses it on every rank"
    rank: int
    size: int

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.machine_of = np.zeros(size, np.int64)
        self.most_elements = MOST_ELEMENTS
        self.tally = dict.fromkeys(KINDS, SentCount(0, 0))
        self.pools: dict[str, Any] = {}
        self.between_machines, self.collectives = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        self._place = self._message = ""  # see `Comm.at`
        self._history = 0  # checksum of all collectives so far; equal on ranks that called the same ones

    @abstractmethod
    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        """Sum a one-dimensional array of at most `most_elements` entries over ranks, in place."""

    @abstractmethod
    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        """Return the bytes of all ranks in rank order: uint8, shape (sum of sizes,), at most `most_elements`."""

    @abstractmethod
    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        """Overwrite the bytes of all ranks with the root's, at most `most_elements`."""

    @abstractmethod
    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        """Send entry r of `words` to rank r; return the word received from each rank: int64, shape (size,)."""

    @abstractmethod
    def _start_alltoall(
        self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str
    ) -> Callable[[], None]:
        """Begin to send ``outgoing[r]`` bytes of `sent` to each rank r, one after another, and to fill `into` with ``incoming[r]`` from it.

        Return a function that waits for the end of all messages and may be called again. Messages have at most `most_elements` bytes.
        Lengths were agreed before, and are checked when the messages arrive. This rank's own part goes the same way.
        """

    @abstractmethod
    def _split(self, color: int, members: list[int]) -> Any:
        """Return a `Comm` of the ranks in `members`, in that order; this rank is one of them."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""

    @abstractmethod
    def close(self) -> None:
        """Leave together: return when every rank has called it or is leaving the interpreter."""

    def _check(self, array: np.ndarray, kind: str, writable: bool = False) -> None:
        self._check_kind(kind)
        if not array.flags.c_contiguous or (writable and not array.flags.writeable):
            wanted = "C-contiguous and writable" if writable else "C-contiguous"
            raise UsageError(f"the array must be {wanted}; got shape {array.shape} with strides {array.strides}")

    def _check_kind(self, kind: str) -> None:
        if kind not in KINDS:
            raise UsageError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")

    def _note(self, what: str) -> None:
        self._history = zlib.crc32(what.encode(), self._history)

    @property
    def elsewhere(self) -> np.ndarray:
        """True for the ranks of other machines: bool, shape (size,)."""
        return np.asarray(self.machine_of != self.machine_of[self.rank])

    def count(self, kind: str, messages: int, sent: int, between_machines: int = 0) -> None:
        """Add messages and bytes that were sent to the tally."""
        with _COUNTING:  # communicators of several threads can share a tally
            before = self.tally[kind]
            self.tally[kind] = SentCount(before.messages + messages, before.bytes + int(sent))
            self.between_machines[kind] += between_machines

    def count_to_each(self, kind: str, messages: int, each: int) -> None:
        """Count `each` bytes sent to each other rank."""
        self.count(kind, messages, (self.size - 1) * each, int(np.count_nonzero(self.elsewhere)) * each)

    def _count_collective(self, kind: str) -> None:
        """Count a collective in which this rank takes part; a rank alone has none."""
        if self.size > 1:
            with _COUNTING:
                self.collectives[kind] += 1


def tree_sum(terms: Iterable[Term]) -> Term:
    """Add arrays or tensors of one shape, at least one, in the order of a balanced binary tree; the terms stay as they are."""
    sums = TreeSum()
    for term in terms:
        sums.add(term)
    return cast(Term, sums.total())


class TreeSum:
    """The same sum of terms that come one after another, of which it holds at most log2: the sum of 2**i terms waits for the next 2**i."""

    def __init__(self) -> None:
        self._sums: list[tuple[int, Any]] = []  # the number of terms, and their sum; numbers descend

    def add(self, term: Any) -> None:
        """Add the next term."""
        size = 1
        while self._sums and self._sums[-1][0] == size:
            term, size = self._sums.pop()[1] + term, 2 * size
        self._sums.append((size, term))

    def total(self) -> Any:
        """Return the sum of all terms so far, at least one."""
        _, last = self._sums[-1]
        for _, earlier in reversed(self._sums[:-1]):
            last = earlier + last
        return last
