"""Status messages between ranks over MPI; see `processes.SideChannel`.

A collective cannot tell which rank is missing. When a deadline passes, a rank asks all others where they are with a
message outside the collectives. Ranks that do not answer are named in the error.
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
    """Send and receive the messages "where", its answer "at ...", and "left", over a duplicate of MPI_COMM_WORLD.

    All methods may be called from any thread.

    Parameters
    ----------
    mpi : the module mpi4py.MPI
    status : callable
        Returns the collective that this rank is waiting for; the answer to "where".
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
        return roll(self._answers, self.gone(), self._others())

    def _others(self) -> list[int]:
        return [rank for rank in range(self._comm.size) if rank != self._comm.rank]
