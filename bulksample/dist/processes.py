"""Ranks as MPI processes. No wait is without a deadline; a rank that fails, leaves or falls silent ends the job.

The module mpi4py.MPI comes in as an argument: dist/comm.py is where it is imported. Several threads may communicate at
once, each over communicators of its own (`Comm.split`): MPI matches collectives by their order within a communicator.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import EXIT_PEER_LOST, PeerLost, UsageError
from .base import Comm, Flight
from .letters import Letters
from .notes import Notes, ranks_in_words
from .sentinel import Sentinel
from .watch import Watch, armed, guarded

_GRACE_SECONDS = 5.0  # a collective that a leaving rank has finished may still be on its way to this one
_ABORT_SECONDS = 5.0  # for the launcher to end this process, too
_TAGS = 2**15  # what every MPI library has


class MpiComm(Comm):
    """All ranks. Collectives are non-blocking underneath and polled until the deadline.

    Parameters
    ----------
    mpi : the module mpi4py.MPI
    timeout : float
        Seconds that any wait may take, but for the making of this communicator: that blocks.
    sentinel : Sentinel
        Names this rank if it ends without a word.
    """

    def __init__(self, mpi: Any, timeout: float, sentinel: Sentinel) -> None:
        comm, notes = mpi.COMM_WORLD.Dup(), Notes(mpi, lambda: self.watch.now())
        super().__init__(comm.rank, comm.size)
        self._mpi, self._comm, self._notes, self._sentinel = mpi, comm, notes, sentinel
        self._top, self._members, self._among = self, list(range(comm.size)), ""
        self._exchanges, self._in_flight = 0, set[Letters]()
        self._busy, self._striking, self._ending = threading.Lock(), threading.Lock(), threading.Lock()
        self._only_thread = None if mpi.Query_thread() >= mpi.THREAD_MULTIPLE else threading.get_ident()
        self.watch = Watch(timeout, self._strike, self._glance)
        self.closed = False
        self._hook, self._thread_hook = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self._on_exception, self._on_thread_exception
        atexit.register(self.close)

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        self._complete(what, lambda: self._comm.Iallreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM).Test)

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        out = np.empty(int(sizes.sum()), np.uint8)
        starts = np.cumsum(sizes) - sizes
        there = [out, sizes.tolist(), starts.tolist(), self._mpi.BYTE]
        self._complete(f"allgather {kind} {len(out)} bytes", lambda: self._comm.Iallgatherv([part, self._mpi.BYTE], there).Test)
        return out

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        what = f"broadcast {kind} {len(part)} bytes from rank {root}"
        self._complete(what, lambda: self._comm.Ibcast([part, self._mpi.BYTE], root).Test)

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        out = np.empty_like(words)
        self._complete("alltoall counts", lambda: self._comm.Ialltoall([words, self._mpi.INT64_T], [out, self._mpi.INT64_T]).Test)
        return out

    def _start_alltoall(self, parts: list[np.ndarray], into: list[np.ndarray], kind: str) -> Flight:
        self._exchanges += 1
        incoming = sum(len(place) for r, place in enumerate(into) if r != self.rank)
        what = f"alltoall {kind} {incoming} bytes"
        letters = self._attempt(what, lambda: Letters(self._mpi, self._comm, self._exchanges % _TAGS, self.most_elements, parts, into))
        self._in_flight.add(letters)  # until it is waited for: MPI writes into its memory

        def wait() -> None:
            if letters in self._in_flight:
                self._attempt(what, lambda: self.watch.wait(letters.done, what + self._among, self._glance))
                self._in_flight.remove(letters)
                if letters.wrong:
                    self._end(f"{what}: {letters.wrong}")

        return Flight(lambda: self._attempt(what, letters.done), wait)

    def _split(self, color: int, members: list[int]) -> Comm:
        return _Part(self, color, members)

    def barrier(self) -> None:
        self._complete("barrier", lambda: self._comm.Ibarrier().Test)

    def close(self) -> None:
        """Leave together. Also called when the interpreter exits, so that a rank that leaves early is noticed."""
        self.leave(None)

    def leave(self, patience: float | None, reason: str = "") -> bool:
        """Leave together with all ranks; False if some have not come after `patience` seconds. A reason says what went wrong."""
        if self.closed:
            return True
        if patience is None:
            self._notes.tell_all("left")
            self.watch.wait(self._notes.all_left, "the other ranks to leave")
        elif not self._notes.all_leave_within(patience, reason):
            return False
        self.closed = True
        self._sentinel.say("left")
        sys.excepthook, threading.excepthook = self._hook, self._thread_hook
        atexit.unregister(self.close)
        return True

    def left_before(self, reason: str) -> bool:
        """Whether a rank before this one has left for the same reason; once all have left."""
        return self._notes.left_before(reason)

    def abort(self, code: int) -> None:
        """End all ranks with an exit code; does not return. Any thread may call it, whatever the others are doing."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.05)  # let the launcher read what was just printed
        with armed(2 * _ABORT_SECONDS):
            if self._top._sentinel.abort(code):
                time.sleep(_ABORT_SECONDS)
            self._top._comm.Abort(code)

    def _complete(self, what: str, start: Callable[[], Callable[[], bool]]) -> None:
        """Start something non-blocking and poll what it returns until it is done."""
        what += self._among
        if not self._busy.acquire(blocking=False):
            raise UsageError(f"two threads use one communicator at once: {what} was asked for during {self.watch.now()}; split() fits")
        try:
            self._attempt(what, lambda: self.watch.wait(start(), what, self._glance))
        finally:
            self._busy.release()

    def _attempt(self, what: str, act: Callable[[], Any]) -> Any:
        if self._top._only_thread not in (None, threading.get_ident()):
            raise UsageError(f"this MPI library serves one thread only, and another one asks for {what}; sample without prefetching")
        try:
            return act()
        except self._mpi.Exception as error:  # a peer died, or is in another collective
            self._strike(f"{what} failed: {error}")

    def _glance(self, waited: float) -> None:
        """While waiting: answer those who ask, and notice those who left."""
        self._notes.read()
        if self._notes.leaving or waited < _GRACE_SECONDS:
            return
        left = [rank for rank in self._notes.gone() if rank in self._members]
        if left:
            self._end(f"{ranks_in_words(left)} left early while this rank is in {self.watch.now()}")

    def _strike(self, report: str) -> None:
        with self._top._striking:  # one thread asks around; the others of this rank wait for the end
            try:
                self._end(f"{report}. {self._notes.roll_call()}")
            except self._mpi.Exception as error:
                self._end(f"{report}. Asking the others failed: {error}")

    def _end(self, reason: str) -> None:
        top = self._top
        with top._ending:  # one thread tells why
            sys.stderr.write(
                f"bulksample: rank {top.rank} of {top.size}: {reason}\nlast collectives of rank {top.rank}:\n{self.watch.history()}\n"
                "ending all ranks; run again with --resume auto to go on from the last checkpoint\n"
            )
            self.abort(EXIT_PEER_LOST)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        sys.stderr.write(f"bulksample: rank {self.rank} of {self.size} failed; ending all ranks\n")
        self._hook(kind, error, trace)
        self.abort(EXIT_PEER_LOST if issubclass(kind, PeerLost) else 1)

    def _on_thread_exception(self, failed: threading.ExceptHookArgs) -> None:
        """A thread that takes part in collectives is missed by other ranks; the end of any other is its own affair."""
        if failed.exc_value is None or failed.exc_type is SystemExit or not self.watch.used_here:
            self._thread_hook(failed)
        else:
            self._on_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)


class _Part(MpiComm):
    """Some of the ranks. The watch, the notes and the way out are those of all ranks; messages name ranks of the job."""

    def __init__(self, whole: MpiComm, color: int, members: list[int]) -> None:
        Comm.__init__(self, members.index(whole.rank), len(members))
        self._mpi, self._notes, self.watch, self._top = whole._mpi, whole._notes, whole.watch, whole._top
        self._busy = threading.Lock()
        self._members = [whole._members[r] for r in members]
        self._among = f" among {ranks_in_words(self._members)}" if len(members) < 9 else f" among {len(members)} ranks"
        self._exchanges, self._in_flight = 0, whole._in_flight
        with guarded(self.watch.timeout, "the other ranks to split", self._strike):
            self._comm = whole._comm.Split(color, self.rank)
        self.closed = False

    def leave(self, patience: float | None, reason: str = "") -> bool:
        """The ranks of this communicator wait for each other and go on; the job is left by all ranks together."""
        if not self.closed:
            self.barrier()
            self.closed = True
        return True
