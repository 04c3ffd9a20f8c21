"""The world of ranks, as their launcher started them. The only place that imports mpi4py.

A program of several ranks hangs for ever when one rank raises, exits early or stops. Here no wait is without a deadline, and
`world` installs what a user would forget: an uncaught exception on one rank ends all ranks with its traceback shown,
a rank that leaves early is noticed, a rank that falls silent is named when the deadline strikes, and a rank that dies
without a word is named by its sentinel.
"""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from typing import Any

from ...errors import PeerLost, UsageError
from .base import KINDS, Comm, SentCount
from .cuda_aware import CudaAware, ask
from .launchers import Launch, launched
from .mpi import MpiComm
from .processes import ProcessComm
from .sentinel import Sentinel
from .shared_memory import forget_names, sweep
from .threads import SerialComm
from .watch import arm, armed

__all__ = ["KINDS", "Comm", "MpiComm", "SentCount", "SerialComm", "abort_world", "cuda_aware", "world"]

OUTSIDE_SECONDS = 30.0  # beyond the deadline, to start and to end: a busy machine takes long over imports and exits
_TOGETHER_SECONDS = 2.0  # ranks that all refuse the same request get this long to leave in good order

_world: Comm | None = None
_sentinel: Sentinel | None = None


def world(timeout: float = 300.0) -> Comm:
    """The communicator of all ranks; the same one however often it is asked for.

    Without a launcher it is a `SerialComm`; under torchrun, and wherever RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, ranks
    meet over torch.distributed, else over MPI. What is not needed is not imported.

    Parameters
    ----------
    timeout : float
        Seconds that any wait may take before the job is ended with exit code 75; 30 more for all ranks to start, and to exit.

    Raises
    ------
    UsageError
        If a launcher started several ranks and MPI sees one, or mpi4py is missing.
    PeerLost
        If ranks that torchrun started do not meet.
    """
    global _world
    if isinstance(_world, ProcessComm) and not _world.closed:
        _world.watch.timeout = timeout
        return _world
    if isinstance(_world, SerialComm):
        return _world
    if timeout <= 0:
        raise UsageError(f"timeout must be positive; got {timeout} s")
    launch = launched()
    _world = _launched(launch, timeout) if launch.variable else SerialComm()
    return _world


def _launched(launch: Launch, timeout: float) -> Comm:
    """What a launcher started. MPI begins once all ranks are there; as it cannot be polled until then, an alarm ends that wait."""
    global _sentinel
    if _sentinel is None:
        _sentinel = Sentinel(launch)
        atexit.register(_leave_in_time)
    _sentinel.say("starting", timeout + OUTSIDE_SECONDS)
    try:
        with armed(timeout + OUTSIDE_SECONDS):
            made = _over_torch(launch, timeout, _sentinel) if launch.by_torch else _over_mpi(launch, timeout, _sentinel)
    except BaseException:
        _sentinel.say("told")
        raise
    _sentinel.say("told" if made.size == 1 else "working")
    forget_names()
    return made


def _over_mpi(launch: Launch, timeout: float, sentinel: Sentinel) -> Comm:
    sweep()
    mpi = _import_mpi(launch)
    size = 1 if mpi is None else mpi.COMM_WORLD.size
    if size == 1 and launch.ranks > 1:
        raise UsageError(
            f"{launch.variable} says that {launch.ranks} ranks were started, but MPI sees one: each would train alone as rank 0 of 1. "
            "Start with the mpirun of the MPI library that mpi4py uses, with srun --mpi=pmi2 for MPICH (srun --mpi=list shows what there "
            f"is), with torchrun, which needs no MPI, or unset {launch.variable} to run alone"
        )
    return SerialComm() if size == 1 else MpiComm(mpi, timeout, sentinel)


def _over_torch(launch: Launch, timeout: float, sentinel: Sentinel) -> Comm:
    if launch.ranks == 1:
        return SerialComm()
    try:
        from .torch_distributed import TorchComm, meet
    except ImportError as error:
        raise UsageError(
            f"ranks of {launch.launcher} meet by torch, which is missing ({error}); pip install 'bulksample[train]' fits"
        ) from error
    return TorchComm(*meet(timeout), timeout, sentinel)


def _leave_in_time() -> None:
    """At the exit of the interpreter, after the ranks have left together: MPI waits there once more, for all ranks."""
    if isinstance(_world, ProcessComm) and _sentinel is not None:
        _sentinel.say("left", _world.watch.timeout + OUTSIDE_SECONDS)
        arm(_world.watch.timeout + OUTSIDE_SECONDS)


def _import_mpi(launch: Launch) -> Any:
    """The module mpi4py.MPI; None where it is missing and not needed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, the MPI library is not
        if launch.ranks > 1:
            raise UsageError(
                f"{launch.variable} says that {launch.ranks} ranks were started, but MPI cannot be used: {error}. pip install mpi4py mpich would fit"
            ) from error
        return None
    return MPI


def cuda_aware() -> CudaAware:
    """Whether the MPI library reads and writes device memory. Starts MPI where that has not happened."""
    mpi = _import_mpi(Launch())
    return CudaAware(False, "mpi4py, or an MPI library for it, is missing") if mpi is None else ask(mpi.__file__)


def abort_world(code: int, reason: str) -> None:
    """Say why this rank has failed, and see to it that all ranks end.

    Returns if all ranks fail together, so that each may exit with its code and the launcher sees that one; those that fail
    for the same reason say it once. Otherwise all ranks are ended with `code`. A rank that fails before it was in the world
    comes in to say so: the others may be waiting there.
    """
    if _world is None and launched().ranks > 1:
        with suppress(UsageError, PeerLost):
            world()
    together = not isinstance(_world, ProcessComm) or _world.leave(_TOGETHER_SECONDS, reason)
    if not (together and isinstance(_world, ProcessComm) and _world.left_before(reason)):
        sys.stderr.write(f"{reason}\n")
    if isinstance(_world, ProcessComm) and not together:
        sys.stderr.write(f"bulksample: rank {_world.rank} of {_world.size} failed; ending all ranks\n")
        _world.abort(code)
