"""Find out from the environment which launcher started this process, its rank, and the number of ranks.

The first row of the table whose variables are all set decides. The table begins with the launcher closest to the process: srun may
start one torchrun on each node, and an mpirun inside a SLURM job knows the number of ranks better than the job does. RANK and
WORLD_SIZE are often left over from another program, so they count only together with MASTER_ADDR and MASTER_PORT. SLURM_NTASKS counts
the tasks of a job, whose script is one process; srun alone sets SLURM_STEP_NUM_TASKS.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from ...errors import UsageError

_LAUNCHERS = (
    # launcher, variable of the number of ranks, variable of the rank, other variables that must be set
    ("torchrun", "WORLD_SIZE", "RANK", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ("HYDI_CONTROL_FD",)),  # MPICH
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", ()),  # Open MPI
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", ()),  # MVAPICH 2
    ("mpirun", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_RANK", ()),  # MVAPICH 3 and later
    ("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", ()),
    ("srun", "PMI_SIZE", "PMI_RANK", ("SLURM_STEP_ID",)),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ()),  # Intel MPI, PALS, Flux with PMI, …
    ("environment", "WORLD_SIZE", "RANK", ("RANK", "MASTER_ADDR", "MASTER_PORT")),
    ("flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", ("FLUX_TASK_RANK",)),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ()),
)
_RANK_ALONE = (("prterun", "PMIX_RANK"), ("mpiexec", "PALS_RANKID"), ("srun", "SLURM_PROCID"))  # of launchers that may not tell the number
_OF_TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_BY_TORCH = ("torchrun", "environment")  # launchers without MPI
PREFIXES = (
    "PMI_", "PMIX_", "PALS_", "OMPI_", "MV2_", "MVP_", "JSM_", "FLUX_", "SLURM_", "HYD", "TORCHELASTIC_", "WORLD_SIZE",
)  # fmt: skip


class Launch(NamedTuple):
    """The launcher of this process, and its place among the ranks."""

    launcher: str = "alone"
    ranks: int = 1  # the least that there can be, of a launcher that tells the rank alone
    variable: str = ""  # that gave `ranks`; empty without a launcher
    rank: int | None = None

    @property
    def count_in_words(self) -> str:
        """The number of ranks in words."""
        return f"{'at least ' * any(self.variable == name for _, name in _RANK_ALONE)}{self.ranks} ranks"

    @property
    def by_torch(self) -> bool:
        """True if ranks connect through MASTER_ADDR and MASTER_PORT instead of MPI."""
        return self.launcher in _BY_TORCH


def check_launch(launch: Launch) -> None:
    """Raise `UsageError` if variables of the launcher contradict each other, before a rank waits for others that cannot come."""
    values = {name: os.environ[name] for name in _OF_TORCH if name in os.environ}
    if launch.by_torch or (len(values) == len(_OF_TORCH) and not launch.variable):
        for name, least, most in (("WORLD_SIZE", 1, 2**31 - 1), ("RANK", 0, launch.ranks - 1), ("MASTER_PORT", 1, 2**16 - 1)):
            if not values[name].isdecimal() or not least <= int(values[name]) <= most:
                raise UsageError(
                    f"{name}: got {values[name]!r}; use a whole number from {least} to {most}, or unset {', '.join(_OF_TORCH)}"
                )
        if not values["MASTER_ADDR"].strip():
            raise UsageError("MASTER_ADDR: got nothing; use the name or the address of the machine of rank 0")
    elif launch.rank is not None and launch.rank >= launch.ranks > 0:
        contradiction = f"{launch.variable} says that there are {launch.ranks} ranks, but this is rank {launch.rank}"
        raise UsageError(f"{contradiction}; start with {launch.launcher}, or unset {launch.variable}")


def launched() -> Launch:
    """Return how this process was launched, read from the environment."""
    for launcher, ranks, rank, required in _LAUNCHERS:
        if os.environ.get(ranks, "").isdigit() and all(name in os.environ for name in required):
            number = os.environ.get(rank, "")
            return Launch(launcher, int(os.environ[ranks]), ranks, int(number) if number.isdigit() else None)
    for launcher, rank in _RANK_ALONE:
        number = os.environ.get(rank, "")
        if number.isdigit() and number != "0":  # number 0 may be a job's script, or a shell below a launcher, and alone
            return Launch(launcher, int(number) + 1, rank, int(number))
    return Launch()


def unheard() -> str:
    """Return why a process that seems alone may be one of several, or ""; torch.distributed is asked only if this program began it."""
    present = [name for name in _OF_TORCH if name in os.environ]
    several = any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > least for name, least in (("RANK", 0), ("WORLD_SIZE", 1)))
    if several and 1 < len(present) < len(_OF_TORCH):
        said = ", ".join(f"{name}={os.environ[name]}" for name in present)
        missing = " and ".join(name for name in _OF_TORCH if name not in os.environ)
        return f"got {said}, but no {missing}; set {missing} to run together, or unset {', '.join(present)} to run alone"
    rank, ranks = rank_of_torch()
    if ranks > 1:
        return (
            f"torch.distributed has begun as rank {rank} of {ranks}, but no variables of a launcher are set; set {', '.join(_OF_TORCH)} "
            "before bulksample.init() to run together"
        )
    return ""


def rank_of_torch() -> tuple[int, int]:
    """Return the rank and the number of ranks of torch.distributed; (0, 1) if this program has not begun it."""
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return 0, 1
    return torch.get_rank(), torch.get_world_size()
