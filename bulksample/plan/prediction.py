"""The answer of a plan: one prediction for every grid, and the grid chosen for each number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ..distributed.costs.published import PublishedWords
from .measured import Measured
from .memory import RankMemory
from .request import PlanRequest
from .seconds import EpochSeconds
from .sizes import Sizes
from .traffic import CandidateGrid, EpochBytes


@dataclass(frozen=True)
class GridPrediction:
    """Memory, traffic and time of one grid with bulks of `bulk_size` mini-batches, which is 1 where nothing fits.

    Attributes
    ----------
    largest_bulk : the largest k that fits; 0 if the grid does not fit
    between_machines : bytes of an epoch that go to other machines, control messages left out
    host_bytes : bytes of features in the memory of each machine, beside its devices
    """

    grid: CandidateGrid
    memory: RankMemory
    largest_bulk: int
    bulk_size: int
    traffic: EpochBytes
    seconds: EpochSeconds
    published: PublishedWords
    between_machines: float
    host_bytes: float

    @property
    def fits(self) -> bool:
        """True if a rank holds at least one mini-batch beside everything else."""
        return self.largest_bulk > 0


@dataclass(frozen=True)
class Plan:
    """The predictions of a request and the choice among them.

    Attributes
    ----------
    budget : usable bytes of a device
    rows : the prediction of every grid
    chosen : by p, the best grid that fits; p is missing where none fits
    untested : the same for training without exact evaluation
    placements : by p, the best grid of each placement of topology and features: the fastest that fits, else that of the least memory
    """

    request: PlanRequest
    measured: Measured
    sizes: Sizes
    budget: float
    rows: tuple[GridPrediction, ...]
    chosen: dict[int, GridPrediction]
    untested: dict[int, GridPrediction]
    placements: dict[int, tuple[GridPrediction, ...]]

    def best_placement(self, p: int) -> GridPrediction | None:
        """Return the fastest placement that fits p ranks; of equally fast ones that with the least memory."""
        fitting = [row for row in self.placements[p] if row.fits]
        return min(fitting, key=lambda row: (row.seconds.epoch, row.memory.total)) if fitting else None


def gigabytes(size: float) -> str:
    """Return a size as text: in GB, or in MB below 0.1 GB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"
