"""The answer of a plan: one prediction for every grid, and the grid chosen for each number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .evaluation import EvaluationCost
from .measured import Measured
from .memory import RankMemory
from .published_cost import PublishedWords
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
    collectives : of an epoch that a rank takes part in, by kind
    host_bytes : bytes of the memory of each machine, beside its devices
    evaluation : what one evaluation costs
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
    evaluation: EvaluationCost
    collectives: dict[str, float]

    @property
    def whole_epoch(self) -> float:
        """Seconds of an epoch with its share of an evaluation."""
        return self.seconds.epoch + self.evaluation.epoch_seconds

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
    codecs : by p, the best placement with each codec of features, if any placement fits
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
    codecs: dict[int, dict[str, GridPrediction]]

    def best_placement(self, p: int) -> GridPrediction | None:
        """Return the fastest placement that fits p ranks; of equally fast ones that with the least memory."""
        return fastest(self.placements[p])


def fastest(rows: Iterable[GridPrediction]) -> GridPrediction | None:
    """Return the fastest prediction that fits; of equally fast ones that with the least memory."""
    return min((row for row in rows if row.fits), key=lambda row: (row.whole_epoch, row.memory.total), default=None)


def gigabytes(size: float) -> str:
    """Return a size as text: in GB, or in MB below 0.1 GB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"
