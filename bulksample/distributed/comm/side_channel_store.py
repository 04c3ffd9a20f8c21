"""Status messages between ranks over the key-value store of torch.distributed; see `processes.SideChannel`.

A store cannot deliver a question to a rank. So each waiting rank writes its position twice a second, with a counter. A roll call
reads all counters twice: a rank whose counter has grown is alive.

    key       value
    at R      how often rank R has written, and the collective it waits for
    left      the ranks that have left, separated by blanks
    leaving   the ranks that are leaving, as RANK:CHECKSUM of the reason
    end       the exit code with which one rank has ended the job
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from .processes import roll

_BEAT_SECONDS = 0.5
_ROLL_SECONDS = 5 * _BEAT_SECONDS
_LOOK_SECONDS = 0.02


class StoreSideChannel:
    """Exchange status messages between ranks through a shared key-value store; implements `processes.SideChannel`.

    Parameters
    ----------
    store : torch.distributed.Store
        Shared by all ranks, with a method ``append``.
    rank, size : int
        This rank, and the number of ranks.
    status : callable
        Returns the collective that this rank is waiting for.
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
        return roll(answers, self.gone(), others)

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
