"""Notes between ranks over MPI; see `processes.Notes`.

A collective alone cannot say which rank is missing. When a deadline strikes, a rank asks the others with a note, and
those that do not answer are named.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .processes import roll

_TAG = 1
_BYTES = 512
_ANSWER_SECONDS = 2.0


class MpiSideChannel:
    """The notes "where", its answer "at ...", and "left", on a communicator of their own. Any thread may read and write.

    Parameters
    ----------
    mpi : the module mpi4py.MPI
    status : callable
        What to answer: what this rank is waiting for.
    """

    def __init__(self, mpi: Any, status: Callable[[], str]) -> None:
        self._mpi, self._status = mpi, status
        self._comm = mpi.COMM_WORLD.Dup()
        self._answers: dict[int, str] = {}
        self._left: set[int] = set()
        self._sent: list[Any] = []
        self._reasons = np.zeros(self._comm.size + 1, np.int64)  # of all ranks, then that of this one
        self._leaving: Any = None
        self._lock = threading.RLock()

    def tell(self, rank: int, text: str) -> None:
        data = np.frombuffer(text.encode()[:_BYTES], np.uint8).copy()
        with self._lock:
            self._sent = [pair for pair in self._sent if not pair[0].Test()]
            self._sent.append((self._comm.Isend([data, self._mpi.BYTE], rank, _TAG), data))

    def tell_all(self, text: str) -> None:
        for rank in self._others():
            self.tell(rank, text)

    def read(self) -> None:
        """Take in every note that has arrived, and answer questions; returns at once where another thread is doing so."""
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
                self.tell(source, f"at {self._status()}")
            elif text == "left":
                self._left.add(source)
            else:
                self._answers[source] = text

    def gone(self) -> list[int]:
        return sorted(self._left)

    def all_left(self, reason: str = "") -> bool:
        """Whether every rank is leaving. From a rank's first call on it counts as leaving itself, for a reason if something is wrong."""
        if self._leaving is None:
            self._reasons[-1] = zlib.crc32(reason.encode())
            self._leaving = self._comm.Iallgather(self._reasons[-1:], self._reasons[:-1])
        return bool(self._leaving.Test())

    @property
    def leaving(self) -> bool:
        """Whether this rank is."""
        return self._leaving is not None

    def left_before(self, reason: str) -> bool:
        """Whether a rank before this one has left for the same reason; once all have left."""
        return zlib.crc32(reason.encode()) in self._reasons[: self._comm.rank]

    def roll_call(self) -> str:
        """Ask all ranks where they are and name those that do not answer within two seconds."""
        self._answers.clear()
        self.tell_all("where")
        until = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < until and not set(self._others()) <= set(self._answers) | self._left:
            self.read()
            time.sleep(0.01)
        return roll(self._answers, self.gone(), self._others())

    def _others(self) -> list[int]:
        return [rank for rank in range(self._comm.size) if rank != self._comm.rank]
