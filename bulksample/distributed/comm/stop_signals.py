"""Requests to stop: SIGINT (Ctrl-C), SIGTERM, SIGUSR1 of a scheduler some time before the end, and SIGHUP of a lost terminal.

In a training the first request lets the loop finish its step and write a checkpoint. Everywhere else it raises `Stopped`.
A later SIGINT or SIGTERM ends the process at once, by the default action of the signal. In a Python program a later SIGINT raises
KeyboardInterrupt instead if it did so before the training: a notebook keeps its process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_AT_ONCE = (signal.SIGINT, signal.SIGTERM)  # a scheduler may send SIGTERM long after SIGUSR1: that is still a first request
_SAME_SECONDS = 0.5  # one Ctrl-C may arrive twice, from the terminal and from a launcher


class Stopped(BaseException):
    """Raised by a signal that asks this process to stop; its message is the name of the signal. No `except Exception` catches it."""


class StopSignals:
    """A context that records requests to stop in `received`, so that the loop can finish its step, write a checkpoint and return.

    Off the main thread, where Python allows no handlers, it does nothing. A signal that the parent process ignores stays ignored:
    a shell lets its background jobs ignore Ctrl-C. A handler of C code stays, because Python could not put it back.
    """

    def __init__(self) -> None:
        self.received = False
        self._asked: float | None = None
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> StopSignals:
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # once one is gone, it is no longer known as one
        self._before = {number: signal.signal(number, self._handle) for number in _ours()}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave(self._terminals)
        if number in _AT_ONCE:
            now = time.monotonic()
            if self._asked is not None:
                if now - self._asked > _SAME_SECONDS:
                    self._act_again(number)
                return
            self._asked = now
        first, self.received = not self.received, True
        if first:
            self._act(number)

    def _act(self, number: int) -> None:
        """React to the first request; the loop reads `received`."""

    def _act_again(self, number: int) -> None:
        """React to a later request: raise KeyboardInterrupt where Python would have done so, else end the process."""
        if self._before[number] is signal.default_int_handler:
            signal.signal(number, signal.default_int_handler)
            raise KeyboardInterrupt
        _end(number)


class RaiseStopped(StopSignals):
    """A context in which the first request to stop raises `Stopped` on the main thread."""

    def _act(self, number: int) -> None:
        raise Stopped(signal.Signals(number).name)

    def _act_again(self, number: int) -> None:
        _end(number)


@contextmanager
def default_actions() -> Iterator[None]:
    """Let signals end the process at once for the length of a ``with`` block: in a library that does not return, handlers never run."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _ours()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ours() -> list[signal.Signals]:
    """Return the signals to handle: none off the main thread, none that is ignored, none whose handler Python cannot put back (None)."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _leave(terminals: list[int]) -> None:
    """Write to the null device in place of a terminal that is gone: each write there would fail, and end the run before its checkpoint."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in terminals:
        os.dup2(null, stream)
    os.close(null)


def _end(number: int) -> None:
    """End this process by the default action of a signal, so that its parent sees which one it was."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
