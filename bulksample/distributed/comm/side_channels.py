"""Short status messages between ranks, beside the collectives.

A collective cannot tell which rank is missing. When a deadline passes, a rank asks all others where they are; ranks that do not answer
are named in the error. MPI sends messages. Without MPI ranks write to the key-value store of torch.distributed.
"""

from __future__ import annotations

import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

_TAG = 1
_BYTES = 512
_BEAT_SECONDS = 0.5
_LOOK_SECONDS = 0.02


class SideChannel(ABC):
    """Short status messages between ranks, outside the collectives. Any thread may call any method.

    ``status()`` returns the collective that this rank is waiting for, its answer to a rank that asks where it is.
    """

    roll_seconds: float  # for others to answer
    nap_seconds: float  # between two looks for answers

    def __init__(self, rank: int, size: int, status: Callable[[], str]) -> None:
        self.rank, self.size, self._status = rank, size, status
        self.leaving = False  # True once this rank has called `all_left`
        self._others = [other for other in range(size) if other != rank]
        self._left: set[int] = set()
        self._reasons = np.zeros(size, np.int64)  # checksums of the reasons of the ranks that leave
        self._lock = threading.RLock()

    @abstractmethod
    def send_all(self, text: str) -> None:
        """Send a message to all ranks; only "left" comes from outside."""

    @abstractmethod
    def all_left(self, reason: str = "") -> bool:
        """Declare that this rank is leaving, with a reason after a failure; return True once all ranks have declared it."""

    @abstractmethod
    def _read(self) -> None:
        """Receive every message that has arrived, and answer questions."""

    @abstractmethod
    def _ask(self) -> Callable[[], dict[int, str]]:
        """Ask all ranks where they are; return a function for the answers that have been read so far, by rank."""

    def read(self) -> None:
        """Receive messages, and answer ranks that ask where this rank is. Return at once if another thread is doing so."""
        if self._lock.acquire(blocking=False):
            try:
                self._read()
            finally:
                self._lock.release()

    def gone(self) -> list[int]:
        """Return the ranks that have left."""
        return sorted(self._left)

    def left_before(self, reason: str) -> bool:
        """Return True if a lower rank left for the same reason; to be called once all have left."""
        return zlib.crc32(reason.encode()) in self._reasons[: self.rank]

    def roll_call(self) -> str:
        """Ask all ranks where they are: the answer of each rank, the ranks that left, and those that do not answer in time."""
        read_answers, until, answers = self._ask(), time.monotonic() + self.roll_seconds, dict[int, str]()
        while time.monotonic() < until and not set(self._others) <= set(answers) | self._left:
            time.sleep(self.nap_seconds)
            self.read()  # another rank may be calling the roll, too
            answers = read_answers()
        lines = [f"rank {rank} is {text}" for rank, text in sorted(answers.items())]
        if left := self.gone():
            lines.append(f"{ranks_in_words(left)} left")
        if silent := [rank for rank in self._others if rank not in answers and rank not in left]:
            lines.append(f"no sign of life from {ranks_in_words(silent)}: stopped, lost, or busy outside a collective")
        return "; ".join(lines)


class MpiSideChannel(SideChannel):
    """Send and receive the messages "where", its answer "at ...", and "left", over a duplicate of MPI_COMM_WORLD."""

    roll_seconds, nap_seconds = 2.0, 0.01

    def __init__(self, mpi: Any, status: Callable[[], str]) -> None:
        self._mpi, self._comm = mpi, mpi.COMM_WORLD.Dup()
        super().__init__(self._comm.rank, self._comm.size, status)
        self._answers: dict[int, str] = {}
        self._sent: list[Any] = []
        self._own_reason = np.zeros(1, np.int64)
        self._request: Any = None

    def send(self, rank: int, text: str) -> None:
        data = np.frombuffer(text.encode()[:_BYTES], np.uint8).copy()
        with self._lock:
            self._sent = [pair for pair in self._sent if not pair[0].Test()]
            self._sent.append((self._comm.Isend([data, self._mpi.BYTE], rank, _TAG), data))

    def send_all(self, text: str) -> None:
        for rank in self._others:
            self.send(rank, text)

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

    def _ask(self) -> Callable[[], dict[int, str]]:
        self._answers.clear()
        self.send_all("where")
        return lambda: self._answers

    def all_left(self, reason: str = "") -> bool:
        if not self.leaving:
            self._own_reason[0] = zlib.crc32(reason.encode())
            self._request = self._comm.Iallgather(self._own_reason, self._reasons)
            self.leaving = True
        return bool(self._request.Test())


class StoreSideChannel(SideChannel):
    """Exchange status messages between ranks through a shared key-value store of torch.distributed.

    A store cannot deliver a question to a rank. So each waiting rank writes its position, ``status()``, twice a second, with a counter. A
    roll call reads all counters twice: a rank whose counter has grown is alive.

        key       value
        at R      how often rank R has written, and the collective it waits for
        left      the ranks that have left, separated by blanks
        leaving   the ranks that are leaving, as RANK:CHECKSUM of the reason
        end       the exit code with which one rank has ended the job
    """

    roll_seconds, nap_seconds = 5 * _BEAT_SECONDS, _BEAT_SECONDS / 2

    def __init__(self, store: Any, rank: int, size: int, status: Callable[[], str]) -> None:
        super().__init__(rank, size, status)
        self._store = store
        self._beats, self._next, self._looked, self._leaving_ranks = 0, 0.0, 0.0, 0

    def send_all(self, text: str) -> None:
        self._store.append(text, f"{self.rank} ")

    def _read(self) -> None:
        """Write this rank's position and read who has left, at most twice a second."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _BEAT_SECONDS
            self._beats += 1
            self._store.set(f"at {self.rank}", f"{self._beats} at {self._status()}")
            self._left = {int(word) for word in self._words("left")}

    def _ask(self) -> Callable[[], dict[int, str]]:
        before = self._positions()
        return lambda: {rank: text.partition(" ")[2] for rank, text in self._positions().items() if text != before.get(rank)}

    def all_left(self, reason: str = "") -> bool:
        if not self.leaving:
            self.leaving = True
            self._store.append("leaving", f"{self.rank}:{zlib.crc32(reason.encode())} ")
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked, words = time.monotonic(), self._words("leaving")
            for rank, why in (word.split(":") for word in words):
                self._reasons[int(rank)] = int(why)
            self._leaving_ranks = len(words)
        return self._leaving_ranks == self.size

    def end(self, code: int) -> None:
        """Write the exit code with which this rank ends the job."""
        self._store.set("end", str(code))

    def ended(self) -> int | None:
        """Return the exit code with which a rank has ended the job, or None."""
        words = self._words("end")
        return int(words[0]) if words else None

    def _words(self, key: str) -> list[str]:
        return self._store.get(key).decode().split() if self._store.check([key]) else []

    def _positions(self) -> dict[int, str]:
        known = [rank for rank in self._others if self._store.check([f"at {rank}"])]
        return {rank: self._store.get(f"at {rank}").decode() for rank in known}


def ranks_in_words(ranks: list[int]) -> str:
    """Format ranks as ``rank 1`` or ``ranks 1, 4``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
