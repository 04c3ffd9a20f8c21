"""The contract of a communicator: what each collective means, what it checks, and how its bytes are counted.

`MpiComm` and `TorchComm` (processes), `ThreadComm` (ranks as threads, for tests) and `SerialComm` (alone) differ only in how
bytes move; arguments, chunking and the tally are settled here, once.

Every collective is called by all ranks in the same order. Bytes are counted where they are sent, by what a
bandwidth-optimal algorithm sends, so that the sum over ranks counts each message once and does not depend on the
library. With p ranks, w bytes in an array, w_r bytes held by rank r:

=============== ========================================= =========================== ==================
collective      rank r counts                             sum over ranks              messages of rank r
=============== ========================================= =========================== ==================
allreduce       (w - w_r) + (p - 1) w_r                   2 (p - 1) w                 2 (p - 1)
allgather(rows) (p - 1) w_r                               (p - 1) sum_r w_r           p - 1
broadcast       (p - 1) w at the root, 0 elsewhere        (p - 1) w                   p - 1 at the root
alltoall        bytes of its parts for others             sum over ranks              nonempty parts
  + control     8 (p - 1)                                 8 p (p - 1)                 p - 1
split (control) 16 (p - 1)                                16 p (p - 1)                p - 1
barrier         0                                         0                           0
=============== ========================================= =========================== ==================

The all-reduce is a reduce-scatter followed by an all-gather, w_r being rank r's share of the array. A communicator made
by `split` counts into the tally of the one it was made from, so that a process has one.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import PeerLost, UsageError
from .cuda_aware import CudaAware
from .primitives import COMPLETED, KINDS, MOST_ELEMENTS, PendingAlltoall, Primitives, SentCount, TransferHandle

__all__ = ["COMPLETED", "KINDS", "MOST_ELEMENTS", "Comm", "PendingAlltoall", "Primitives", "SentCount", "TransferHandle"]

_COUNT_BITS = 40  # of the word that goes ahead of a part; the other 23 say what the part is made of


class Comm(Primitives):
    """Typed collectives over `size` ranks."""

    @property
    def timeout(self) -> float:
        """Seconds that a wait may take."""
        return 300.0

    @property
    def cuda_aware(self) -> CudaAware:
        """Whether what moves the bytes of these ranks reads and writes device memory."""
        return CudaAware(False, "the ranks do not meet by MPI")

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:  # after an exception the others may never come; the exception hook ends them
            self.close()

    def allreduce(self, array: np.ndarray, kind: str) -> np.ndarray:
        """Sum an array over ranks, in place.

        Parameters
        ----------
        array : int32, int64, uint64, float32 or float64, C-contiguous and writable, of the same shape on every rank
        kind : one of KINDS

        Returns
        -------
        The array itself. Terms are added in rank order: all ranks hold the same bits, and the same inputs on the same number of
        ranks give them again, under every launcher and MPI library.

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
        """The arrays of all ranks, stacked: shape ``(size, *array.shape)``; all ranks bring the same shape and dtype."""
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
        shape = (int(counts.sum()), *rows.shape[1:])
        if sizes.max(initial=0) <= self._round_bytes():  # in one round: what came is the result
            return self._gathered(_bytes_of(rows), sizes, kind).view(rows.dtype).reshape(shape)
        out = np.empty(shape, rows.dtype)
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

    def alltoall(self, parts: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
        """Send a part to every rank and receive one from each.

        Parameters
        ----------
        parts : `size` arrays
            ``parts[r]`` goes to rank r. All parts on all ranks have the same dtype and the same shape but for the first
            axis, which may be 0 long.
        kind : one of KINDS

        Returns
        -------
        What each rank sent to this one, in rank order; views of one buffer.

        Raises
        ------
        UsageError
            On all ranks, if the ranks do not bring the same dtype, shape and kind; nothing has moved then. On this
            rank, if its own parts do not fit together.

        Notes
        -----
        How many rows come is agreed first, 8 bytes of kind "control" to each other rank, and checked afterwards.
        """
        return self.start_alltoall(parts, kind).wait()

    def start_alltoall(self, parts: Sequence[np.ndarray], kind: str) -> PendingAlltoall:
        """Begin `alltoall`; its result is had from ``.wait()`` of what is returned. Lengths are agreed in here."""
        held = self._checked_parts(parts, kind)
        dtype, shape = held[0].dtype, held[0].shape[1:]
        row_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        counts = self.exchange_counts([len(part) for part in held], kind, f"{dtype.str} {shape}", row_bytes)
        out = np.empty((int(counts.sum()), *shape), dtype)
        into = np.split(out, np.cumsum(counts)[:-1])
        into[self.rank][:] = held[self.rank]
        if self.size == 1:
            return PendingAlltoall(into, COMPLETED)
        return PendingAlltoall(into, self._start_alltoall([_bytes_of(part) for part in held], [_bytes_of(part) for part in into], kind))

    def exchange_counts(self, rows: Sequence[int], kind: str, made_of: str, row_bytes: int) -> np.ndarray:
        """What goes ahead of an all-to-all, and all that is counted of it; for parts that travel in another way, this alone.

        Parameters
        ----------
        rows : `size` integers
            How many go to each rank.
        kind : one of KINDS
        made_of : str
            Dtype and shape of a row, alike on all ranks.
        row_bytes : int

        Returns
        -------
        How many rows each rank has for this one: int64, shape (size,).
        """
        self._check_kind(kind)
        self._note(f"alltoall {kind} {made_of}")
        counts = self._agree_on_counts(list(rows), f"{kind} {made_of}")
        away = [count * row_bytes for r, count in enumerate(rows) if r != self.rank and count * row_bytes]
        self._count(kind, len(away), sum(away))
        return counts

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        """Wait for what travels between these ranks beside the collectives, with the deadline of a collective.

        Raises
        ------
        PeerLost
            If it is not done in time, or `done` fails; ranks that are processes end then.
        """
        until = time.monotonic() + self.timeout
        while time.monotonic() < until:
            try:
                if done():
                    return
            except RuntimeError as error:  # of whatever carries it
                raise PeerLost(f"rank {self.rank}: {what} failed: {error}") from error
            time.sleep(1e-5)
        raise PeerLost(f"rank {self.rank} waited {self.timeout:g} s for {what}")

    def split(self, color: int, key: int = 0) -> Comm:
        """The communicator of the ranks that name the same colour, ordered by key, then by rank.

        It has the deadline of this one, ends the same job when it strikes, and counts into the same tally.

        Raises
        ------
        UsageError
            If the colour is negative.
        """
        if not 0 <= color < 2**31:
            raise UsageError(f"color must be a number from 0 to {2**31 - 1}; got {color}")
        colors, keys = self.allgather(np.array([color, key], np.int64), "control").T
        same = np.flatnonzero(colors == color)
        made: Comm = self._split(color, same[np.argsort(keys[same], kind="stable")].tolist())
        made.tally, made.most_elements = self.tally, self.most_elements
        return made

    def duplicate(self) -> Comm:
        """A communicator of the same ranks that counts into a tally of its own: for what another thread does."""
        made = self.split(0, self.rank)
        made.tally = dict.fromkeys(KINDS, SentCount(0, 0))
        return made

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

    def _round_bytes(self) -> int:
        """What a rank may bring to one round of an all-gather."""
        return max(1, self.most_elements // self.size)

    def _gathered(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        """One round: the bytes of all ranks, in memory of their own."""
        if self.size == 1 or not sizes.any():
            return part.copy()
        return self._allgather(part, sizes, kind)

    def _gather_in_rounds(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pieces small enough for one message each: (bytes received, how many of them from each rank)."""
        limit = self._round_bytes()
        for first in range(0, int(sizes.max(initial=0)), limit):
            now = np.clip(sizes - first, 0, limit)
            yield self._gathered(part[first : first + int(now[self.rank])], now, kind), now

    def _checked_parts(self, parts: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
        held = [np.ascontiguousarray(part) for part in parts]
        if len(held) != self.size:
            raise UsageError(f"alltoall sends one part to each of {self.size} ranks; got {len(held)} parts")
        for part in held:
            self._check(part, kind)
            if part.dtype != held[0].dtype or part.dtype.hasobject or part.shape[1:] != held[0].shape[1:]:
                found = ", ".join(f"{other.dtype} {other.shape}" for other in held)
                raise UsageError(f"the parts of an alltoall must be numbers of one dtype and one shape of rows; got {found}")
        return held

    def _agree_on_counts(self, counts: list[int], made_of: str) -> np.ndarray:
        """How many rows each rank has for this one: int64, shape (size,). A mark of `made_of` travels in the same words."""
        if max(counts) >= 2**_COUNT_BITS:
            raise UsageError(f"a part has {max(counts)} rows; fewer than 2**{_COUNT_BITS} would fit")
        mark = zlib.crc32(made_of.encode()) >> 9
        words = np.array(counts, np.int64) | (mark << _COUNT_BITS)
        self._count("control", self.size - 1, 8 * (self.size - 1))
        if self.size > 1:
            words = self._alltoall_words(words)
        differing = np.flatnonzero(words >> _COUNT_BITS != mark)
        if len(differing):
            raise UsageError(
                f"all ranks of an alltoall bring one kind, dtype and shape of rows: rank {self.rank} brings {made_of}, "
                f"rank {differing[0]} something else"
            )
        return words & (2**_COUNT_BITS - 1)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array as uint8 of one dimension; a view."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def _into(out: np.ndarray, rounds: Iterator[tuple[np.ndarray, np.ndarray]], sizes: np.ndarray) -> None:
    """Put the pieces of each rank one after the other: those of rank r start at sum of sizes[:r]."""
    at = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for received, now in rounds:
        starts = np.cumsum(now) - now
        for r in np.flatnonzero(now):
            out[at[r] : at[r] + now[r]] = received[starts[r] : starts[r] + now[r]]
        at = at + now
