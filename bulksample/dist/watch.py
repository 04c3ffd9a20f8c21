"""Waiting that ends: a deadline for every wait, and a ring of the last collectives to print when it strikes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import EXIT_PEER_LOST

REMEMBERED = 64
_SPIN_SECONDS = 50e-6  # most small collectives are done by then; longer spinning takes the core from the rank awaited
_LONGEST_NAP = 1e-3
_GLANCE_EVERY = 0.05


@dataclass
class Collective:
    """One collective of this rank, for the record."""

    number: int
    what: str
    began: float
    seconds: float | None = None

    def __str__(self) -> str:
        state = "not finished" if self.seconds is None else f"{self.seconds:.3f} s"
        return f"#{self.number} {self.what}: {state}"


class Watch:
    """Waits for one thing at a time and remembers the last 64.

    Parameters
    ----------
    timeout : float
        Seconds that a wait may take.
    strike : callable
        Called once with a report when a wait takes longer; it does not return.
    glance : callable, optional
        Called about every 50 ms of waiting with the seconds waited so far.
    """

    def __init__(self, timeout: float, strike: Callable[[str], None], glance: Callable[[float], None] | None = None) -> None:
        self.timeout, self._strike, self._glance = timeout, strike, glance
        self.ring: deque[Collective] = deque(maxlen=REMEMBERED)
        self._number = 0

    def wait(self, done: Callable[[], bool], what: str, glance: Callable[[float], None] | None = None) -> None:
        """Poll `done` until it is true: a short spin, then naps that grow to a millisecond. `glance` takes the place of the usual one."""
        glance = glance or self._glance
        self._number += 1
        entry = Collective(self._number, what, time.monotonic())
        self.ring.append(entry)
        nap, glanced = 1e-6, entry.began
        while not done():
            now = time.monotonic()
            if now - entry.began < _SPIN_SECONDS:
                continue
            if now - entry.began > self.timeout:
                self._strike(f"waited {now - entry.began:.0f} s for {what} (collective #{entry.number})")
            if glance is not None and now - glanced > _GLANCE_EVERY:
                glance(now - entry.began)
                glanced = now
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)
        entry.seconds = time.monotonic() - entry.began

    def now(self) -> str:
        """What this rank is waiting for, or did last."""
        return str(self.ring[-1]) if self.ring else "no collective yet"

    def history(self) -> str:
        """The ring, oldest first, one line each."""
        return "\n".join(f"  {entry}" for entry in self.ring)


@contextmanager
def guarded(timeout: float, what: str) -> Iterator[None]:
    """A deadline for what cannot be polled, such as the making of a communicator: past it the process ends, exit code 75.

    The launcher then ends the other ranks.
    """

    def strike() -> None:
        print(f"bulksample: waited {timeout:.0f} s for {what}; ending this rank", file=sys.stderr, flush=True)
        os._exit(EXIT_PEER_LOST)

    timer = threading.Timer(timeout, strike)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
