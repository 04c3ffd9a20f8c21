"""Predict every grid of a request and choose the fastest that fits.

For each p, the candidates are the replicated graph (c = p) and block rows with every other c that divides p. The choice is the grid with
the shortest predicted epoch, its share of an evaluation included, among those that fit, and of equal ones the larger c. The bulk is the
largest that fits, at most the limit of `--bulk-size auto`. Placements of topology and features are compared alike: for each, the best grid
that `train` offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import cast

from ..distributed.matrix.codec import CODECS
from ..distributed.matrix.grid import Order, divisors
from ..distributed.matrix.placement import FEATURES, TOPOLOGIES
from ..errors import UsageError
from ..loading.bulk_sizes import AUTO_LIMIT
from .locality import Locality
from .measured import Measured
from .memory import RankMemory, host_bytes, largest_bulk, rank_memory
from .request import PlanRequest
from .seconds import EpochSeconds, EvaluationCost, epoch_seconds, evaluation_cost
from .sizes import Sizes, expected_sizes
from .traffic import CandidateGrid, EpochBytes, bytes_between_machines, epoch_bytes, epoch_collectives, published_words


@dataclass(frozen=True)
class GridPrediction:
    """Memory, traffic and time of one grid with bulks of `bulk_size` mini-batches, which is 1 where nothing fits."""

    grid: CandidateGrid
    memory: RankMemory
    largest_bulk: int  # the largest k that fits; 0 if the grid does not fit
    bulk_size: int
    traffic: EpochBytes
    seconds: EpochSeconds
    published_words: float  # that one process sends in an epoch by the formula of the 1.5D paper
    between_machines: float  # bytes of an epoch that go to other machines, control messages left out
    host_bytes: float  # bytes of the memory of each machine, beside its devices
    evaluation: EvaluationCost  # what one evaluation costs
    collectives: dict[str, float]  # of an epoch that a rank takes part in, by kind

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
    """The predictions of a request and the choice among them."""

    request: PlanRequest
    measured: Measured
    sizes: Sizes
    budget: float  # usable bytes of a device
    rows: tuple[GridPrediction, ...]  # the prediction of every grid
    chosen: dict[int, GridPrediction]  # by p, the best grid that fits; p is missing where none fits
    untested: dict[int, GridPrediction]  # the same for training without exact evaluation
    # by p, the best grid of each placement of topology and features: the fastest that fits, else that of the least memory
    placements: dict[int, tuple[GridPrediction, ...]]
    codecs: dict[int, dict[str, GridPrediction]]  # by p, the best placement with each codec of features, if any placement fits

    def best_placement(self, p: int) -> GridPrediction | None:
        """Return the fastest placement that fits p ranks; of equally fast ones that with the least memory."""
        return fastest(self.placements[p])


def fastest(rows: Iterable[GridPrediction]) -> GridPrediction | None:
    """Return the fastest prediction that fits; of equally fast ones that with the least memory."""
    return min((row for row in rows if row.fits), key=lambda row: (row.whole_epoch, row.memory.total), default=None)


def gigabytes(size: float) -> str:
    """Return a size as text: in GB, or in MB below 0.1 GB."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


_MOST_RANKS = 2**20


def make_plan(request: PlanRequest, measured: Measured | None = None, locality: Locality | None = None) -> Plan:
    """Predict every grid of a request and choose one for each number of ranks; `locality` is what was sampled for its `seed_locality`.

    Raises `UsageError` if no grid fits: it names the largest parts of the memory, and a device or a number of ranks that is enough.
    """
    measured = measured or Measured(request.machine())
    sizes = expected_sizes(request)
    if locality is not None:
        sizes = replace(sizes.scaled_to(locality.edges, locality.inputs), shares=locality.shares)
    elif request.seed_locality:
        raise UsageError(
            f"seed_locality {request.seed_locality} is planned by sampling the graph; use --from with a store or a folder of parts"
        )
    elif measured.edges is not None and measured.inputs is not None:
        sizes = sizes.scaled_to(measured.edges, measured.inputs)
    budget = (1 - request.reserve) * measured.device.memory.value
    rows, chosen = _decide(request, sizes, budget, measured)
    untested = _decide(request.model_copy(update={"evaluate": "none"}), sizes, budget, measured)[1]
    if not chosen:
        raise UsageError(_nothing_fits(request, sizes, rows, budget, bool(untested)))
    placed: dict[int, tuple[GridPrediction, ...]] = {}
    codecs: dict[int, dict[str, GridPrediction]] = {}
    requests = {codec: request.model_copy(update={"feature_codec": codec}) for codec in CODECS}
    for p in request.ranks:
        placed[p] = tuple(_best(request, sizes, candidates, budget, measured) for candidates in placements(request, p))
        best = fastest(placed[p])
        codecs[p] = {} if best is None else {name: predict(one, sizes, best.grid, budget, measured) for name, one in requests.items()}
    return Plan(request, measured, sizes, budget, rows, chosen, untested, placed, codecs)


def _best(request: PlanRequest, sizes: Sizes, candidates: list[CandidateGrid], budget: float, measured: Measured) -> GridPrediction:
    """Return the fastest of some grids that fits, or the one of the least memory."""
    rows = [predict(request, sizes, grid, budget, measured) for grid in candidates]
    return min(rows, key=lambda row: (not row.fits, row.whole_epoch if row.fits else row.memory.total, -row.grid.replication))


def _decide(
    request: PlanRequest, sizes: Sizes, budget: float, measured: Measured
) -> tuple[tuple[GridPrediction, ...], dict[int, GridPrediction]]:
    """Return all predictions, and by p the best one that fits."""
    rows = tuple(predict(request, sizes, grid, budget, measured) for p in request.ranks for grid in grids(request, p))
    fitting = sorted((row for row in rows if row.fits), key=lambda row: (-row.whole_epoch, row.grid.replication))
    return rows, {row.grid.ranks: row for row in fitting}


def grids(request: PlanRequest, p: int) -> Iterator[CandidateGrid]:
    """Yield the grids of p ranks. With c = p every rank holds everything: the graph is replicated."""
    for c in request.replication or divisors(p):
        if c == p:
            yield CandidateGrid(p, c, "replicated")
        elif request.graph != "replicated":
            yield CandidateGrid(p, c, "published" if request.graph == "published" else "partitioned")


def predict(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, budget: float, measured: Measured) -> GridPrediction:
    """Predict one grid with the largest bulk that fits into `budget` bytes."""
    largest = largest_bulk(request, sizes, grid, budget)
    k = min(max(1, largest), AUTO_LIMIT)
    on_host = host_bytes(request, sizes, grid, k)
    if request.host_memory and on_host > request.host_memory:
        largest, k, on_host = 0, 1, host_bytes(request, sizes, grid, 1)
    words = sum(
        published_words(grid.ranks, grid.replication, [request.trained(grid.ranks) * hop.rows for hop in sizes.hops], request.degree)
    )
    return GridPrediction(
        grid, rank_memory(request, sizes, grid, k), largest, k, epoch_bytes(request, sizes, grid, k),
        epoch_seconds(request, sizes, grid, k, measured), words,
        bytes_between_machines(request, sizes, grid, k), on_host, evaluation_cost(request, sizes, grid, measured),
        epoch_collectives(request, sizes, grid, k),
    )  # fmt: skip


def _nothing_fits(request: PlanRequest, sizes: Sizes, rows: tuple[GridPrediction, ...], budget: float, untested: bool) -> str:
    """Return the message of a request that nothing fits."""
    lightest = min(rows, key=lambda row: row.host_bytes)
    if request.host_memory and lightest.host_bytes > request.host_memory:
        return (
            f"nothing fits into {gigabytes(request.host_memory)} of a machine: {min(request.connection().per_node, lightest.grid.ranks)} "
            f"ranks of one take {gigabytes(lightest.host_bytes)}; give more --host-memory, or put fewer ranks on a machine"
        )
    least = min(rows, key=lambda row: row.memory.total)
    parts = sorted(asdict(least.memory).items(), key=lambda item: -item[1])
    largest = ", ".join(f"{gigabytes(size)} for {name}" for name, size in parts[:3])
    lighter = "leave out exact evaluation (--evaluate none or sampled), or " if untested and request.evaluation == "exact" else ""
    grid, needed = least.grid, least.memory.total / (1 - request.reserve)
    more, p = "a smaller batch or smaller fanouts: more ranks alone are not enough", 2 * max(request.ranks)
    while p <= _MOST_RANKS and request.graph != "replicated":
        if rank_memory(request, sizes, CandidateGrid(p, 1, "partitioned"), 1).total <= budget:
            more = f"p = {p} with c = 1"
            break
        p *= 2
    return (
        f"nothing fits into {gigabytes(budget)} of a device: the least is {gigabytes(least.memory.total)} with p = {grid.ranks}, "
        f"c = {grid.replication}, the graph {grid.graph}, k = 1 ({largest}); "
        f"{lighter}use a device of {gigabytes(needed)}, or {more}"
    )


def placements(request: PlanRequest, p: int) -> Iterator[list[CandidateGrid]]:
    """Yield the grids of each placement of topology and features on p ranks, for every c; the options of the request leave others out."""
    for topology in [request.topology] if request.topology else TOPOLOGIES:
        for features in [request.features] if request.features else FEATURES:
            grids = list(_grids(request, p, topology, features))
            if grids:
                yield grids


def _grids(request: PlanRequest, p: int, topology: str, features: str) -> Iterator[CandidateGrid]:
    """Yield the grids of one placement; c = p is that of a replicated one, unless it is the only c."""
    per_node, order = request.connection().per_node, cast(Order, request.grid_order)
    if request.grid_order == "auto":  # as `train` chooses: columns where there are several machines of equally many ranks
        order = "columns" if p > per_node and p % per_node == 0 else "rows"
    values = [c for c in request.replication or divisors(p) if c < p or p == 1]
    other = request.feature_replication if features == "partitioned" and p % (request.feature_replication or 1) == 0 else None
    if topology == "partitioned":
        for c in values:
            yield CandidateGrid(p, c, "partitioned", features, other or 0, order)
    elif features == "partitioned":
        for c in [other] if other else values:
            yield CandidateGrid(p, c, "published", features, 0, order)
    else:
        yield CandidateGrid(p, p, "replicated", features, 0, order)
