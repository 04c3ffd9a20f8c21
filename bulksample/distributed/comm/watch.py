"""Waiting that ends: a deadline for every wait, and a ring of the last collectives to print when it strikes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import EXIT_PEER_LOST

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
    thread: str  # empty for the main thread
    seconds: float | None = None

    def __str__(self) -> str:
        state = "not finished" if self.seconds is None else f"{self.seconds:.3f} s"
        return f"#{self.number} {self.what}{self.thread and f' on thread {self.thread}'}: {state}"


class Watch:
    """Waits, on each thread for one thing at a time, and remembers the last 64 of all threads.

    Parameters
    ----------
    timeout : float
        Seconds that a wait may take.
    strike : callable
        Called once with a report when a wait takes longer; it does not return.
    glance : callable, optional
        Called about every 50 ms of waiting with the seconds waited so far, on every thread that waits.
    """

    def __init__(self, timeout: float, strike: Callable[[str], None], glance: Callable[[float], None] | None = None) -> None:
        self.timeout, self._strike, self._glance = timeout, strike, glance
        self._ring: deque[Collective] = deque(maxlen=REMEMBERED)
        self._waiting: dict[int, Collective] = {}  # by thread
        self._number = 0
        self._lock = threading.Lock()  # of the record above
        self._here = threading.local()

    def wait(self, done: Callable[[], bool], what: str, glance: Callable[[float], None] | None = None) -> None:
        """Poll `done` until it is true: a short spin, then naps that grow to a millisecond. `glance` takes the place of the usual one."""
        glance = glance or self._glance
        entry = self._begin(what)
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
        self._end(entry)

    def _begin(self, what: str) -> Collective:
        self._here.used = True
        thread = threading.current_thread()
        with self._lock:
            self._number += 1
            entry = Collective(self._number, what, time.monotonic(), "" if thread is threading.main_thread() else thread.name)
            self._ring.append(entry)
            self._waiting[threading.get_ident()] = entry
        return entry

    def _end(self, entry: Collective) -> None:
        entry.seconds = time.monotonic() - entry.began
        with self._lock:
            self._waiting.pop(threading.get_ident(), None)

    @property
    def used_here(self) -> bool:
        """Whether the present thread has ever waited: others may be waiting for it in turn."""
        return getattr(self._here, "used", False)

    def now(self) -> str:
        """What the threads of this rank are waiting for, or what was waited for last."""
        with self._lock:
            waiting = list(self._waiting.values()) or list(self._ring)[-1:]
        return "; ".join(map(str, waiting)) or "no collective yet"

    def history(self) -> str:
        """The ring, oldest first, one line each; before it, what is still waited for and has left the ring."""
        with self._lock:
            ring = list(self._ring)
            older = [entry for entry in self._waiting.values() if entry.number < ring[0].number]
        return "\n".join(f"  {entry}" for entry in older + ring)


def end_process(report: str) -> None:
    """Say why and leave at once, exit code 75; the launcher then ends the other ranks."""
    sys.stderr.write(f"bulksample: {report}; ending this rank\n")
    sys.stderr.flush()
    os._exit(EXIT_PEER_LOST)


@contextmanager
def deadline(timeout: float, what: str, strike: Callable[[str], None] = end_process) -> Iterator[None]:
    """A deadline for what cannot be polled, such as the making of a communicator: past it another thread calls `strike`."""
    timer = threading.Timer(timeout, lambda: strike(f"waited {timeout:.0f} s for {what}"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def arm(seconds: float) -> None:
    """The kernel ends this process after so many seconds, even while a library keeps the interpreter; 0 takes it back.

    Does nothing where the program has a use of its own for SIGALRM.
    """
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def armed(seconds: float) -> Iterator[None]:
    """`arm` for the length of a block."""
    arm(seconds)
    try:
        yield
    finally:
        arm(0)
