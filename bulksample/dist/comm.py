"""The world of ranks over MPI: the only place that imports mpi4py.

An MPI program hangs for ever when one rank raises, exits early or stops. Here no wait is without a deadline, and
`world` installs what a user would forget: an uncaught exception on one rank ends all ranks with its traceback shown,
a rank that leaves early is noticed, and a rank that falls silent is named when the deadline strikes.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import EXIT_PEER_LOST, PeerLost, UsageError
from .base import KINDS, Comm, Traffic
from .notes import Notes, ranks_in_words
from .threads import SerialComm
from .watch import Watch

__all__ = ["KINDS", "Comm", "MpiComm", "SerialComm", "Traffic", "abort_world", "launched_ranks", "world"]

# A launcher's count of ranks; the first that is set decides, since an mpirun inside a SLURM job knows better than the job.
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_TOGETHER_SECONDS = 1.0  # ranks that all refuse the same request get this long to leave in good order
_GRACE_SECONDS = 5.0  # a collective that a leaving rank has finished may still be on its way to this one

_world: Comm | None = None


def launched_ranks() -> tuple[int, str]:
    """How many ranks a launcher says it started, and the variable that says so; (0, "") without a launcher."""
    for name in _COUNTS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name]), name
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "").isdigit():
        return int(os.environ["WORLD_SIZE"]), "WORLD_SIZE"
    return 0, ""


def world(timeout: float = 300.0) -> Comm:
    """The communicator of all ranks; the same one however often it is asked for.

    Without a launcher it is a `SerialComm` and mpi4py is not imported.

    Parameters
    ----------
    timeout : float
        Seconds that any wait may take before the job is ended with exit code 75.

    Raises
    ------
    UsageError
        If a launcher started several ranks and MPI sees one, or mpi4py is missing.
    """
    global _world
    if _world is not None:
        if isinstance(_world, MpiComm):
            _world.watch.timeout = timeout
        return _world
    if timeout <= 0:
        raise UsageError(f"timeout must be positive; got {timeout} s")
    count, variable = launched_ranks()
    if not variable:
        _world = SerialComm()
        return _world
    mpi = _import_mpi(count, variable)
    size = 1 if mpi is None else mpi.COMM_WORLD.size
    if size == 1 and count > 1:
        raise UsageError(
            f"{variable} says that {count} ranks were started, but MPI sees one: each would train alone as rank 0 of 1. "
            f"Start with the mpirun of the MPI library that mpi4py uses, with srun --mpi=pmi2, or unset {variable} to run alone"
        )
    _world = SerialComm() if size == 1 else MpiComm(mpi, timeout)
    return _world


def _import_mpi(count: int, variable: str) -> Any:
    """The module mpi4py.MPI; None where it is missing and not needed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the MPI library is not
        if count > 1:
            raise UsageError(
                f"{variable} says that {count} ranks were started, but MPI cannot be used: {error}. pip install mpi4py mpich would fit"
            ) from error
        return None
    return MPI


def abort_world(code: int) -> None:
    """See to it that all ranks end, this one having failed; does nothing where this process is alone.

    Returns if all ranks fail together, so that each may exit with its code and the launcher sees that one. Otherwise
    all ranks are ended with `code`.
    """
    if isinstance(_world, MpiComm) and not _world.leave(_TOGETHER_SECONDS):
        _world.abort(code)


class MpiComm(Comm):
    """Ranks as MPI processes. Collectives are non-blocking underneath and polled until the deadline."""

    def __init__(self, mpi: Any, timeout: float) -> None:
        self._comm = mpi.COMM_WORLD.Dup()
        super().__init__(self._comm.rank, self._comm.size)
        self._mpi = mpi
        self._notes = Notes(mpi, lambda: self.watch.now())
        self.watch = Watch(timeout, self._strike, self._glance)
        self._closed = False
        self._hook = sys.excepthook
        sys.excepthook = self._on_exception
        atexit.register(self.close)

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        what = f"allreduce {kind} {array.dtype} {array.shape}"
        self._complete(what, lambda: self._comm.Iallreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM))

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        out = np.empty(int(sizes.sum()), np.uint8)
        starts = np.cumsum(sizes) - sizes
        there = [out, sizes.tolist(), starts.tolist(), self._mpi.BYTE]
        self._complete(f"allgather {kind} {len(out)} bytes", lambda: self._comm.Iallgatherv([part, self._mpi.BYTE], there))
        return out

    def _broadcast(self, part: np.ndarray, root: int, kind: str) -> None:
        what = f"broadcast {kind} {len(part)} bytes from rank {root}"
        self._complete(what, lambda: self._comm.Ibcast([part, self._mpi.BYTE], root))

    def barrier(self) -> None:
        self._complete("barrier", self._comm.Ibarrier)

    def close(self) -> None:
        """Leave together. Also called when the interpreter exits, so that a rank that leaves early is noticed."""
        self.leave(None)

    def leave(self, patience: float | None) -> bool:
        """Leave together with all ranks; False if some have not come after `patience` seconds."""
        global _world
        if self._closed:
            return True
        self._notes.tell_all("left")
        if patience is None:
            self.watch.wait(self._notes.all_left, "the other ranks to leave")
        elif not self._notes.all_leave_within(patience):
            return False
        self._closed = True
        sys.excepthook = self._hook
        atexit.unregister(self.close)
        _world = None
        return True

    def abort(self, code: int) -> None:
        """End all ranks with an exit code; does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(0.05)  # let the launcher read what was just printed
        self._comm.Abort(code)

    def _complete(self, what: str, start: Callable[[], Any]) -> None:
        """Start a non-blocking collective and wait for it."""
        try:
            self.watch.wait(start().Test, what)
        except self._mpi.Exception as error:  # a peer died, or is in another collective
            self._end(f"{what} failed: {error}")

    def _glance(self, waited: float) -> None:
        """While waiting: answer those who ask, and notice those who left."""
        self._notes.read()
        if self._notes.leaving or waited < _GRACE_SECONDS:
            return
        left = self._notes.gone()
        if left:
            self._end(f"{ranks_in_words(left)} left early while this rank is in {self.watch.now()}")

    def _strike(self, report: str) -> None:
        self._end(f"{report}. {self._notes.roll_call()}")

    def _end(self, reason: str) -> None:
        print(
            f"bulksample: rank {self.rank} of {self.size}: {reason}\nlast collectives of rank {self.rank}:\n{self.watch.history()}\n"
            "ending all ranks; run again with --resume auto to go on from the last checkpoint",
            file=sys.stderr,
        )
        self.abort(EXIT_PEER_LOST)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        print(f"bulksample: rank {self.rank} of {self.size} failed; ending all ranks", file=sys.stderr)
        self._hook(kind, error, trace)
        self.abort(EXIT_PEER_LOST if issubclass(kind, PeerLost) else 1)
