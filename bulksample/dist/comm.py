"""The world of ranks over MPI: the only place that imports mpi4py.

An MPI program hangs for ever when one rank raises, exits early or stops. Here no wait is without a deadline, and
`world` installs what a user would forget: an uncaught exception on one rank ends all ranks with its traceback shown,
a rank that leaves early is noticed, a rank that falls silent is named when the deadline strikes, and a rank that dies
without a word is named by its sentinel.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from contextlib import suppress
from typing import Any

from ..errors import UsageError
from .base import KINDS, Comm, Traffic
from .processes import MpiComm
from .sentinel import Sentinel
from .threads import SerialComm
from .watch import arm, armed

__all__ = ["KINDS", "Comm", "MpiComm", "SerialComm", "Traffic", "abort_world", "launched_ranks", "world"]

# A launcher's count of ranks; the first that is set decides, since an mpirun inside a SLURM job knows better than the job.
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
OUTSIDE_SECONDS = 30.0  # beyond the deadline, to start and to end: a busy machine takes long over imports and exits
_TOGETHER_SECONDS = 2.0  # ranks that all refuse the same request get this long to leave in good order

_world: Comm | None = None
_sentinel: Sentinel | None = None


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
        Seconds that any wait may take before the job is ended with exit code 75; 30 more for all ranks to start, and to exit.

    Raises
    ------
    UsageError
        If a launcher started several ranks and MPI sees one, or mpi4py is missing.
    """
    global _world
    if isinstance(_world, MpiComm) and not _world.closed:
        _world.watch.timeout = timeout
        return _world
    if isinstance(_world, SerialComm):
        return _world
    if timeout <= 0:
        raise UsageError(f"timeout must be positive; got {timeout} s")
    count, variable = launched_ranks()
    _world = _launched(count, variable, timeout) if variable else SerialComm()
    return _world


def _launched(count: int, variable: str, timeout: float) -> Comm:
    """What a launcher started. MPI begins once all ranks are there; as it cannot be polled until then, an alarm ends that wait."""
    global _sentinel
    if _sentinel is None:
        _sentinel = Sentinel(count)
        atexit.register(_leave_in_time)
    _sentinel.say("starting", timeout + OUTSIDE_SECONDS)
    try:
        with armed(timeout + OUTSIDE_SECONDS):
            made = _over_mpi(_import_mpi(count, variable), count, variable, timeout, _sentinel)
    except BaseException:
        _sentinel.say("told")
        raise
    _sentinel.say("told" if made.size == 1 else "working")
    _forget_shared_names()
    return made


def _over_mpi(mpi: Any, count: int, variable: str, timeout: float, sentinel: Sentinel) -> Comm:
    size = 1 if mpi is None else mpi.COMM_WORLD.size
    if size == 1 and count > 1:
        raise UsageError(
            f"{variable} says that {count} ranks were started, but MPI sees one: each would train alone as rank 0 of 1. "
            f"Start with the mpirun of the MPI library that mpi4py uses, with srun --mpi=pmi2, or unset {variable} to run alone"
        )
    return SerialComm() if size == 1 else MpiComm(mpi, timeout, sentinel)


def _leave_in_time() -> None:
    """At the exit of the interpreter, after the ranks have left together: MPI waits there once more, for all ranks."""
    if isinstance(_world, MpiComm) and _sentinel is not None:
        _sentinel.say("left", _world.watch.timeout + OUTSIDE_SECONDS)
        arm(_world.watch.timeout + OUTSIDE_SECONDS)


def _forget_shared_names() -> None:
    """Take the name from the memory that MPICH shares between the ranks of a machine, once all have found it.

    The library does so when it ends; after a kill, the memory would stay taken until the machine is started again.
    """
    with suppress(OSError), open("/proc/self/maps") as maps:
        for name in set(re.findall(r"/dev/shm/mpich_shm_\w+", maps.read())):
            with suppress(OSError):
                os.unlink(name)


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


def abort_world(code: int, reason: str) -> None:
    """Say why this rank has failed, and see to it that all ranks end.

    Returns if all ranks fail together, so that each may exit with its code and the launcher sees that one; those that fail
    for the same reason say it once. Otherwise all ranks are ended with `code`. A rank that fails before it was in the world
    comes in to say so: the others may be waiting there.
    """
    if _world is None and launched_ranks()[0] > 1:
        with suppress(UsageError):
            world()
    together = not isinstance(_world, MpiComm) or _world.leave(_TOGETHER_SECONDS, reason)
    if not (together and isinstance(_world, MpiComm) and _world.left_before(reason)):
        sys.stderr.write(f"{reason}\n")
    if isinstance(_world, MpiComm) and not together:
        sys.stderr.write(f"bulksample: rank {_world.rank} of {_world.size} failed; ending all ranks\n")
        _world.abort(code)
