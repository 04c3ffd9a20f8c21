"""Which launcher started this process, and as which of how many ranks: as launchers say it in the environment.

The first line of the table that is there in full decides. It is the launcher closest to the process: torchrun may be started
once a node by srun, and an mpirun inside a SLURM job knows better than the job. RANK and WORLD_SIZE alone are often left over;
only with the address of the first rank beside them do they say that somebody started ranks.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_WAYS = (
    # launcher, ranks, rank, what else must be set
    ("torchrun", "WORLD_SIZE", "RANK", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ("HYDI_CONTROL_FD",)),  # MPICH's
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", ()),  # Open MPI's
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", ()),
    ("srun", "PMI_SIZE", "PMI_RANK", ("SLURM_STEP_ID",)),
    ("mpirun", "PMI_SIZE", "PMI_RANK", ()),
    ("environment", "WORLD_SIZE", "RANK", ("RANK", "MASTER_ADDR", "MASTER_PORT")),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ()),
    ("srun", "SLURM_NTASKS", "SLURM_PROCID", ()),
)
_BY_TORCH = ("torchrun", "environment")  # no MPI there
PREFIXES = ("PMI_", "PMIX_", "OMPI_", "MV2_", "SLURM_", "HYD", "TORCHELASTIC_", "WORLD_SIZE")


class Launch(NamedTuple):
    """How this process was started. `variable` says how many ranks there are, empty where nobody says so."""

    launcher: str = "alone"
    ranks: int = 1
    variable: str = ""
    rank: int | None = None

    @property
    def by_torch(self) -> bool:
        """Whether ranks meet by MASTER_ADDR and MASTER_PORT, and not by MPI."""
        return self.launcher in _BY_TORCH


def launched() -> Launch:
    """What the environment says."""
    for launcher, ranks, rank, beside in _WAYS:
        if os.environ.get(ranks, "").isdigit() and all(name in os.environ for name in beside):
            own = os.environ.get(rank, "")
            return Launch(launcher, int(os.environ[ranks]), ranks, int(own) if own.isdigit() else None)
    return Launch()
