"""The contract of a communicator: what each collective means, what it checks, and how its bytes are counted.

`MpiComm` and `TorchComm` (processes), `ThreadComm` (ranks as threads, for tests) and `SerialComm` (one rank) differ only in how
they move bytes. This file checks arguments, cuts long arrays into chunks and keeps the tally for all of them.

All ranks call every collective, in the same order. The sender counts the bytes that a bandwidth-optimal algorithm sends. So the
sum over ranks counts each message once and does not depend on the library. With p ranks, w bytes in an array, w_r bytes held by
rank r:

=============== ========================================= =========================== ==================
collective      rank r counts                             sum over ranks              messages of rank r
=============== ========================================= =========================== ==================
allreduce       (w - w_r) + (p - 1) w_r                   2 (p - 1) w                 2 (p - 1)
allgather(rows) (p - 1) w_r                               (p - 1) sum_r w_r           p - 1
broadcast       (p - 1) w at the root, 0 elsewhere        (p - 1) w                   p - 1 at the root
alltoall(_rows) bytes of its parts for others             sum over ranks              nonempty parts
  + control     8 (p - 1), or 0 if counts are known       8 p (p - 1)                 p - 1
split (control) 16 (p - 1)                                16 p (p - 1)                p - 1
barrier         0                                         0                           0
=============== ========================================= =========================== ==================

The all-reduce is a reduce-scatter followed by an all-gather; w_r is rank r's share of the array. A communicator made by `split`
counts into the tally of its parent, so that a process has one tally. The bytes that go to ranks of other machines are counted once more,
apart.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...errors import PeerLost, UsageError
from .primitives import KINDS, MOST_ELEMENTS, CudaAware, Pending, PendingRows, Primitives, SentCount

__all__ = ["KINDS", "MOST_ELEMENTS", "Comm", "Pending", "PendingRows", "Primitives", "SentCount"]

_COUNT_BITS = 40  # of the word sent ahead of a part hold its row count; 23 more hold a checksum of its kind, dtype and shape


class Comm(Primitives):
    """Typed collectives over `size` ranks."""

    @property
    def timeout(self) -> float:
        """Seconds that a wait may take before it fails."""
        return 300.0

    @property
    def cuda_aware(self) -> CudaAware:
        """Report whether the transport reads and writes CUDA device memory, and why."""
        return CudaAware(False, "the ranks do not meet by MPI")

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:  # after an exception the other ranks may never call close; the exception hook ends them
            self.close()

    def allreduce(self, array: np.ndarray, kind: str) -> np.ndarray:
        """Sum an array over ranks, in place.

        Parameters
        ----------
        array : int32, int64, uint64, float32 or float64, C-contiguous and writable, of the same shape on every rank
        kind : one of KINDS

        Returns
        -------
        The array itself. Terms are added in the order of `tree_sum`, so all ranks hold the same bits. The same inputs on the same
        number of ranks give the same bits under every launcher and MPI library.

        Raises
        ------
        UsageError
            If the dtype, the memory layout or the kind is not one of those above.
        """
        self._check(array, kind, writable=True)
        if array.dtype not in (np.int32, np.int64, np.uint64, np.float32, np.float64):
            raise UsageError(f"allreduce adds int32, int64, uint64, float32 or float64; got {array.dtype}")
        self._note(f"allreduce {kind} {array.dtype} {array.shape}")
        flat = array.reshape(-1)
        self.count_allreduce(kind, len(flat), array.itemsize)
        if self.size > 1:
            for first in range(0, len(flat), self.most_elements):
                self._allreduce(flat[first : first + self.most_elements], kind)
        return array

    def count_allreduce(self, kind: str, numbers: int, itemsize: int) -> None:
        """Count what an all-reduce sends: the shares of the other ranks to them, and the sum of this rank's share to each of them."""
        self._count_collective(kind)
        shares = itemsize * ((numbers + self.size - 1 - np.arange(self.size)) // self.size)
        local, away = int(shares[self.rank]), self.elsewhere
        between = int(shares[away].sum()) + int(np.count_nonzero(away)) * local
        self.count(kind, 2 * (self.size - 1), int(shares.sum()) - local + (self.size - 1) * local, between)

    def allgather(self, array: np.ndarray, kind: str) -> np.ndarray:
        """Return the arrays of all ranks, stacked: shape ``(size, *array.shape)``. All ranks pass the same shape and dtype."""
        array = np.ascontiguousarray(array)
        rows = self.allgather_rows(array.reshape(1, -1), np.ones(self.size, np.int64), kind)
        return rows.reshape(self.size, *array.shape)

    def allgather_rows(self, rows: np.ndarray, counts: np.ndarray, kind: str) -> np.ndarray:
        """Return the rows of all ranks, concatenated in rank order.

        Parameters
        ----------
        rows : shape (counts[rank], ...), any dtype, C-contiguous
        counts : int64, shape (size,)
            Number of rows of each rank, the same array on all ranks; some may be 0.
        kind : one of KINDS

        Returns
        -------
        Shape (sum of counts, ...), on every rank.

        Raises
        ------
        UsageError
            If ``len(rows)`` differs from ``counts[rank]``.
        """
        self._check(rows, kind)
        counts = np.asarray(counts, np.int64)
        if counts.shape != (self.size,) or counts.min(initial=0) < 0 or counts[self.rank] != len(rows):
            raise UsageError(f"counts must be {self.size} numbers with {len(rows)} at rank {self.rank}; got {counts.tolist()}")
        self._note(f"allgather {kind} {rows.dtype} {rows.shape[1:]} {counts.tolist()}")
        self._count_collective(kind)
        self.count_to_each(kind, self.size - 1, rows.nbytes)
        row_bytes = rows.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
        sizes = counts * row_bytes
        shape = (int(counts.sum()), *rows.shape[1:])
        limit = max(1, self.most_elements // self.size)  # bytes that a rank sends in one round
        if sizes.max(initial=0) <= limit:  # one round: the received bytes are the result
            return self._gathered(bytes_of(rows), sizes, kind).view(rows.dtype).reshape(shape)
        out, at = np.empty(shape, rows.dtype), np.cumsum(sizes) - sizes
        part, into = bytes_of(rows), bytes_of(out)
        for first in range(0, int(sizes.max()), limit):
            now = np.clip(sizes - first, 0, limit)
            received, starts = self._gathered(part[first : first + int(now[self.rank])], now, kind), np.cumsum(now) - now
            for r in np.flatnonzero(now):
                into[at[r] + first : at[r] + first + now[r]] = received[starts[r] : starts[r] + now[r]]
        return out

    def broadcast(self, array: np.ndarray, kind: str, root: int = 0) -> np.ndarray:
        """Overwrite the array of every rank with the root's array, of the same shape and dtype; return the array itself."""
        self._check(array, kind, writable=True)
        if not 0 <= root < self.size:
            raise UsageError(f"root must be a rank, 0 to {self.size - 1}; got {root}")
        self._note(f"broadcast {kind} {array.dtype} {array.shape} {root}")
        self._count_collective(kind)
        if self.rank == root:
            self.count_to_each(kind, self.size - 1, array.nbytes)
        if self.size > 1:
            flat = bytes_of(array)
            for first in range(0, len(flat), self.most_elements):
                self._broadcast(flat[first : first + self.most_elements], root, kind)
        return array

    def alltoall(self, parts: Sequence[np.ndarray], kind: str) -> list[np.ndarray]:
        """Send a part to every rank and receive one from each.

        Parameters
        ----------
        parts : `size` arrays
            ``parts[r]`` goes to rank r. All parts on all ranks have the same dtype and the same shape except for the first
            axis, which may have length 0.
        kind : one of KINDS

        Returns
        -------
        The part that each rank sent to this rank, in rank order; views of one buffer.

        Raises
        ------
        UsageError
            On all ranks, before any part moves, if dtype, shape or kind differ between ranks. On this rank alone, if its own
            parts differ in dtype or shape.

        Notes
        -----
        Ranks first exchange row counts, 8 bytes of kind "control" to each other rank, and check them when the parts arrive.
        """
        return self.start_alltoall(parts, kind).wait()

    def start_alltoall(self, parts: Sequence[np.ndarray], kind: str) -> Pending[list[np.ndarray]]:
        """Begin `alltoall`; ``.wait()`` of the returned object gives its result. Row counts have been exchanged on return."""
        arrays = [np.ascontiguousarray(part) for part in parts]
        if len(arrays) != self.size:
            raise UsageError(f"alltoall sends one part to each of {self.size} ranks; got {len(arrays)} parts")
        for part in arrays:
            self._check(part, kind)
            if part.dtype != arrays[0].dtype or part.dtype.hasobject or part.shape[1:] != arrays[0].shape[1:]:
                forms = ", ".join(f"{other.dtype} {other.shape}" for other in arrays)
                raise UsageError(f"the parts of an alltoall must be numbers of one dtype and one shape of rows; got {forms}")
        pending = self.start_alltoall_rows(np.concatenate(arrays), np.array([len(part) for part in arrays]), kind)
        return Pending(cache(lambda: np.split(pending.wait(), np.cumsum(pending.counts)[:-1])))

    def alltoall_rows(self, rows: np.ndarray, counts: np.ndarray, kind: str, incoming: np.ndarray | None = None) -> np.ndarray:
        """Send consecutive rows of one array to each rank; see `start_alltoall_rows`. Return the received rows, in rank order."""
        return self.start_alltoall_rows(rows, counts, kind, incoming).wait()

    def start_alltoall_rows(self, rows: np.ndarray, counts: np.ndarray, kind: str, incoming: np.ndarray | None = None) -> PendingRows:
        """Begin to send consecutive rows of one array to each rank; ``.wait()`` of the returned object gives the received rows.

        Parameters
        ----------
        rows : shape (sum of counts, ...), any dtype but object
            The first ``counts[0]`` rows go to rank 0, the next ``counts[1]`` to rank 1, and so on.
        counts : integers, shape (size,)
        kind : one of KINDS
        incoming : integers, shape (size,), optional
            Number of rows that each rank will send to this one, where both sides know it already: given on all ranks or on none. Without
            it ranks first exchange row counts, as in `alltoall`.

        Raises
        ------
        UsageError
            As `alltoall`; also if the counts do not fit the rows.
        """
        rows, counts = np.ascontiguousarray(rows), np.asarray(counts, np.int64)
        self._check(rows, kind)
        if counts.shape != (self.size,) or counts.min(initial=0) < 0 or counts.sum() != len(rows) or rows.dtype.hasobject:
            raise UsageError(
                f"counts must divide {len(rows)} rows of numbers among {self.size} ranks; got {counts.tolist()}, rows of {rows.dtype}"
            )
        shape = rows.shape[1:]
        row_bytes = rows.itemsize * int(np.prod(shape, dtype=np.int64))
        made_of = f"{rows.dtype.str} {shape}"
        if incoming is None:
            incoming = self.exchange_counts(counts, kind, made_of, row_bytes)
        else:
            incoming = np.asarray(incoming, np.int64)
            self.count_alltoall(counts, kind, made_of, row_bytes)
        if self.size == 1:
            return PendingRows(rows.copy(), incoming, lambda: None)
        out = np.empty((int(incoming.sum()), *shape), rows.dtype)
        arrive = self._start_alltoall(bytes_of(rows), row_bytes * counts, bytes_of(out), row_bytes * incoming, kind)
        return PendingRows(out, incoming, arrive)

    def exchange_counts(self, rows: Sequence[int] | np.ndarray, kind: str, made_of: str, row_bytes: int) -> np.ndarray:
        """Exchange row counts before an all-to-all and add its bytes to the tally. The rows themselves do not move here.

        Parameters
        ----------
        rows : `size` integers
            Number of rows for each rank.
        kind : one of KINDS
        made_of : str
            Dtype and shape of a row, equal on all ranks.
        row_bytes : int

        Returns
        -------
        Number of rows that each rank will send to this one: int64, shape (size,).
        """
        self._check_kind(kind)
        counts = self._agree_on_counts(np.array(rows, np.int64), f"{kind} {made_of}")
        self.count_alltoall(rows, kind, made_of, row_bytes)
        return counts

    def count_alltoall(self, rows: Sequence[int] | np.ndarray, kind: str, made_of: str, row_bytes: int) -> None:
        """Add an all-to-all whose counts all ranks know to the tally; arguments as in `exchange_counts`. Nothing moves here."""
        self._check_kind(kind)
        self._note(f"alltoall {kind} {made_of}")
        self._count_collective(kind)
        sent = row_bytes * np.array(rows, np.int64)
        sent[self.rank] = 0
        self.count(kind, int(np.count_nonzero(sent)), int(sent.sum()), int(sent[self.elsewhere].sum()))

    def check_threads(self) -> None:
        """Raise `UsageError` if only one thread of this rank may communicate; sampling ahead needs two."""
        return

    def at(self, place: str, message: str) -> None:
        """Name the place in the program that all ranks must have reached at the next all-to-alls, which compare it.

        Parameters
        ----------
        place : str
            Equal on all ranks.
        message : str
            This rank's line in a mismatch error.
        """
        self._place, self._message = place, message

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        """Poll ``done()`` until it is true, with the deadline of a collective; for transfers outside this class (`what`).

        Raises
        ------
        PeerLost
            If the deadline passes or `done` raises RuntimeError. Ranks that are processes end the job instead.
        """
        until = time.monotonic() + self.timeout
        while time.monotonic() < until:
            try:
                if done():
                    return
            except RuntimeError as error:  # raised by the transport
                raise PeerLost(f"rank {self.rank}: {what} failed: {error}") from error
            time.sleep(1e-5)
        raise PeerLost(f"rank {self.rank} waited {self.timeout:g} s for {what}")

    def split(self, color: int, key: int = 0) -> Comm:
        """Return a communicator of the ranks that pass the same color, ordered by key, then by rank.

        It has the same deadline, ends the same job when a wait fails, and counts into the same tally.

        Raises
        ------
        UsageError
            If the color is not in 0 .. 2**31 - 1.
        """
        if not 0 <= color < 2**31:
            raise UsageError(f"color must be a number from 0 to {2**31 - 1}; got {color}")
        colors, keys = self.allgather(np.array([color, key], np.int64), "control").T
        same = np.flatnonzero(colors == color)
        members = same[np.argsort(keys[same], kind="stable")]
        made: Comm = self._split(color, members.tolist())
        made.tally, made.between_machines, made.collectives = self.tally, self.between_machines, self.collectives
        made.machine_of, made.most_elements = self.machine_of[members], self.most_elements
        return made

    def duplicate(self) -> Comm:
        """Return a communicator of the same ranks with a tally of its own, for use by another thread."""
        made = self.split(0, self.rank)
        made.tally, made.between_machines = dict.fromkeys(KINDS, SentCount(0, 0)), dict.fromkeys(KINDS, 0)
        made.collectives = dict.fromkeys(KINDS, 0)
        return made

    def gather_control(self, thing: Any) -> list[Any]:
        """Gather a small JSON value of each rank on every rank, in rank order.

        Values travel as JSON text (kind "control"), lengths first; nothing is ever unpickled.

        Raises
        ------
        PeerLost
            If the ranks have called different collectives before. An MPI library may silently match two different
            collectives and return wrong numbers; this check finds it.
        """
        return self._gather_json(thing, alike=True)

    def _gather_json(self, thing: Any, alike: bool) -> list[Any]:
        """Gather a JSON value of each rank; with `alike`, check that the ranks have called the same collectives."""
        text = np.frombuffer(json.dumps(thing).encode(), np.uint8)
        histories, counts = self.allgather(np.array([self._history, len(text)]), "control").T
        differing = np.flatnonzero(histories != histories[self.rank])
        if alike and len(differing):
            raise PeerLost(f"rank {self.rank} and rank {differing[0]} have not taken part in the same collectives")
        joined = self.allgather_rows(text, counts, "control").tobytes()
        ends = np.cumsum(counts)
        return [json.loads(joined[end - count : end]) for count, end in zip(counts, ends, strict=True)]

    # ---- helpers

    def _gathered(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        """Return the bytes of all ranks for one round, in new memory."""
        if self.size == 1 or not sizes.any():
            return part.copy()
        return self._allgather(part, sizes, kind)

    def _agree_on_counts(self, counts: np.ndarray, made_of: str) -> np.ndarray:
        """Exchange row counts, with a checksum of `made_of` and of the place; return the counts: int64, shape (size,)."""
        if counts.max() >= 2**_COUNT_BITS:
            raise UsageError(f"a part of an all-to-all has {counts.max()} rows; use fewer than 2**{_COUNT_BITS}")
        mark = zlib.crc32(self._place.encode(), zlib.crc32(made_of.encode())) >> 9
        words = counts | (mark << _COUNT_BITS)
        self._count_collective("control")
        self.count_to_each("control", self.size - 1, 8)
        if self.size > 1:
            words = self._alltoall_words(words)
        differing = np.flatnonzero(words >> _COUNT_BITS != mark)
        if len(differing):  # then every rank sees a difference
            places, lines = zip(*self._gather_json([self._place, self._message], alike=False), strict=True)
            if len(set(places)) > 1:
                steps = "; ".join(lines)
                raise UsageError(f"the ranks have not taken the same steps: {steps}: take all steps on every rank, or equally many")
            raise UsageError(
                f"all ranks of an alltoall must pass one kind, dtype and shape of rows: rank {self.rank} passes {made_of}, "
                f"rank {differing[0]} does not; call it with the same arguments on all ranks"
            )
        return np.asarray(words & (2**_COUNT_BITS - 1))


def bytes_of(array: np.ndarray) -> np.ndarray:
    """View a contiguous array as one-dimensional uint8."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
