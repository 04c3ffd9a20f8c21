"""Switch from one thread to another between two lines of Python, at each line in turn: not by luck, as the scheduler does."""

import sys
import threading
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from weakref import WeakSet

from waiting import join, until

import bulksample

PACKAGE = str(Path(bulksample.__file__).parent)
LOCK = threading.Lock


def unlock_cached_properties(monkeypatch):
    """Take the lock from every `cached_property` of the package, as Python 3.12 did: on 3.11 one thread computes a property at a time."""
    owners = [own for name, module in list(sys.modules.items()) if name.startswith("bulksample.") for own in list(vars(module).values())]
    for own in {own for own in owners if isinstance(own, type)}:
        for value in vars(own).values():
            if isinstance(value, cached_property):
                monkeypatch.setattr(value, "lock", nullcontext(), raising=False)


class _TellingLock:
    """A lock that tells which thread holds it and which wait for it."""

    def __init__(self):
        self._lock, self.holder, self.waiting = LOCK(), None, set()

    def acquire(self, blocking=True, timeout=-1):
        thread = threading.current_thread()
        taken = self._lock.acquire(blocking=False)
        if blocking and not taken:
            self.waiting.add(thread)
            taken = self._lock.acquire(timeout=timeout)
            self.waiting.discard(thread)
        if taken:
            self.holder = thread
        return taken

    def release(self):
        self.holder = None
        self._lock.release()

    def locked(self):
        return self._lock.locked()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


@contextmanager
def _telling_locks():
    """Give the package locks that tell who waits: those of its modules, and those that it makes meanwhile; yields the set of them."""
    locks, changed = WeakSet(), []

    def telling():
        locks.add(lock := _TellingLock())
        return lock

    def made():
        return telling() if sys._getframe(1).f_code.co_filename.startswith(PACKAGE) else LOCK()

    for module in [module for name, module in list(sys.modules.items()) if name.startswith("bulksample.")]:
        for name, value in list(vars(module).items()):
            if type(value) is type(LOCK()):
                changed.append((module, name, value))
                setattr(module, name, telling())
    threading.Lock = made
    try:
        yield locks
    finally:
        threading.Lock = LOCK
        for module, name, value in changed:
            setattr(module, name, value)


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

    def join_unless_it_waits(self, holder, locks):
        """Wait until the thread has ended, or waits for a lock that another thread holds."""

        def ended_or_waits():
            self.join(0.005)
            return not self.is_alive() or any(self in lock.waiting and lock.holder is holder for lock in list(locks))

        until(ended_or_waits, lambda: "the second call waits for the first, but for no lock of the package")


def at_every_line(setup, files):
    """Run two calls side by side for each line of some files of the package that the first of them reaches; return how many there were.

    Parameters
    ----------
    setup : callable
        Returns ``first, second, check``: two calls on objects made anew, and what is told their results, or what they raised.
        For each line in turn, the first call stops before the line runs for the first time, the second runs from its beginning
        to its end (or until it waits for a lock of the package that the first holds), then the first goes on. No time decides.
    files : list of str
        Paths within the package, or of its folders.
    """
    with _telling_locks() as locks:
        return _switched(setup, tuple(f"{PACKAGE}/{name}" for name in files), locks)


def _switched(setup, places, locks):
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
                other.join_unless_it_waits(threading.current_thread(), locks)
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
