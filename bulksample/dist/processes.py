"""Ranks as MPI processes. No wait is without a deadline; a rank that fails, leaves or falls silent ends the job.

The module mpi4py.MPI comes in as an argument: dist/comm.py is where it is imported.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import EXIT_PEER_LOST, PeerLost
from .base import Comm, Flight
from .notes import Notes, ranks_in_words
from .watch import Watch, guarded

_GRACE_SECONDS = 5.0  # a collective that a leaving rank has finished may still be on its way to this one
_TAGS = 2**15  # what every MPI library has


class MpiComm(Comm):
    """All ranks. Collectives are non-blocking underneath and polled until the deadline."""

    def __init__(self, mpi: Any, timeout: float) -> None:
        with guarded(timeout, "the ranks of the job to come together"):
            comm, notes = mpi.COMM_WORLD.Dup(), Notes(mpi, lambda: self.watch.now())
        super().__init__(comm.rank, comm.size)
        self._mpi, self._comm, self._notes = mpi, comm, notes
        self._top, self._members, self._among = self, list(range(comm.size)), ""
        self._exchanges, self._in_flight = 0, set[_Letters]()
        self.watch = Watch(timeout, self._strike, self._glance)
        self.closed = False
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception
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
        letters = self._attempt(what, lambda: _Letters(self._mpi, self._comm, self._exchanges % _TAGS, self.most_elements, parts, into))
        self._in_flight.add(letters)  # until it is waited for: MPI writes into its memory

        def wait() -> None:
            if letters in self._in_flight:
                self._complete(what, lambda: letters.done)
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

    def leave(self, patience: float | None) -> bool:
        """Leave together with all ranks; False if some have not come after `patience` seconds."""
        if self.closed:
            return True
        self._notes.tell_all("left")
        if patience is None:
            self.watch.wait(self._notes.all_left, "the other ranks to leave")
        elif not self._notes.all_leave_within(patience):
            return False
        self.closed = True
        sys.excepthook = self._hook
        atexit.unregister(self.close)
        return True

    def abort(self, code: int) -> None:
        """End all ranks with an exit code; does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.05)  # let the launcher read what was just printed
        self._top._comm.Abort(code)

    def _complete(self, what: str, start: Callable[[], Callable[[], bool]]) -> None:
        """Start something non-blocking and poll what it returns until it is done."""
        what += self._among
        self._attempt(what, lambda: self.watch.wait(start(), what, self._glance))

    def _attempt(self, what: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except self._mpi.Exception as error:  # a peer died, or is in another collective
            self._end(f"{what} failed: {error}")

    def _glance(self, waited: float) -> None:
        """While waiting: answer those who ask, and notice those who left."""
        self._notes.read()
        if self._notes.leaving or waited < _GRACE_SECONDS:
            return
        left = [rank for rank in self._notes.gone() if rank in self._members]
        if left:
            self._end(f"{ranks_in_words(left)} left early while this rank is in {self.watch.now()}")

    def _strike(self, report: str) -> None:
        self._end(f"{report}. {self._notes.roll_call()}")

    def _end(self, reason: str) -> None:
        top = self._top
        print(
            f"bulksample: rank {top.rank} of {top.size}: {reason}\nlast collectives of rank {top.rank}:\n{self.watch.history()}\n"
            "ending all ranks; run again with --resume auto to go on from the last checkpoint",
            file=sys.stderr,
        )
        self.abort(EXIT_PEER_LOST)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        print(f"bulksample: rank {self.rank} of {self.size} failed; ending all ranks", file=sys.stderr)
        self._hook(kind, error, trace)
        self.abort(EXIT_PEER_LOST if issubclass(kind, PeerLost) else 1)


class _Part(MpiComm):
    """Some of the ranks. The watch, the notes and the way out are those of all ranks; messages name ranks of the job."""

    def __init__(self, whole: MpiComm, color: int, members: list[int]) -> None:
        Comm.__init__(self, members.index(whole.rank), len(members))
        self._mpi, self._notes, self.watch, self._top = whole._mpi, whole._notes, whole.watch, whole._top
        self._members = [whole._members[r] for r in members]
        self._among = f" among {ranks_in_words(self._members)}" if len(members) < 9 else f" among {len(members)} ranks"
        self._exchanges, self._in_flight = 0, whole._in_flight
        with guarded(self.watch.timeout, "the other ranks to split"):
            self._comm = whole._comm.Split(color, self.rank)
        self.closed = False

    def leave(self, patience: float | None) -> bool:
        """The ranks of this communicator wait for each other and go on; the job is left by all ranks together."""
        if not self.closed:
            self.barrier()
            self.closed = True
        return True


class _Letters:
    """One all-to-all as messages between pairs of ranks, each of at most `most` bytes; nothing is sent for nothing."""

    def __init__(self, mpi: Any, comm: Any, tag: int, most: int, parts: list[np.ndarray], into: list[np.ndarray]) -> None:
        self._mpi = mpi
        self.wrong = ""  # what came otherwise than agreed
        self._expected = [(r, place[at : at + most]) for r, place in enumerate(into) if r != comm.rank for at in range(0, len(place), most)]
        outgoing = [(r, part[at : at + most]) for r, part in enumerate(parts) if r != comm.rank for at in range(0, len(part), most)]
        self._requests = [comm.Irecv([place, mpi.BYTE], r, tag) for r, place in self._expected]
        self._requests += [comm.Isend([part, mpi.BYTE], r, tag) for r, part in outgoing]
        self._statuses = [mpi.Status() for _ in self._requests]
        self._landed = not self._requests

    def done(self) -> bool:
        if not self._landed:
            self._landed = self._mpi.Request.Testall(self._requests, self._statuses)
            if self._landed:
                self._compare()
        return self._landed

    def _compare(self) -> None:
        for (rank, place), status in zip(self._expected, self._statuses, strict=False):
            found = status.Get_count(self._mpi.BYTE)
            if found != len(place):
                self.wrong = f"rank {rank} sent {found} bytes where {len(place)} were agreed"
