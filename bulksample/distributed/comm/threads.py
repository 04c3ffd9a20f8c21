"""Communicators within one process: a single rank, or ranks as threads.

`on_threads` runs one function on p threads as p ranks. Most tests of distributed code use it: it is as fast as a function
call, and an exception keeps its traceback.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...errors import PeerLost
from ...sparse import row_pointers
from .base import Comm
from .machines import VARIABLE, simulated
from .primitives import tree_sum

T = TypeVar("T")


class SerialComm(Comm):
    """The communicator of a single rank: every collective is the identity and sends nothing."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        pass

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        return part

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        pass

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        return words

    def _start_alltoall(
        self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str
    ) -> Callable[[], None]:
        into[:] = sent
        return lambda: None

    def _split(self, color: int, members: list[int]) -> Comm:
        return SerialComm()

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Board:
    """Memory in which the threads of one communicator exchange values. An abort breaks all boards that were split from one."""

    def __init__(self, size: int, timeout: float, parent: _Board | None = None) -> None:
        self.meeting = threading.Barrier(size, timeout=timeout)
        self.slots: list[Any] = [None] * size
        self.timeout = timeout
        self._family: list[_Board] = [] if parent is None else parent._family
        self._family.append(self)

    def abort(self) -> None:
        for board in list(self._family):  # a board created just now is not in use yet: its parent is in the list
            board.meeting.abort()


class ThreadComm(Comm):
    """One of several ranks that are threads of this process. Sums are made in the order of `tree_sum`."""

    def __init__(self, rank: int, board: _Board) -> None:
        super().__init__(rank, len(board.slots))
        self._board, self._meetings = board, 0

    @property
    def timeout(self) -> float:
        return self._board.timeout

    def _exchange(self, value: Any, what: str) -> list[Any]:
        """Return the value of every rank for this collective; `what` describes it and must be equal on all ranks."""
        self._meetings += 1
        self._board.slots[self.rank] = (self._meetings, what, value)
        try:
            self._board.meeting.wait()
            slots = list(self._board.slots)
            self._board.meeting.wait()  # no rank writes its next value before all have read this one
        except threading.BrokenBarrierError:
            self._compare(list(self._board.slots), what)
            raise PeerLost(f"rank {self.rank}: another rank failed or stopped during {what}") from None
        self._compare(slots, what)
        return [of_rank for _, _, of_rank in slots]

    def _compare(self, slots: list[Any], what: str) -> None:
        same_time = [(r, slot[1]) for r, slot in enumerate(slots) if slot is not None and slot[0] == self._meetings]
        differing = [f"rank {r} in {name}" for r, name in same_time if name != what]
        if differing:
            raise PeerLost(f"rank {self.rank} is in {what}, but {', '.join(differing)}")

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        array[:] = tree_sum(self._exchange(array.copy(), f"allreduce {kind} {array.dtype} {array.shape}"))

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        return np.concatenate(self._exchange(part.copy(), f"allgather {kind} {sizes.tolist()}"))

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        part[:] = self._exchange(part.copy(), f"broadcast {kind} {part.shape} from {root}")[root]

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        return np.array([theirs[self.rank] for theirs in self._exchange(words.copy(), "alltoall counts")], np.int64)

    def _start_alltoall(
        self, sent: np.ndarray, outgoing: np.ndarray, into: np.ndarray, incoming: np.ndarray, kind: str
    ) -> Callable[[], None]:
        received = self._exchange((sent.copy(), row_pointers(outgoing)), f"alltoall {kind}")
        ends, rank = row_pointers(incoming), self.rank
        for r, (theirs, cuts) in enumerate(received):
            part = theirs[cuts[rank] : cuts[rank + 1]]
            if len(part) != incoming[r]:
                raise PeerLost(f"rank {r} sent {len(part)} bytes to rank {rank}; {incoming[r]} were agreed")
            into[ends[r] : ends[r + 1]] = part
        return lambda: None

    def _split(self, color: int, members: list[int]) -> Comm:
        first = members[0] == self.rank
        boards = self._exchange(_Board(len(members), self._board.timeout, self._board) if first else None, "split")
        return ThreadComm(members.index(self.rank), boards[members[0]])

    def barrier(self) -> None:
        self._exchange(None, "barrier")

    def close(self) -> None:
        self.barrier()


def on_threads(size: int, function: Callable[[Comm], T], timeout: float = 60.0) -> list[T]:
    """Call ``function(comm)`` on `size` ranks that are threads; return the results in rank order.

    They are on one machine, unless BULKSAMPLE_MACHINES simulates several; see `machines_of_ranks`. Raises the exception of the lowest rank
    that raised one, or `PeerLost` if a rank waited longer than `timeout` seconds.
    """
    board = _Board(size, timeout)
    machine_of = simulated(os.environ.get(VARIABLE, str(size)), size)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        try:
            comm = ThreadComm(rank, board)
            comm.machine_of = machine_of
            results[rank] = function(comm)
        except BaseException as error:
            errors[rank] = error
            board.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raised = [error for error in errors if error is not None]
    if raised:
        raise next((error for error in raised if not isinstance(error, PeerLost)), raised[0])
    return results
