"""The communicator of all ranks that the launcher started. Only this module imports mpi4py.

A plain program of several ranks hangs for ever when one rank raises, exits early or stops. Here every wait has a deadline.
`world` also ends all ranks when one raises an uncaught exception, and shows its traceback. It reports a rank that leaves early.
A rank that stops is named when a deadline passes, and the sentinel of a rank that is killed names it.
"""

from __future__ import annotations

import atexit
import sys
import warnings
from contextlib import suppress
from typing import Any

from ...errors import PeerLost, UsageError
from .base import KINDS, Comm, SentCount
from .launchers import Launch, check_launch, launched, unheard
from .machines import machines_of_ranks
from .mpi import MpiComm, ask, forget_names, sweep
from .primitives import CudaAware
from .process_end import Sentinel, default_actions, sentinel_of
from .processes import ProcessComm
from .threads import SerialComm
from .watch import alarm, set_alarm

__all__ = ["KINDS", "Comm", "MpiComm", "SentCount", "SerialComm", "abort_world", "cuda_aware", "world"]

_LONGEST_SECONDS = 1e6
OUTSIDE_SECONDS = 30.0  # added to the deadline for starting and exiting: imports are slow on a busy machine
_TOGETHER_SECONDS = 2.0  # ranks that all raise the same error get this long to leave together

_world: Comm | None = None
_sentinel: Sentinel | None = None
_refused = False  # the ranks have tried to connect, in vain


def world(timeout: float = 300.0) -> Comm:
    """Return the communicator of all ranks; repeated calls return the same one.

    Without a launcher it is a `SerialComm`. Under torchrun, or if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set, ranks
    connect over torch.distributed, else over MPI. Only the library in use is imported. A process that runs alone warns once if variables
    or torch.distributed say that it may be one of several.

    Parameters
    ----------
    timeout : float
        Seconds that any wait may take before the job ends with exit code 75. Starting and exiting may take 30 seconds more.

    Raises
    ------
    UsageError
        If `timeout` is no positive number, variables such as RANK and WORLD_SIZE contradict each other, or a launcher started several
        ranks but MPI sees one, or mpi4py is missing.
    PeerLost
        If ranks started by torchrun do not connect in time.
    """
    global _world
    check_timeout(timeout)
    if isinstance(_world, ProcessComm) and not _world.closed:
        _world.watch.timeout = timeout
        return _world
    if isinstance(_world, SerialComm):
        return _world
    launch = launched()
    check_launch(launch)
    mpi = sys.modules.get("mpi4py.MPI")  # begun with several ranks by this program, also by a launcher without known variables
    if not launch.variable and mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.size > 1:
        launch = Launch("mpirun", mpi.COMM_WORLD.size, "MPI", mpi.COMM_WORLD.rank)
    _world = _launched(launch, timeout) if launch.variable else SerialComm()
    if not launch.variable and (reason := unheard()):
        warnings.warn(f"this process runs alone, as rank 0 of 1, and writes files as if no other ran: {reason}", stacklevel=2)
    return _world


def meet_first(timeout: Any) -> Comm:
    """Return the `world`, with its default timeout if it refuses this one: the ranks meet, and the caller then tells all what is wrong."""
    return world(timeout) if is_timeout(timeout) else world()


def is_timeout(timeout: Any) -> bool:
    """Return True for seconds that a wait may take."""
    return isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout < _LONGEST_SECONDS


def check_timeout(timeout: Any) -> None:
    """Raise `UsageError` for anything but seconds that a wait may take."""
    if not is_timeout(timeout):
        raise UsageError(f"timeout: got {timeout!r}; use a positive number of seconds, below {_LONGEST_SECONDS:g}")


def _launched(launch: Launch, timeout: float) -> Comm:
    """Connect the ranks that a launcher started. MPI blocks until all have started; an alarm limits that wait, signals end it."""
    global _sentinel, _refused
    if _sentinel is None:
        _sentinel = sentinel_of(launch)
        atexit.register(_leave_in_time)
    _sentinel.report("starting", timeout + OUTSIDE_SECONDS)
    try:
        with alarm(timeout + OUTSIDE_SECONDS), default_actions():
            made = _over_torch(launch, timeout, _sentinel) if launch.by_torch else _over_mpi(launch, timeout, _sentinel)
    except BaseException:
        _refused = True
        _sentinel.report("reported")
        raise
    _sentinel.report("reported" if made.size == 1 else "working")
    forget_names()
    made.machine_of = machines_of_ranks(made)
    return made


def _over_mpi(launch: Launch, timeout: float, sentinel: Sentinel) -> Comm:
    sweep()
    mpi = _import_mpi(launch)
    size = 1 if mpi is None else mpi.COMM_WORLD.size
    if size < launch.ranks:
        seen, apart = ("one", "each would train alone as rank 0 of 1") if size == 1 else (size, f"each {size} would train apart")
        raise UsageError(
            f"{launch.variable} says that {launch.count_in_words} were started, but MPI sees {seen}: {apart}. "
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
            f"ranks of {launch.launcher} connect through torch, which is missing ({error}); pip install 'bulksample[train]'"
        ) from error
    return TorchComm(*meet(timeout), timeout, sentinel)


def _leave_in_time() -> None:
    """Set a deadline for MPI's own exit function, which waits once more for all ranks. Runs at interpreter exit."""
    if isinstance(_world, ProcessComm) and _sentinel is not None:
        _sentinel.report("left", _world.watch.timeout + OUTSIDE_SECONDS)
        set_alarm(_world.watch.timeout + OUTSIDE_SECONDS)


def _import_mpi(launch: Launch) -> Any:
    """Return the module mpi4py.MPI; None if it is missing and not needed."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is installed, the MPI library is not
        if launch.ranks > 1:
            raise UsageError(
                f"{launch.variable} says that {launch.count_in_words} were started, but MPI cannot be used: {error}; "
                "pip install mpi4py mpich"
            ) from error
        return None
    return MPI


def cuda_aware() -> CudaAware:
    """Ask the MPI library whether it reads and writes device memory; start MPI if it is not running."""
    mpi = _import_mpi(Launch())
    return CudaAware(False, "mpi4py, or an MPI library for it, is missing") if mpi is None else ask(mpi.__file__)


def connected() -> bool:
    """True if this process is one of several ranks that have connected and have not left."""
    return isinstance(_world, ProcessComm) and not _world.closed


def abort_world(code: int, reason: str) -> None:
    """Print why this rank has failed, and end all ranks.

    If all ranks fail within two seconds of each other, return, so that each can exit with its own code; ranks that fail for the
    same reason print it once. Otherwise end all ranks with `code`. If this rank failed before it called `world`, connect first,
    because the others may be waiting there; not if `world` itself failed.
    """
    if _world is None and not _refused and launched().ranks > 1:
        with suppress(UsageError, PeerLost):
            world()
    together = not isinstance(_world, ProcessComm) or _world.leave(_TOGETHER_SECONDS, reason)
    if not (together and isinstance(_world, ProcessComm) and _world.left_before(reason)):
        sys.stderr.write(f"{reason}\n")
    if isinstance(_world, ProcessComm) and not together:
        sys.stderr.write(f"bulksample: rank {_world.rank} of {_world.size} failed; ending all ranks\n")
        _world.abort(code)
