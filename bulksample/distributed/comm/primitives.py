"""What a communicator stands on: the few ways in which bytes move, and the tally of what was sent.

`Primitives` is what a new transport implements; `Comm` in base.py says what the collectives mean.
"""

from __future__ import annotations

import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...errors import UsageError

KINDS = ("topology", "features", "activations", "gradients", "model", "control")
MOST_ELEMENTS = 2**30  # in one message; several MPI libraries fail from 2**31 on
_COUNTING = threading.Lock()


class SentCount(NamedTuple):
    """What one rank sent."""

    messages: int
    bytes: int


class PendingAlltoall:
    """What an all-to-all that is under way will bring.

    Its parts may not be changed before `wait` has returned, and every arrival is waited for. Some MPI libraries move
    long messages only while the process is inside one of their calls: `done` is such a call.
    """

    def __init__(self, parts: list[np.ndarray], flight: TransferHandle) -> None:
        self._parts, self._flight = parts, flight

    def done(self) -> bool:
        """Whether everything has been sent and has come; does not wait."""
        return self._flight.done()

    def wait(self) -> list[np.ndarray]:
        """What each rank sent to this one, in rank order: views of one buffer. May be called again."""
        self._flight.wait()
        return self._parts


class TransferHandle(NamedTuple):
    """How to ask after, and how to wait for, the bytes of an all-to-all."""

    done: Callable[[], bool]
    wait: Callable[[], None]


COMPLETED = TransferHandle(lambda: True, lambda: None)


class Primitives(ABC):
    """How bytes move between `size` ranks, and what this one has sent.

    Attributes
    ----------
    rank, size : int
    tally : dict of kind to SentCount
        What this rank has sent so far.
    """

    rank: int
    size: int

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.most_elements = MOST_ELEMENTS
        self.tally = dict.fromkeys(KINDS, SentCount(0, 0))
        self._history = 0  # of the collectives so far, alike on all ranks that took part in the same ones

    @abstractmethod
    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        """Sum a one-dimensional array of at most `most_elements` entries over ranks, in place."""

    @abstractmethod
    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        """Every rank's bytes one after the other: uint8, shape (sum of sizes,), at most `most_elements` of them."""

    @abstractmethod
    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        """Overwrite the bytes of all ranks with those of the root; at most `most_elements` of them."""

    @abstractmethod
    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        """The word that each rank has for this one: int64, shape (size,); entry r of `words` goes to rank r."""

    @abstractmethod
    def _start_alltoall(self, parts: list[np.ndarray], into: list[np.ndarray], kind: str) -> TransferHandle:
        """Begin to fill ``into[r]`` with what rank r sends here, for all other ranks r; bytes, in messages of at most
        `most_elements`. Lengths are agreed, and checked when the messages arrive."""

    @abstractmethod
    def _split(self, color: int, members: list[int]) -> Any:
        """A `Comm` of some ranks, of which this is one, in the order of `members`."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have come here."""

    @abstractmethod
    def close(self) -> None:
        """Leave together: return when every rank has called it, or is leaving the interpreter."""

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

    def count(self, kind: str, messages: int, sent: int) -> None:
        """Add to the tally what travelled beside the collectives."""
        self._count(kind, messages, sent)

    def _count(self, kind: str, messages: int, sent: int) -> None:
        with _COUNTING:  # communicators of several threads may share a tally
            before = self.tally[kind]
            self.tally[kind] = SentCount(before.messages + messages, before.bytes + int(sent))
