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
    """

    grid: CandidateGrid
    memory: RankMemory
    largest_bulk: int
    bulk_size: int
    traffic: EpochBytes
    seconds: EpochSeconds
    published: PublishedWords

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
    """

    request: PlanRequest
    measured: Measured
    sizes: Sizes
    budget: float
    rows: tuple[GridPrediction, ...]
    chosen: dict[int, GridPrediction]
    untested: dict[int, GridPrediction]


def gigabytes(size: float) -> str:
    """Return a size as text: in GB, or in MB below 0.1 GB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"
