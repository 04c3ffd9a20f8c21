"""The contract of a communicator: what each collective means, what it checks, and how its bytes are counted.

`MpiComm` (processes), `ThreadComm` (ranks as threads, for tests) and `SerialComm` (alone) differ only in how bytes
move; arguments, chunking and the tally are settled here, once.

Every collective is called by all ranks in the same order. Bytes are counted where they are sent, by what a
bandwidth-optimal algorithm sends, so that the sum over ranks counts each message once and does not depend on the
MPI library. With p ranks, w bytes in an array, w_r bytes held by rank r:

=============== ========================================= =========================== ==================
collective      rank r counts                             sum over ranks              messages of rank r
=============== ========================================= =========================== ==================
allreduce       (w - w_r) + (p - 1) w_r                   2 (p - 1) w                 2 (p - 1)
allgather(rows) (p - 1) w_r                               (p - 1) sum_r w_r           p - 1
broadcast       (p - 1) w at the root, 0 elsewhere        (p - 1) w                   p - 1 at the root
barrier         0                                         0                           0
=============== ========================================= =========================== ==================

The all-reduce is a reduce-scatter followed by an all-gather, w_r being rank r's share of the array.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from ..errors import PeerLost, UsageError

KINDS = ("topology", "features", "activations", "gradients", "model", "control")
MOST_ELEMENTS = 2**30  # in one message; several MPI libraries fail from 2**31 on


class Traffic(NamedTuple):
    """What one rank sent."""

    messages: int
    bytes: int


class Comm(ABC):
    """Typed collectives over `size` ranks.

    Attributes
    ----------
    rank, size : int
    tally : dict of kind to Traffic
        What this rank has sent so far.
    """

    rank: int
    size: int

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.most_elements = MOST_ELEMENTS
        self.tally = dict.fromkeys(KINDS, Traffic(0, 0))
        self._history = 0  # of the collectives so far, alike on all ranks that took part in the same ones

    # ---- what moves: four primitives, and a way out

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
    def barrier(self) -> None:
        """Return when all ranks have come here."""

    @abstractmethod
    def close(self) -> None:
        """Leave together: return when every rank has called it, or is leaving the interpreter."""

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:  # after an exception the others may never come; the exception hook ends them
            self.close()

    # ---- what is meant

    def allreduce(self, array: np.ndarray, kind: str) -> np.ndarray:
        """Sum an array over ranks, in place.

        Parameters
        ----------
        array : int32, int64, uint64, float32 or float64, C-contiguous and writable, of the same shape on every rank
        kind : one of KINDS

        Returns
        -------
        The array itself. All ranks hold the same bits, and the same inputs on the same number of ranks give them again.

        Raises
        ------
        UsageError
            If the array or the kind does not fit.
        """
        self._check(array, kind, writable=True)
        if array.dtype not in (np.int32, np.int64, np.uint64, np.float32, np.float64):
            raise UsageError(f"allreduce adds int32, int64, uint64, float32 or float64; got {array.dtype}")
        self._note(f"allreduce {kind} {array.dtype} {array.shape}")
        flat = array.reshape(-1)
        share = len(range(self.rank, len(flat), self.size)) * array.itemsize
        self._count(kind, 2 * (self.size - 1), array.nbytes - share + (self.size - 1) * share)
        if self.size > 1:
            for first in range(0, len(flat), self.most_elements):
                self._allreduce(flat[first : first + self.most_elements], kind)
        return array

    def allgather(self, array: np.ndarray, kind: str) -> np.ndarray:
        """The arrays of all ranks, stacked: shape (size, *array.shape); all ranks bring the same shape and dtype."""
        array = np.ascontiguousarray(array)
        rows = self.allgather_rows(array.reshape(1, -1), np.ones(self.size, np.int64), kind)
        return rows.reshape(self.size, *array.shape)

    def allgather_rows(self, rows: np.ndarray, counts: np.ndarray, kind: str) -> np.ndarray:
        """The rows of all ranks, one after the other.

        Parameters
        ----------
        rows : shape (counts[rank], ...), any dtype, C-contiguous
        counts : int64, shape (size,)
            How many rows each rank brings, agreed before; some may be 0.
        kind : one of KINDS

        Returns
        -------
        Shape (sum of counts, ...), on every rank.

        Raises
        ------
        UsageError
            If this rank does not bring what `counts` says.
        """
        self._check(rows, kind)
        counts = np.asarray(counts, np.int64)
        if counts.shape != (self.size,) or counts.min(initial=0) < 0 or counts[self.rank] != len(rows):
            raise UsageError(f"counts must be {self.size} numbers with {len(rows)} at rank {self.rank}; got {counts.tolist()}")
        self._note(f"allgather {kind} {rows.dtype} {rows.shape[1:]} {counts.tolist()}")
        self._count(kind, self.size - 1, (self.size - 1) * rows.nbytes)
        row_bytes = rows.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
        sizes = counts * row_bytes
        out = np.empty((int(counts.sum()), *rows.shape[1:]), rows.dtype)
        _into(_bytes_of(out), self._gather_in_rounds(_bytes_of(rows), sizes, kind), sizes)
        return out

    def broadcast(self, array: np.ndarray, kind: str, root: int = 0) -> np.ndarray:
        """Overwrite an array of the same shape and dtype on all ranks with that of the root; returns the array itself."""
        self._check(array, kind, writable=True)
        if not 0 <= root < self.size:
            raise UsageError(f"root must be a rank, 0 to {self.size - 1}; got {root}")
        self._note(f"broadcast {kind} {array.dtype} {array.shape} {root}")
        if self.rank == root:
            self._count(kind, self.size - 1, (self.size - 1) * array.nbytes)
        if self.size > 1:
            flat = _bytes_of(array)
            for first in range(0, len(flat), self.most_elements):
                self._broadcast(flat[first : first + self.most_elements], root, kind)
        return array

    def gather_control(self, thing: Any) -> list[Any]:
        """A small object of each rank, in rank order, on every rank.

        Objects are what JSON can say; they travel as JSON text, lengths first, so nothing is ever unpickled.

        Raises
        ------
        PeerLost
            If the ranks have not taken part in the same collectives before. An MPI library may match two different
            ones and hand out wrong numbers in silence; here it comes to light.
        """
        text = np.frombuffer(json.dumps(thing).encode(), np.uint8)
        histories, counts = self.allgather(np.array([self._history, len(text)]), "control").T
        differing = np.flatnonzero(histories != histories[self.rank])
        if len(differing):
            raise PeerLost(f"rank {self.rank} and rank {differing[0]} have not taken part in the same collectives")
        joined = self.allgather_rows(text, counts, "control").tobytes()
        ends = np.cumsum(counts)
        return [json.loads(joined[end - count : end]) for count, end in zip(counts, ends, strict=True)]

    # ---- helpers

    def _gather_in_rounds(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pieces small enough for one message each: (bytes received, how many of them from each rank)."""
        if self.size == 1:
            return [(part, sizes)]
        limit = max(1, self.most_elements // self.size)
        rounds = []
        for first in range(0, int(sizes.max(initial=0)), limit):
            now = np.clip(sizes - first, 0, limit)
            rounds.append((self._allgather(part[first : first + int(now[self.rank])], now, kind), now))
        return rounds

    def _check(self, array: np.ndarray, kind: str, writable: bool = False) -> None:
        if kind not in KINDS:
            raise UsageError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
        if not array.flags.c_contiguous or (writable and not array.flags.writeable):
            wanted = "C-contiguous and writable" if writable else "C-contiguous"
            raise UsageError(f"the array must be {wanted}; got shape {array.shape} with strides {array.strides}")

    def _note(self, what: str) -> None:
        self._history = zlib.crc32(what.encode(), self._history)

    def _count(self, kind: str, messages: int, sent: int) -> None:
        before = self.tally[kind]
        self.tally[kind] = Traffic(before.messages + messages, before.bytes + int(sent))


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array as uint8 of one dimension; a view."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def _into(out: np.ndarray, rounds: list[tuple[np.ndarray, np.ndarray]], sizes: np.ndarray) -> None:
    """Put the pieces of each rank one after the other: those of rank r start at sum of sizes[:r]."""
    at = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for received, now in rounds:
        if len(received) == len(out):
            out[:] = received
            return
        starts = np.cumsum(now) - now
        for r in np.flatnonzero(now):
            out[at[r] : at[r] + now[r]] = received[starts[r] : starts[r] + now[r]]
        at = at + now
