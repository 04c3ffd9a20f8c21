"""Fork-safe prefetch threads: a forked process has the objects but not the threads, so it makes the calls again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Prefetcher:
    """Threads for calls whose results are needed later; a context that waits for them at its end.

    Parameters
    ----------
    threads : int
        With 0, a call is made when its result is asked for.
    name : str
        Prefix of the names of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads, self._name = threads, name
        self._start()

    def _start(self) -> None:
        self._own = own = set[int]()
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(max(1, self._threads), self._name, lambda: own.add(threading.get_ident()))

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process == os.getpid():
            # the collector of garbage may end an abandoned iteration on its own thread, which cannot wait for itself
            self._executor.shutdown(wait=threading.get_ident() not in self._own)

    def submit(self, call: Callable[..., T], *arguments: Any) -> Callable[[], T]:
        """Begin a call, and return a function that waits for its result. In a process forked meanwhile that function makes the call."""
        if not self._threads:
            return partial(call, *arguments)
        if self._process != os.getpid():
            self._start()
        process, future = self._process, self._executor.submit(call, *arguments)
        return lambda: future.result() if process == os.getpid() else call(*arguments)
