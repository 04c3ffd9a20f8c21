"""Communicators without processes: alone, or with ranks as threads of one process.

`on_threads` runs the same function on p threads as p ranks. It is how most tests exercise distributed code: as fast
as a function call, and an exception keeps its traceback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...errors import PeerLost
from .base import COMPLETED, Comm, TransferHandle

T = TypeVar("T")


class SerialComm(Comm):
    """One rank: every collective is the identity and nothing is sent."""

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

    def _start_alltoall(self, parts: list[np.ndarray], into: list[np.ndarray], kind: str) -> TransferHandle:
        return COMPLETED

    def _split(self, color: int, members: list[int]) -> Comm:
        return SerialComm()

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Board:
    """Where the threads of one communicator lay down what they bring. All boards of a world break together."""

    def __init__(self, size: int, timeout: float, parent: _Board | None = None) -> None:
        self.meeting = threading.Barrier(size, timeout=timeout)
        self.places: list[Any] = [None] * size
        self.timeout = timeout
        self._family: list[_Board] = [] if parent is None else parent._family
        self._family.append(self)

    def abort(self) -> None:
        for board in list(self._family):  # one made in this moment is not used: its parent is among them
            board.meeting.abort()


class ThreadComm(Comm):
    """One of several ranks that are threads of this process; sums are taken in rank order."""

    def __init__(self, rank: int, board: _Board) -> None:
        super().__init__(rank, len(board.places))
        self._board, self._meetings = board, 0

    @property
    def timeout(self) -> float:
        return self._board.timeout

    def _exchange(self, mine: Any, what: str) -> list[Any]:
        """What every rank brings to this collective; all must bring the same `what`."""
        self._meetings += 1
        self._board.places[self.rank] = (self._meetings, what, mine)
        try:
            self._board.meeting.wait()
            brought = list(self._board.places)
            self._board.meeting.wait()  # nobody lays down the next before all have read this
        except threading.BrokenBarrierError:
            self._compare(list(self._board.places), what)
            raise PeerLost(f"rank {self.rank}: another rank failed or fell silent during {what}") from None
        self._compare(brought, what)
        return [thing for _, _, thing in brought]

    def _compare(self, brought: list[Any], what: str) -> None:
        same_time = [(r, place[1]) for r, place in enumerate(brought) if place is not None and place[0] == self._meetings]
        differing = [f"rank {r} in {name}" for r, name in same_time if name != what]
        if differing:
            raise PeerLost(f"rank {self.rank} is in {what}, but {', '.join(differing)}")

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        total = np.zeros_like(array)
        for part in self._exchange(array.copy(), f"allreduce {kind} {array.dtype} {array.shape}"):
            total += part
        array[:] = total

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        return np.concatenate(self._exchange(part.copy(), f"allgather {kind} {sizes.tolist()}"))

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        part[:] = self._exchange(part.copy(), f"broadcast {kind} {part.shape} from {root}")[root]

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        return np.array([theirs[self.rank] for theirs in self._exchange(words.copy(), "alltoall counts")], np.int64)

    def _start_alltoall(self, parts: list[np.ndarray], into: list[np.ndarray], kind: str) -> TransferHandle:
        brought = self._exchange([part.copy() for part in parts], f"alltoall {kind}")
        for r, (theirs, place) in enumerate(zip(brought, into, strict=True)):
            part = theirs[self.rank]
            if len(part) != len(place):
                raise PeerLost(f"rank {r} sent {len(part)} bytes to rank {self.rank}; {len(place)} were agreed")
            place[:] = part
        return COMPLETED

    def _split(self, color: int, members: list[int]) -> Comm:
        first = members[0] == self.rank
        boards = self._exchange(_Board(len(members), self._board.timeout, self._board) if first else None, "split")
        return ThreadComm(members.index(self.rank), boards[members[0]])

    def barrier(self) -> None:
        self._exchange(None, "barrier")

    def close(self) -> None:
        self.barrier()


def on_threads(size: int, function: Callable[[Comm], T], timeout: float = 60.0) -> list[T]:
    """Call ``function(comm)`` on `size` ranks that are threads; the results in rank order.

    Raises
    ------
    The exception of the first rank that raised one. `PeerLost` where a rank waited longer than `timeout` seconds.
    """
    board = _Board(size, timeout)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadComm(rank, board))
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
