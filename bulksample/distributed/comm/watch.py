"""Polling with a deadline, and a record of the last collectives that is printed when a deadline passes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ...errors import EXIT_PEER_LOST

REMEMBERED = 64
_SPIN_SECONDS = 50e-6  # most small collectives finish in it; spinning longer takes the core from the rank awaited
_LONGEST_NAP = 1e-3
_GLANCE_EVERY = 0.05


@dataclass
class Collective:
    """A record of one collective of this rank."""

    number: int
    what: str
    began: float
    thread: str  # empty for the main thread
    seconds: float | None = None

    def __str__(self) -> str:
        state = "not finished" if self.seconds is None else f"{self.seconds:.3f} s"
        return f"#{self.number} {self.what}{self.thread and f' on thread {self.thread}'}: {state}"


class Watch:
    """Wait for collectives with a deadline, and record the last 64 of all threads. A thread waits for one at a time.

    `strike` is called with a report when a wait takes longer than `timeout` seconds, and must not return. `glance` is called about every 50
    ms of waiting, with the seconds waited so far, on every thread that waits.
    """

    def __init__(self, timeout: float, strike: Callable[[str], None], glance: Callable[[float], None] | None = None) -> None:
        self.timeout, self._strike, self._glance = timeout, strike, glance
        self._ring: deque[Collective] = deque(maxlen=REMEMBERED)
        self._waiting: dict[int, Collective] = {}  # by thread
        self._number = 0
        self._lock = threading.Lock()  # guards the three attributes above
        self._thread = threading.local()

    def wait(self, done: Callable[[], bool], what: str, glance: Callable[[float], None] | None = None) -> None:
        """Poll `done` until it is true: spin briefly, then sleep up to a millisecond at a time. `glance` replaces the default."""
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
        self._thread.used = True
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
        """True if the current thread has ever waited here; other ranks may then be waiting for it."""
        return getattr(self._thread, "used", False)

    def now(self) -> str:
        """Describe the collectives that the threads of this rank wait for, or else the last one."""
        with self._lock:
            waiting = list(self._waiting.values()) or list(self._ring)[-1:]
        return "; ".join(map(str, waiting)) or "no collective yet"

    def history(self) -> str:
        """Return the last 64 collectives, oldest first, after older ones that are unfinished; equal ones in a row share a line."""
        with self._lock:
            ring = list(self._ring)
            older = [entry for entry in self._waiting.values() if entry.number < ring[0].number]
        runs = (run for _, run in groupby(older + ring, lambda entry: (entry.what, entry.thread, entry.seconds is None)))
        lines = []
        for run in map(list, runs):
            slowest = max(run, key=lambda entry: entry.seconds or 0.0)
            lines.append(f"  {slowest}" + f", the slowest of #{run[0].number} to #{run[-1].number}" * (len(run) > 1))
        return "\n".join(lines)


def end_process(report: str) -> None:
    """Print the report and exit at once with code 75; the launcher then ends the other ranks."""
    sys.stderr.write(f"bulksample: {report}; ending this rank\n")
    sys.stderr.flush()
    os._exit(EXIT_PEER_LOST)


@contextmanager
def _called_after(seconds: float, call: Callable[[], Any]) -> Iterator[None]:
    """Call `call` on a timer thread unless the block ends within so many seconds."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def deadline(timeout: float, what: str, strike: Callable[[str], None] = end_process) -> AbstractContextManager[None]:
    """Limit a block that cannot be polled, such as the creation of a communicator: a timer thread calls `strike` when it expires."""
    return _called_after(timeout, lambda: strike(f"waited {timeout:.0f} s for {what}"))


def announce(what: str, timeout: float, after: float, speaks: bool = True) -> AbstractContextManager[None]:
    """Say on standard error what a block waits for, and for how long, once it has taken `after` seconds."""
    line = f"bulksample: {what}, for up to {timeout:g} s\n"
    return _called_after(after, lambda: sys.stderr.write(line)) if speaks else nullcontext()


def set_alarm(seconds: float) -> None:
    """Let the kernel end this process after so many seconds, even inside a library; 0 cancels. A program's own SIGALRM handler stays."""
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Set an alarm for the length of a ``with`` block."""
    set_alarm(seconds)
    try:
        yield
    finally:
        set_alarm(0)
