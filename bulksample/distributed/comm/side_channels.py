"""Short status messages between ranks, beside the collectives.

A collective cannot tell which rank is missing. When a deadline passes, a rank asks all others where they are; ranks that do not answer
are named in the error. MPI sends messages. Without MPI ranks write to the key-value store of torch.distributed.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

_TAG = 1
_BYTES = 512
_ANSWER_SECONDS = 2.0
_BEAT_SECONDS = 0.5
_ROLL_SECONDS = 5 * _BEAT_SECONDS
_LOOK_SECONDS = 0.02


class SideChannel(Protocol):
    """Short status messages between ranks, outside the collectives. Any thread may call its methods."""

    def send_all(self, text: str) -> None:
        """Send a message to all ranks; "left" is the only one in use."""

    def read(self) -> None:
        """Receive messages, and answer ranks that ask where this rank is."""

    def gone(self) -> list[int]:
        """Return the ranks that have left."""

    def all_left(self, reason: str = "") -> bool:
        """Declare that this rank is leaving, with a reason after a failure; return True once all ranks have declared it."""

    @property
    def leaving(self) -> bool:
        """True once this rank has called `all_left`."""

    def left_before(self, reason: str) -> bool:
        """Return True if a lower rank left for the same reason; to be called once all have left."""

    def roll_call(self) -> str:
        """Ask all ranks where they are, and name those that do not answer."""


class MpiSideChannel:
    """Send and receive the messages "where", its answer "at ...", and "left", over a duplicate of MPI_COMM_WORLD.

    ``status()`` returns the collective that this rank is waiting for, the answer to "where". Any thread may call any method.
    """

    def __init__(self, mpi: Any, status: Callable[[], str]) -> None:
        self._mpi, self._status = mpi, status
        self._comm = mpi.COMM_WORLD.Dup()
        self._answers: dict[int, str] = {}
        self._left: set[int] = set()
        self._sent: list[Any] = []
        self._reasons = np.zeros(self._comm.size + 1, np.int64)  # of all ranks, then of this one
        self._leaving: Any = None
        self._lock = threading.RLock()

    def send(self, rank: int, text: str) -> None:
        data = np.frombuffer(text.encode()[:_BYTES], np.uint8).copy()
        with self._lock:
            self._sent = [pair for pair in self._sent if not pair[0].Test()]
            self._sent.append((self._comm.Isend([data, self._mpi.BYTE], rank, _TAG), data))

    def send_all(self, text: str) -> None:
        for rank in self._others():
            self.send(rank, text)

    def read(self) -> None:
        """Receive every message that has arrived and answer questions. Return at once if another thread is doing so."""
        if self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()

    def _read(self) -> None:
        status = self._mpi.Status()
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, _TAG, status):
            source, data = status.Get_source(), np.empty(_BYTES, np.uint8)
            length = status.Get_count(self._mpi.BYTE)
            self._comm.Recv([data, self._mpi.BYTE], source, _TAG)
            text = data[:length].tobytes().decode(errors="replace")
            if text == "where":
                self.send(source, f"at {self._status()}")
            elif text == "left":
                self._left.add(source)
            else:
                self._answers[source] = text

    def gone(self) -> list[int]:
        return sorted(self._left)

    def all_left(self, reason: str = "") -> bool:
        if self._leaving is None:
            self._reasons[-1] = zlib.crc32(reason.encode())
            self._leaving = self._comm.Iallgather(self._reasons[-1:], self._reasons[:-1])
        return bool(self._leaving.Test())

    @property
    def leaving(self) -> bool:
        return self._leaving is not None

    def left_before(self, reason: str) -> bool:
        return zlib.crc32(reason.encode()) in self._reasons[: self._comm.rank]

    def roll_call(self) -> str:
        """Ask all ranks where they are, and name those that do not answer within two seconds."""
        self._answers.clear()
        self.send_all("where")
        until = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < until and not set(self._others()) <= set(self._answers) | self._left:
            self.read()
            time.sleep(0.01)
        return _roll(self._answers, self.gone(), self._others())

    def _others(self) -> list[int]:
        return [rank for rank in range(self._comm.size) if rank != self._comm.rank]


class StoreSideChannel:
    """Exchange status messages between ranks through a shared key-value store of torch.distributed.

    A store cannot deliver a question to a rank. So each waiting rank writes its position, ``status()``, twice a second, with a counter. A
    roll call reads all counters twice: a rank whose counter has grown is alive.

        key       value
        at R      how often rank R has written, and the collective it waits for
        left      the ranks that have left, separated by blanks
        leaving   the ranks that are leaving, as RANK:CHECKSUM of the reason
        end       the exit code with which one rank has ended the job
    """

    def __init__(self, store: Any, rank: int, size: int, status: Callable[[], str]) -> None:
        self._store, self._rank, self._size, self._status = store, rank, size, status
        self._beats, self._next, self._looked = 0, 0.0, 0.0
        self._left: list[int] = []
        self._reasons: dict[int, int] = {}
        self._leaving = False
        self._lock = threading.Lock()

    def send_all(self, text: str) -> None:
        self._store.append(text, f"{self._rank} ")

    def read(self) -> None:
        """Write this rank's position and read who has left, at most twice a second."""
        if time.monotonic() < self._next or not self._lock.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + _BEAT_SECONDS
            self._beats += 1
            self._store.set(f"at {self._rank}", f"{self._beats} at {self._status()}")
            self._left = sorted(int(word) for word in self._words("left"))
        finally:
            self._lock.release()

    def gone(self) -> list[int]:
        return self._left

    def all_left(self, reason: str = "") -> bool:
        if not self._leaving:
            self._leaving = True
            self._store.append("leaving", f"{self._rank}:{zlib.crc32(reason.encode())} ")
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._reasons = {int(rank): int(why) for rank, why in (word.split(":") for word in self._words("leaving"))}
        return len(self._reasons) == self._size

    @property
    def leaving(self) -> bool:
        return self._leaving

    def left_before(self, reason: str) -> bool:
        why = zlib.crc32(reason.encode())
        return any(self._reasons.get(rank) == why for rank in range(self._rank))

    def roll_call(self) -> str:
        """Name the ranks whose counter does not grow within 2.5 seconds."""
        others = [rank for rank in range(self._size) if rank != self._rank]
        before, until = self._positions(others), time.monotonic() + _ROLL_SECONDS
        answers: dict[int, str] = {}
        while time.monotonic() < until and not set(others) <= set(answers) | set(self._left):
            time.sleep(_BEAT_SECONDS / 2)
            self.read()  # another rank may be calling the roll, too
            now = self._positions(others)
            answers = {rank: text.partition(" ")[2] for rank, text in now.items() if text != before.get(rank)}
        return _roll(answers, self.gone(), others)

    def end(self, code: int) -> None:
        """Write the exit code with which this rank ends the job."""
        self._store.set("end", str(code))

    def ended(self) -> int | None:
        """Return the exit code with which a rank has ended the job, or None."""
        words = self._words("end")
        return int(words[0]) if words else None

    def _words(self, key: str) -> list[str]:
        return self._store.get(key).decode().split() if self._store.check([key]) else []

    def _positions(self, ranks: list[int]) -> dict[int, str]:
        known = [rank for rank in ranks if self._store.check([f"at {rank}"])]
        return {rank: self._store.get(f"at {rank}").decode() for rank in known}


def _roll(answers: dict[int, str], left: list[int], others: list[int]) -> str:
    """Describe a roll call: the answer of each rank, the ranks that left, and the ranks that did not answer."""
    lines = [f"rank {rank} is {text}" for rank, text in sorted(answers.items())]
    silent = [rank for rank in others if rank not in answers and rank not in left]
    if left:
        lines.append(f"{ranks_in_words(left)} left")
    if silent:
        lines.append(f"no sign of life from {ranks_in_words(silent)}: stopped, lost, or busy outside a collective")
    return "; ".join(lines)


def ranks_in_words(ranks: list[int]) -> str:
    """Format ranks as ``rank 1`` or ``ranks 1, 4``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
