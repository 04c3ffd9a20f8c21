"""Predict the seconds of an epoch by phase with the alpha-beta model, by the formulas in the docstring of the package."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from ..distributed.matrix.grid import Order
from .measured import Measured
from .profiles import DeviceProfile, NetworkProfile
from .request import PlanRequest
from .sizes import Sizes
from .traffic import CandidateGrid, SentPerRank, feature_group, fetching, inside_shares, sampling


@dataclass(frozen=True)
class EpochSeconds:
    """Seconds of one rank in an epoch of T steps. `epoch` is less than the sum of the phases if sampling overlaps with training."""

    sample: float
    fetch: float
    compute: float
    reduce: float
    epoch: float


def epoch_seconds(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int, measured: Measured) -> EpochSeconds:
    """Predict the seconds of an epoch with bulks of k mini-batches a rank; k is at most the steps of an epoch."""
    device, network = measured.device, request.connection()
    steps = -(-request.minibatches // grid.ranks)
    order: Order = grid.order if request.exchange == "owner" else "rows"
    sample = sizes.edges / device.sampling.value + transfer(sampling(request, sizes, grid, k), grid, network, order) / k
    gather = measured.gather_seconds if measured.gather_seconds is not None else _gathering(request, sizes, device)
    fetch = gather + fetch_transfer(request, sizes, grid, network)
    compute = measured.compute_seconds if measured.compute_seconds is not None else computing(request, sizes, device)
    reduce = reducing(request, grid, network)
    train = fetch + compute + reduce
    epoch = k * sample + (steps - k) * max(sample, train) + k * train
    return EpochSeconds(steps * sample, steps * fetch, steps * compute, steps * reduce, epoch)


def transfer(exchange: SentPerRank, grid: CandidateGrid, network: NetworkProfile, order: Order = "rows") -> float:
    """Seconds of an exchange inside process columns and process rows of a grid in the given order."""
    column, row = inside_shares(grid.ranks, grid.replication, min(network.per_node, grid.ranks), order)
    moved = _moved(exchange.column, exchange.column_calls, grid.rows, column, network)
    return moved + _moved(exchange.row, exchange.row_calls, grid.replication, row, network)


def fetch_transfer(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, network: NetworkProfile) -> float:
    """Seconds in which the rows of H of a mini-batch reach a rank, without the time to gather them."""
    group, fetch = feature_group(request, grid), fetching(request, sizes, grid)
    if grid.placed == "host" and request.has_devices:
        return sizes.inputs * request.features * request.feature_bytes / request.machine().host.value
    if grid.placed == "machine":
        return _moved(fetch.column, fetch.column_calls, group, 1.0, network)
    inside = inside_shares(grid.ranks, grid.ranks // group, min(network.per_node, grid.ranks), grid.order)[0]
    return _moved(fetch.column, fetch.column_calls, group, inside, network)


def computing(request: PlanRequest, sizes: Sizes, device: DeviceProfile) -> float:
    """Seconds of the dense products and the aggregation of a step, forward and backward."""
    products = 2 if request.model == "sage" else 1
    layers = list(zip(reversed(sizes.hops), request.widths, request.widths[1:], strict=False))
    operations = 6 * products * sum(hop.destinations * into * out for hop, into, out in layers)
    aggregated = 8 * sum(hop.block_edges * into for hop, into, _ in layers)
    return operations / device.operations.value + aggregated / device.bandwidth.value


def reducing(request: PlanRequest, grid: CandidateGrid, network: NetworkProfile) -> float:
    """Seconds of the all-reduce of a step."""
    if grid.ranks == 1:
        return 0.0
    rate = network.inside if grid.ranks <= network.per_node else network.between
    share = 2 * (grid.ranks - 1) / grid.ranks
    return share * 4 * request.parameters / rate.value + 2 * ceil(log2(grid.ranks)) * network.latency.value


def _gathering(request: PlanRequest, sizes: Sizes, device: DeviceProfile) -> float:
    return sizes.inputs * request.features * request.feature_bytes / device.gather.value


def _moved(sent: float, calls: float, size: int, inside: float, network: NetworkProfile) -> float:
    """Seconds of sending to the other ranks of a group: a share inside the node, the rest to other nodes."""
    if size == 1:
        return 0.0
    bytes_seconds = sent * (inside / network.inside.value + (1 - inside) / network.between.value)
    return bytes_seconds + calls * 2 * (size - 1) * network.latency.value
