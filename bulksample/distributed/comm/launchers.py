"""Find out from the environment which launcher started this process, its rank, and the number of ranks.

The first row of the table whose variables are all set decides. The table begins with the launcher closest to the process: srun may
start one torchrun on each node, and an mpirun inside a SLURM job knows the number of ranks better than the job does. RANK and
WORLD_SIZE are often left over from another program, so they count only together with MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_LAUNCHERS = (
    # launcher, variable of the number of ranks, variable of the rank, other variables that must be set
    ("torchrun", "WORLD_SIZE", "RANK", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ("HYDI_CONTROL_FD",)),  # MPICH
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", ()),  # Open MPI
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", ()),
    ("srun", "PMI_SIZE", "PMI_RANK", ("SLURM_STEP_ID",)),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ()),
    ("environment", "WORLD_SIZE", "RANK", ("RANK", "MASTER_ADDR", "MASTER_PORT")),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ()),
    ("srun", "SLURM_NTASKS", "SLURM_PROCID", ()),
)
_BY_TORCH = ("torchrun", "environment")  # launchers without MPI
PREFIXES = ("PMI_", "PMIX_", "OMPI_", "MV2_", "SLURM_", "HYD", "TORCHELASTIC_", "WORLD_SIZE")


class Launch(NamedTuple):
    """Launcher, number of ranks, and rank of this process. `variable` gave `ranks`; it is empty without a launcher."""

    launcher: str = "alone"
    ranks: int = 1
    variable: str = ""
    rank: int | None = None

    @property
    def by_torch(self) -> bool:
        """True if ranks connect through MASTER_ADDR and MASTER_PORT instead of MPI."""
        return self.launcher in _BY_TORCH


def launched() -> Launch:
    """Return how this process was launched, read from the environment."""
    for launcher, ranks, rank, required in _LAUNCHERS:
        if os.environ.get(ranks, "").isdigit() and all(name in os.environ for name in required):
            own = os.environ.get(rank, "")
            return Launch(launcher, int(os.environ[ranks]), ranks, int(own) if own.isdigit() else None)
    return Launch()
