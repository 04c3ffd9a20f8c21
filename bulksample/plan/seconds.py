"""Predict the seconds of an epoch with the alpha-beta model, by the formulas in the docstring of the package.

Seconds are told by phase and, for exchanges, by cause: bytes on links, latency, the processor of a rank, and copies of devices through the
host.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from ..distributed.matrix.grid import Order
from .measured import Measured
from .profiles import DeviceProfile
from .request import PlanRequest
from .sizes import Sizes
from .traffic import CandidateGrid, SentPerRank, feature_group, features_away, fetching, inside_shares, sampling


@dataclass(frozen=True)
class Moving:
    """Seconds of exchanges. They add up, and a factor repeats them."""

    bytes: float = 0.0  # on links, at their bandwidth
    latency: float = 0.0  # messages that wait for each other
    host: float = 0.0  # the processor of a rank, for collectives and messages
    staging: float = 0.0  # copies between devices and the host, where the ranks exchange host memory

    @property
    def total(self) -> float:
        """Seconds of all causes: they follow each other."""
        return self.bytes + self.latency + self.host + self.staging

    def __add__(self, other: Moving) -> Moving:
        return Moving(*(own + its for own, its in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, factor: float) -> Moving:
        return Moving(*(factor * own for own in astuple(self)))


def exchanged(request: PlanRequest, sent: float, calls: float, size: int, inside: float) -> Moving:
    """Predict collectives among `size` ranks, each with size - 1 messages; a share stays inside the node.

    `NetworkProfile.collective` is of an all-to-all with its lengths, which are two collectives.
    """
    if size == 1:
        return Moving()
    network, messages = request.connection(), size - 1
    waiting = inside * network.latency_inside.value + (1 - inside) * network.latency.value
    return Moving(
        bytes=sent * (inside / network.inside.value + (1 - inside) / network.between.value),
        latency=calls * messages * waiting,
        host=calls * (network.collective.value / 2 + messages * network.message.value),
        staging=_staged(request, sent),
    )


def reduced(request: PlanRequest, ranks: int) -> Moving:
    """Predict the all-reduce of the gradients of a step.

    Devices halve and double recursively (Thakur et al. 2005). On processors every rank sends each other one its share, twice.
    """
    if ranks == 1:
        return Moving()
    network = request.connection()
    on_one_node = ranks <= network.per_node
    rate, waiting = (network.inside, network.latency_inside) if on_one_node else (network.between, network.latency)
    sent = 2 * (ranks - 1) / ranks * 4 * request.parameters
    messages = 2 * (ranks - 1).bit_length() if request.has_devices else 2 * (ranks - 1)
    host = network.collective.value + messages * network.message.value
    return Moving(sent / rate.value, messages * waiting.value, host, _staged(request, sent))


def _staged(request: PlanRequest, sent: float) -> float:
    """Seconds in which bytes leave the device of the sender and reach that of the receiver, if the host exchanges them."""
    return 2 * sent / request.machine().host.value if request.has_devices and request.device_comm == "host" else 0.0


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
