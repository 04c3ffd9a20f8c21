"""Ranks as processes, over any transport. Every wait has a deadline, and a rank that fails, leaves or stops ends the job.

`MpiComm` and `TorchComm` add a transport. Several threads may communicate at once if each uses communicators of its own
(`Comm.split`), because transports match collectives by their order within a communicator.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import EXIT_PEER_LOST, PeerLost, UsageError
from .base import Comm
from .primitives import tree_sum
from .process_end import Sentinel
from .side_channels import SideChannel, ranks_in_words
from .watch import Watch

GRACE_SECONDS = 5.0  # a collective that a leaving rank has finished may still be running on this rank


_ONE_THREAD = (
    "this MPI library serves one thread only, and sampling ahead on a thread of its own needs MPI_THREAD_MULTIPLE: leave "
    "mpi4py.rc.thread_level at 'multiple', use a library that supports it, or sample in turns: sampling_threads 0, prefetch=False of a "
    "loader"
)


class ProcessComm(Comm):
    """A communicator of processes. It starts non-blocking operations and polls them until the deadline.

    A transport adds the operations below and the primitives that are left, and raises one of `faults` if a peer died or is in another
    collective. Any wait may take `timeout` seconds, except the creation of this communicator, which blocks. `sentinel` reports
    this rank if its process ends unexpectedly.
    """

    def __init__(
        self, rank: int, size: int, channel: SideChannel, faults: tuple[type[Exception], ...], timeout: float, sentinel: Sentinel
    ) -> None:
        super().__init__(rank, size)
        self._channel, self._faults, self._sentinel = channel, faults, sentinel
        self._top: ProcessComm = self
        self._members, self._among = list(range(size)), ""
        self._only_thread: int | None = None
        self._busy, self._striking, self._ending = threading.Lock(), threading.Lock(), threading.Lock()
        self.watch = Watch(timeout, self._strike, self._glance)
        self.closed = False
        self._hook, self._thread_hook = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self._on_exception, self._on_thread_exception
        atexit.register(self.close)
        self._process = os.getpid()
        os.register_at_fork(after_in_child=self._forget)

    # ---- operations that a transport adds to the primitives

    @abstractmethod
    def _exchange_shares(self, array: np.ndarray, counts: list[int], into: np.ndarray) -> Callable[[], bool]:
        """Begin to send ``counts[r]`` entries of `array` to each rank r and to fill ``into[r]`` from it; return a function that polls."""

    @abstractmethod
    def _gather_shares(self, share: np.ndarray, counts: list[int], array: np.ndarray) -> Callable[[], bool]:
        """Begin to fill `array` with the shares of all ranks in rank order; return a function that polls."""

    @abstractmethod
    def _send_from_root(self, part: np.ndarray, root: int) -> Callable[[], bool]:
        """Begin to overwrite the bytes of all ranks with the root's; return a function that polls."""

    @abstractmethod
    def _end_ranks(self, code: int) -> None:
        """End all ranks with an exit code; does not return."""

    # ---- collectives built on these operations

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        """Sum one share of the array per rank, in the order of `tree_sum`: the bits do not depend on library and launcher."""
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        counts = [len(range(r, len(array), self.size)) for r in range(self.size)]
        received = np.empty((self.size, counts[self.rank]), array.dtype)
        self._complete(what, lambda: self._exchange_shares(array, counts, received))
        total = tree_sum(received)
        self._complete(what, lambda: self._gather_shares(total, counts, array))

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        out = np.empty(int(sizes.sum()), np.uint8)
        self._complete(f"allgather {kind} {len(out)} bytes", lambda: self._gather_shares(part, sizes.tolist(), out))
        return out

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        self._complete(f"broadcast {kind} {len(part)} bytes from rank {root}", lambda: self._send_from_root(part, root))

    # ---- leaving

    def close(self) -> None:
        """Leave together with all ranks. Runs at interpreter exit too, so that others notice a rank that leaves early."""
        self.leave(None)

    def leave(self, within: float | None, reason: str = "") -> bool:
        """Leave together with all ranks; return False if some are missing after `within` seconds. `reason` describes a failure."""
        if self.closed or self._process != os.getpid():
            return True
        if within is None:
            self._channel.send_all("left")
            self.watch.wait(self._channel.all_left, "the other ranks to leave")
        else:
            until = time.monotonic() + within
            while not self._channel.all_left(reason):
                if time.monotonic() > until:
                    return False
                time.sleep(0.01)
        self.closed = True
        self._sentinel.report("left")
        sys.excepthook, threading.excepthook = self._hook, self._thread_hook
        atexit.unregister(self.close)
        return True

    def left_before(self, reason: str) -> bool:
        """Return True if a lower rank left for the same reason; to be called once all have left."""
        return self._channel.left_before(reason)

    def abort(self, code: int) -> None:
        """End all ranks with an exit code; does not return. Any thread may call it at any time."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.05)  # let the launcher read the output
        self._top._end_ranks(code)

    # ---- waiting

    @property
    def timeout(self) -> float:
        return self.watch.timeout

    def wait_for(self, what: str, done: Callable[[], bool]) -> None:
        try:
            self._wait(what, done)
        except RuntimeError as error:  # raised by the transport
            self._strike(f"{what} failed: {error}")

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        self._attempt(what, lambda: self.watch.wait(done, what + self._among, self._glance))

    def _complete(self, what: str, start: Callable[[], Callable[[], bool]]) -> None:
        """Start something non-blocking and poll what it returns until it is done."""
        what += self._among
        if not self._busy.acquire(blocking=False):
            raise UsageError(
                f"two threads use one communicator at once: {what} began during {self.watch.now()}; give each thread its own, from split()"
            )
        try:
            self._attempt(what, lambda: self.watch.wait(start(), what, self._glance))
        finally:
            self._busy.release()

    def _forget(self) -> None:
        """In a forked process: leave the job to the parent. Nothing is left to do once the communicator is closed."""
        if self.closed:
            return
        sys.excepthook, threading.excepthook = self._hook, self._thread_hook
        atexit.unregister(self.close)

    def check_threads(self) -> None:
        if self._top._only_thread is not None:
            raise UsageError(_ONE_THREAD)

    def _attempt(self, what: str, act: Callable[[], Any]) -> Any:
        if self._top._process != os.getpid():
            raise UsageError(
                f"a forked process cannot use the communicator of process {self._top._process}, and started {what}; "
                "sample in the rank itself, without worker processes"
            )
        if self._top._only_thread not in (None, threading.get_ident()):
            raise UsageError(f"{_ONE_THREAD}; another thread started {what}")
        try:
            return act()
        except self._faults as error:  # a peer died, or is in another collective
            self._strike(f"{what} failed: {error}")

    def _glance(self, waited: float) -> None:
        """Between two polls: answer ranks that ask, and end the job if a rank has left early."""
        self._channel.read()
        if self._channel.leaving or waited < GRACE_SECONDS:
            return
        left = [rank for rank in self._channel.gone() if rank in self._members]
        if left:
            self._end(f"{ranks_in_words(left)} left early while this rank is in {self.watch.now()}")

    # ---- the end

    def _strike(self, report: str) -> None:
        with self._top._striking:  # one thread calls the roll; the other threads of this rank wait for the end
            try:
                self._end(f"{report}. {self._channel.roll_call()}")
            except self._faults as error:
                self._end(f"{report}. Asking the others failed: {error}")

    def _end(self, reason: str) -> None:
        top = self._top
        with top._ending:  # one thread reports
            sys.stderr.write(
                f"bulksample: rank {top.rank} of {top.size}: {reason}\nlast collectives of rank {top.rank}:\n{self.watch.history()}\n"
                "ending all ranks; a training that keeps checkpoints goes on from the last one with --resume auto, "
                "in Python resume='auto'\n"
            )
            self.abort(EXIT_PEER_LOST)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(sys.stderr, io.StringIO) and sys.__stderr__:  # torch.distributed's hook prints what this one writes after its return
            sys.stderr = sys.__stderr__
        sys.stderr.write(f"bulksample: rank {self.rank} of {self.size} failed; ending all ranks\n")
        self._hook(kind, error, trace)
        self.abort(EXIT_PEER_LOST if issubclass(kind, PeerLost) else 1)

    def _on_thread_exception(self, failed: threading.ExceptHookArgs) -> None:
        """End the job if the thread took part in collectives, because other ranks wait for it; else only report the exception."""
        if failed.exc_value is None or failed.exc_type is SystemExit or not self.watch.used_here:
            self._thread_hook(failed)
        else:
            self._on_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)


class SubComm(ProcessComm):
    """A subset of the ranks. It shares the watch and the side channel of all ranks; error messages use ranks of the whole job."""

    def __init__(self, whole: ProcessComm, members: list[int]) -> None:
        Comm.__init__(self, members.index(whole.rank), len(members))
        self._channel, self._faults, self._sentinel = whole._channel, whole._faults, whole._sentinel
        self.watch, self._top = whole.watch, whole._top
        self._busy = threading.Lock()
        self._members = [whole._members[r] for r in members]
        self._among = f" among {ranks_in_words(self._members)}" if len(members) < 9 else f" among {len(members)} ranks"
        self.closed = False

    def leave(self, within: float | None, reason: str = "") -> bool:
        """Wait for the ranks of this communicator, then go on; only all ranks together leave the job."""
        if not self.closed:
            self.barrier()
            self.closed = True
        return True
