"""Switch from one thread to another between two lines of Python, at each line in turn: not by luck, as the scheduler does."""

import sys
import threading
import time
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

from waiting import PATIENCE, join

import bulksample

PACKAGE = str(Path(bulksample.__file__).parent)
BLOCKED = 0.15  # seconds in one place after which the second thread is taken to wait for the first, as for a lock that it holds


def unlock_cached_properties(monkeypatch):
    """Take the lock from every `cached_property` of the package, as Python 3.12 did: on 3.11 one thread computes a property at a time."""
    owners = [own for name, module in list(sys.modules.items()) if name.startswith("bulksample.") for own in list(vars(module).values())]
    for own in {own for own in owners if isinstance(own, type)}:
        for value in vars(own).values():
            if isinstance(value, cached_property):
                monkeypatch.setattr(value, "lock", nullcontext(), raising=False)


class _Run(threading.Thread):
    """A thread that keeps what its call returned or raised."""

    def __init__(self, call, before=None):
        super().__init__(daemon=True)
        self.call, self.before, self.result = call, before, None

    def run(self):
        sys.settrace(self.before)
        try:
            self.result = self.call()
        except Exception as error:
            self.result = error
        finally:
            sys.settrace(None)

    def join_unless_blocked(self):
        """Wait until the thread has ended, or stays where it is."""
        place, since, ends = None, time.monotonic(), time.monotonic() + PATIENCE
        while self.is_alive() and time.monotonic() < min(since + BLOCKED, ends):
            self.join(0.005)
            frame = sys._current_frames().get(self.ident)
            now = None if frame is None else (id(frame), frame.f_lasti)
            if now != place:
                place, since = now, time.monotonic()


def at_every_line(setup, files):
    """Run two calls side by side for each line of some files of the package that the first of them reaches; return how many there were.

    Parameters
    ----------
    setup : callable
        Returns ``first, second, check``: two calls on objects made anew, and what is told their results, or what they raised.
        For each line in turn, the first call stops before the line runs for the first time, the second runs from its beginning
        to its end (or until it waits for the first), then the first goes on.
    files : list of str
        Paths within the package, or of its folders.
    """
    places = tuple(f"{PACKAGE}/{name}" for name in files)
    switches, done = 0, set()
    while True:
        first, second, check = setup()
        other, stopped = _Run(second), []

        def local(frame, event, _, other=other, stopped=stopped):
            place = (frame.f_code, frame.f_lineno)
            if event == "line" and not stopped and place not in done:
                done.add(place)
                stopped.append(place)
                sys.settrace(None)
                other.start()
                other.join_unless_blocked()
                return None
            return local

        def call(frame, event, _, local=local, stopped=stopped):
            return local if not stopped and frame.f_code.co_filename.startswith(places) else None

        one = _Run(first, call)
        one.start()
        join(one)
        if not stopped:
            return switches
        join(other)
        switches += 1
        check(one.result, other.result)
