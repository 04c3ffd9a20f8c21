"""The world of ranks over MPI: the only place that imports mpi4py.

An MPI program hangs for ever when one rank raises, exits early or stops. Here no wait is without a deadline, and
`world` installs what a user would forget: an uncaught exception on one rank ends all ranks with its traceback shown,
a rank that leaves early is noticed, and a rank that falls silent is named when the deadline strikes.
"""

from __future__ import annotations

import os
from typing import Any

from ..errors import UsageError
from .base import KINDS, Comm, Traffic
from .processes import MpiComm
from .threads import SerialComm

__all__ = ["KINDS", "Comm", "MpiComm", "SerialComm", "Traffic", "abort_world", "launched_ranks", "world"]

# A launcher's count of ranks; the first that is set decides, since an mpirun inside a SLURM job knows better than the job.
_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_TOGETHER_SECONDS = 1.0  # ranks that all refuse the same request get this long to leave in good order

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
    if isinstance(_world, MpiComm) and not _world.closed:
        _world.watch.timeout = timeout
        return _world
    if isinstance(_world, SerialComm):
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
