"""Start the collectives of several threads in one order that all ranks share.

A device runs collectives one after the other. If two threads of a rank start theirs in one order, and those of another rank in the other,
each rank may wait in a collective that the other has not started: a deadlock. Here every rank has one thread that starts them all.
Rank 0 takes what comes first and tells the others whose turn it is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from ...errors import PeerLost
from .base import Comm

T = TypeVar("T")


class CollectiveOrder:
    """One thread that starts the collectives of this rank. Making it is collective over all ranks whose devices take part.

    Turns travel by a duplicate of `comm`: 8 bytes of kind "control" from rank 0 to each other rank for each collective. The collectives of
    one `turns` name must come in the same order on every rank, as those of one thread do. Names, numbers below 2**31, may mix in any order,
    and on every rank in another. Then nothing deadlocks: what rank 0 has chosen waits only for collectives that were chosen before it.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm, self._waiting = comm.duplicate(), dict[int, deque[tuple[Callable[[], Any], Future[Any]]]]()
        self._arrived, self._changed = deque[int](), threading.Condition()
        self._ended = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="bulksample-collectives", daemon=True)
        self._thread.start()

    def run(self, turns: int, start: Callable[[], T]) -> T:
        """Have the thread call ``start()`` when its turn comes; return its result, or raise its error.

        `turns` names the order that the collective belongs to, such as that of the thread which samples. `start` need not wait for the end
        of the collective. Raises `PeerLost` if the thread ended, because the turns of the other ranks did not come in time or by `close`.
        """
        result = Future[T]()
        with self._changed:
            if self._ended:
                raise PeerLost(f"rank {self._comm.rank} starts no more collectives: {self._failure or 'they were closed'}")
            self._waiting.setdefault(turns, deque()).append((start, result))
            self._arrived.append(turns)
            self._changed.notify_all()
        return result.result()

    def close(self, wait: bool = True) -> None:
        """End the thread after the collectives that wait, and wait for its end; not collective. May be called again."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or bool(self._arrived))
                    if not self._arrived:
                        break
                turn = np.array([self._arrived[0]], np.int64)  # rank 0 takes what arrived first there
                start, result = self._next(int(self._comm.broadcast(turn, "control")[0]))
                try:
                    result.set_result(start())
                except BaseException as error:  # raised where it was asked for
                    result.set_exception(error)
        except BaseException as error:  # whoever waits is told
            self._failure = error
        with self._changed:
            self._ended = True
            left = [result for calls in self._waiting.values() for _, result in calls]
        for result in left:
            result.set_exception(PeerLost(f"rank {self._comm.rank} starts no more collectives: {self._failure}"))

    def _next(self, turns: int) -> tuple[Callable[[], Any], Future[Any]]:
        """Wait for the collective whose turn it is, which may come later here."""
        until = time.monotonic() + self._comm.timeout
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._waiting.get(turns)), until - time.monotonic()):
                raise PeerLost(
                    f"rank {self._comm.rank} waited {self._comm.timeout:g} s for its own collective of order {turns}, whose turn it is"
                )
            self._arrived.remove(turns)
            return self._waiting[turns].popleft()
