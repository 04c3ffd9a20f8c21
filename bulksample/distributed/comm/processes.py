"""Ranks as processes, whatever moves their bytes. No wait is without a deadline; a rank that fails, leaves or falls silent ends the job.

`MpiComm` and `TorchComm` add a transport. Several threads may communicate at once, each over communicators of its own
(`Comm.split`): transports match collectives by their order within a communicator.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...errors import EXIT_PEER_LOST, PeerLost, UsageError
from .base import Comm
from .sentinel import Sentinel
from .watch import Watch

_GRACE_SECONDS = 5.0  # a collective that a leaving rank has finished may still be on its way to this one


class SideChannel(Protocol):
    """Short notes between ranks, beside the collectives: who is where, and who has left. Any thread may read and write."""

    def tell_all(self, text: str) -> None:
        """Tell all ranks; "left" is the one thing that is told."""

    def read(self) -> None:
        """Take in what has come, and say where this rank is to those who want to know."""

    def gone(self) -> list[int]:
        """The ranks that have left."""

    def all_left(self, reason: str = "") -> bool:
        """Whether every rank is leaving. From a rank's first call on it counts as leaving itself, for a reason if something is wrong."""

    @property
    def leaving(self) -> bool:
        """Whether this rank is."""

    def left_before(self, reason: str) -> bool:
        """Whether a rank before this one has left for the same reason; once all have left."""

    def roll_call(self) -> str:
        """Ask all ranks where they are and name those that give no sign of life."""


class ProcessComm(Comm):
    """All ranks, or some of them. Collectives are non-blocking underneath and polled until the deadline.

    A transport adds the primitives, `_exchange_shares`, `_gather_shares` and `_end_ranks`.

    Parameters
    ----------
    faults : exceptions
        What the transport raises where a peer died, or is in another collective.
    timeout : float
        Seconds that any wait may take, but for the making of this communicator: that blocks.
    sentinel : Sentinel
        Names this rank if it ends without a word.
    """

    def __init__(
        self, rank: int, size: int, notes: SideChannel, faults: tuple[type[Exception], ...], timeout: float, sentinel: Sentinel
    ) -> None:
        super().__init__(rank, size)
        self._notes, self._faults, self._sentinel = notes, faults, sentinel
        self._top: ProcessComm = self
        self._members, self._among = list(range(size)), ""
        self._only_thread: int | None = None
        self._busy, self._striking, self._ending = threading.Lock(), threading.Lock(), threading.Lock()
        self.watch = Watch(timeout, self._strike, self._glance)
        self.closed = False
        self._hook, self._thread_hook = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self._on_exception, self._on_thread_exception
        atexit.register(self.close)

    # ---- what a transport adds to the primitives

    @abstractmethod
    def _exchange_shares(self, array: np.ndarray, counts: list[int], into: np.ndarray) -> Callable[[], bool]:
        """Begin to send entries of an array to all ranks, ``counts[r]`` of them to rank r in order, and to fill row r of `into` with
        what rank r has for this one; what is returned says when that is done."""

    @abstractmethod
    def _gather_shares(self, share: np.ndarray, counts: list[int], array: np.ndarray) -> Callable[[], bool]:
        """Begin to fill an array with the shares of all ranks in rank order."""

    @abstractmethod
    def _end_ranks(self, code: int) -> None:
        """End all ranks with an exit code; does not return."""

    # ---- collectives that are made of those

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        """Each rank adds up the shares of all in rank order, so that sums are the same bits whatever the library and the launcher."""
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        counts = [len(range(r, len(array), self.size)) for r in range(self.size)]
        brought = np.empty((self.size, counts[self.rank]), array.dtype)
        self._complete(what, lambda: self._exchange_shares(array, counts, brought))
        total = np.zeros(counts[self.rank], array.dtype)
        for share in brought:
            total += share
        self._complete(what, lambda: self._gather_shares(total, counts, array))

    # ---- leaving

    def close(self) -> None:
        """Leave together. Also called when the interpreter exits, so that a rank that leaves early is noticed."""
        self.leave(None)

    def leave(self, within: float | None, reason: str = "") -> bool:
        """Leave together with all ranks; False if some have not come after `within` seconds. A reason says what went wrong."""
        if self.closed:
            return True
        if within is None:
            self._notes.tell_all("left")
            self.watch.wait(self._notes.all_left, "the other ranks to leave")
        elif not self._all_leave_within(within, reason):
            return False
        self.closed = True
        self._sentinel.say("left")
        sys.excepthook, threading.excepthook = self._hook, self._thread_hook
        atexit.unregister(self.close)
        return True

    def _all_leave_within(self, seconds: float, reason: str) -> bool:
        until = time.monotonic() + seconds
        while not self._notes.all_left(reason):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def left_before(self, reason: str) -> bool:
        """Whether a rank before this one has left for the same reason; once all have left."""
        return self._notes.left_before(reason)

    def abort(self, code: int) -> None:
        """End all ranks with an exit code; does not return. Any thread may call it, whatever the others are doing."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.05)  # let the launcher read what was just printed
        self._top._end_ranks(code)

    # ---- waiting

    @property
    def timeout(self) -> float:
        return self.watch.timeout

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        try:
            self._attempt(what, lambda: self.watch.wait(done, what + self._among, self._glance))
        except RuntimeError as error:  # of whatever carries it
            self._strike(f"{what} failed: {error}")

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
        except self._faults as error:  # a peer died, or is in another collective
            self._strike(f"{what} failed: {error}")

    def _glance(self, waited: float) -> None:
        """While waiting: answer those who ask, and notice those who left."""
        self._notes.read()
        if self._notes.leaving or waited < _GRACE_SECONDS:
            return
        left = [rank for rank in self._notes.gone() if rank in self._members]
        if left:
            self._end(f"{ranks_in_words(left)} left early while this rank is in {self.watch.now()}")

    # ---- the end

    def _strike(self, report: str) -> None:
        with self._top._striking:  # one thread asks around; the others of this rank wait for the end
            try:
                self._end(f"{report}. {self._notes.roll_call()}")
            except self._faults as error:
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


class SubComm(ProcessComm):
    """Some of the ranks. The watch, the notes and the way out are those of all ranks; messages name ranks of the job."""

    def __init__(self, whole: ProcessComm, members: list[int]) -> None:
        Comm.__init__(self, members.index(whole.rank), len(members))
        self._notes, self._faults, self._sentinel = whole._notes, whole._faults, whole._sentinel
        self.watch, self._top = whole.watch, whole._top
        self._busy = threading.Lock()
        self._members = [whole._members[r] for r in members]
        self._among = f" among {ranks_in_words(self._members)}" if len(members) < 9 else f" among {len(members)} ranks"
        self.closed = False

    def leave(self, within: float | None, reason: str = "") -> bool:
        """The ranks of this communicator wait for each other and go on; the job is left by all ranks together."""
        if not self.closed:
            self.barrier()
            self.closed = True
        return True


def ranks_in_words(ranks: list[int]) -> str:
    """``rank 1`` or ``ranks 1, 4``."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def roll(answers: dict[int, str], left: list[int], others: list[int]) -> str:
    """What a roll call found: who answered what, who has left, and of whom there is no sign."""
    lines = [f"rank {rank} is {text}" for rank, text in sorted(answers.items())]
    silent = [rank for rank in others if rank not in answers and rank not in left]
    if left:
        lines.append(f"{ranks_in_words(left)} left")
    if silent:
        lines.append(f"no sign of life from {ranks_in_words(silent)}: stopped, lost, or busy outside a collective")
    return "; ".join(lines)
