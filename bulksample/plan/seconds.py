"""Predict the seconds of an epoch by phase and cause with the alpha-beta model, by the formulas in the docstring of the package."""

from __future__ import annotations

from dataclasses import dataclass

from ..distributed.matrix.grid import Order
from .measured import Measured
from .moving import Moving, exchanged, reduced
from .profiles import DeviceProfile
from .request import PlanRequest
from .sizes import Sizes
from .traffic import CandidateGrid, SentPerRank, feature_group, features_away, fetching, inside_shares, sampling


@dataclass(frozen=True)
class EpochSeconds:
    """Seconds of one rank in an epoch of T steps. `epoch` is less than the sum of the phases if sampling overlaps with training.

    `moving` tells how many seconds of the phases are exchanges, by cause.
    """

    sample: float
    fetch: float
    compute: float
    reduce: float
    epoch: float
    moving: Moving


def epoch_seconds(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int, measured: Measured) -> EpochSeconds:
    """Predict the seconds of an epoch with bulks of k mini-batches a rank; k is at most the steps of an epoch."""
    device = measured.device
    steps = -(-request.minibatches // grid.ranks)
    order: Order = grid.order if request.exchange == "owner" else "rows"
    sampled = transfer(request, sampling(request, sizes, grid, k), grid, order) * (1 / k)
    fetched, gradients = fetch_transfer(request, sizes, grid, k), reduced(request, grid.ranks)
    sample = sizes.edges / device.sampling.value + sampled.total
    gather = measured.gather_seconds if measured.gather_seconds is not None else gathering(request, sizes, grid, device)
    fetch = copies(request, sizes, grid) * gather + coding(request, sizes, grid, device) + fetched.total
    compute = measured.compute_seconds if measured.compute_seconds is not None else computing(request, sizes, device)
    reduce = max(gradients.total, measured.reduce_seconds if measured.reduce_ranks == grid.ranks else 0.0)
    train = fetch + compute + reduce
    epoch = k * sample + (steps - k) * max(sample, train) + k * train
    moving = (sampled + fetched + gradients) * steps
    return EpochSeconds(steps * sample, steps * fetch, steps * compute, steps * reduce, epoch, moving)


def transfer(request: PlanRequest, exchange: SentPerRank, grid: CandidateGrid, order: Order = "rows") -> Moving:
    """Predict an exchange inside process columns and process rows of a grid in the given order."""
    column, row = inside_shares(grid.ranks, grid.replication, min(request.connection().per_node, grid.ranks), order)
    moved = exchanged(request, exchange.column, exchange.column_calls, grid.rows, column)
    return moved + exchanged(request, exchange.row, exchange.row_calls, grid.replication, row)


def fetch_transfer(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> Moving:
    """Predict how the rows of H of a mini-batch of a bulk of k reach a rank, without the time to gather them."""
    group, fetch = feature_group(request, grid), fetching(request, sizes, grid, k)
    if grid.placed == "host" and request.has_devices:
        return Moving(staging=sizes.inputs * request.feature_width * request.feature_bytes / request.machine().host.value)
    per_node = min(request.connection().per_node, grid.ranks)
    inside = 1.0 if grid.placed == "machine" else inside_shares(grid.ranks, grid.ranks // group, per_node, grid.order)[0]
    return exchanged(request, fetch.column, fetch.column_calls, group, inside)


def computing(request: PlanRequest, sizes: Sizes, device: DeviceProfile) -> float:
    """Seconds of the dense products and the aggregation of a step, forward and backward."""
    products = 2 if request.model == "sage" else 1
    layers = list(zip(reversed(sizes.hops), request.widths, request.widths[1:], strict=False))
    operations = 6 * products * sum(hop.destinations * into * out for hop, into, out in layers)
    aggregated = 8 * sum(hop.block_edges * into for hop, into, _ in layers)
    return operations / device.operations.value + aggregated / device.bandwidth.value


def gathering(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, device: DeviceProfile) -> float:
    """Seconds in which the rows of H of a mini-batch are put in order."""
    return sizes.inputs * request.feature_width * request.feature_bytes / device.gather.value


def copies(request: PlanRequest, sizes: Sizes, grid: CandidateGrid) -> float:
    """Return how often a fetched row is copied by ranks: once where it lies in one memory, see the docstring of the package."""
    return 2 + features_away(request, sizes, grid) if grid.placed == "partitioned" and feature_group(request, grid) > 1 else 1.0


def coding(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, device: DeviceProfile) -> float:
    """Seconds in which the rows that travel are encoded and decoded, each a read and a write; 0 if they travel as they are."""
    if request.feature_codec == "fp32":
        return 0.0
    return 2 * features_away(request, sizes, grid) * sizes.inputs * (4 * request.feature_width + request.row_bytes) / device.gather.value
