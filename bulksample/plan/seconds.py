"""Predict the seconds of an epoch with the alpha-beta model, by the formulas in the docstring of the package.

Seconds are told by phase and, for exchanges, by cause: bytes on links, latency, the processor of a rank, and copies of devices through the
host. An evaluation, exact over all neighbors or sampled, is predicted apart.

Exact inference computes layer l of width w_l from the w_(l-1) below, u = min of both being sent. Each rank takes n / p rows, m / p entries:
    compute   2 n / p w_(l-1) w_l (twice for sage) / (operations a second) + 4 m / p u / (bytes a second)
    prepare   where sources are fetched (in block rows, and in a layer that sends nothing), in C chunks: 17 bytes for each of
              (n + m) / p ids, which is read twice, marked, looked up in a table and renamed, to number the sources; and (1 + a) D 4 u for
              the rows of D = C n (1 - exp(-m / (p C n))) distinct sources: all are put in place, and those of other block rows are
              gathered there first. All / (gathered bytes a second)
    chunks    C = ceil((n + m) / p w / 2^24), w = w_l, or max(w_(l-1), w_l) if raw features are aggregated (2^28 on devices)
    bytes     (p - 1) 4 n u over all ranks where all ranks hold A; in block rows (c - 1) 4 n u, and for each rank the distinct
              sources on other block rows, a D of 4 + 4 u bytes. Layer 1 sends nothing if all ranks hold H, f <= w_1
    calls     collectives: 2 to agree whether to stream and 2 for each split to score; 1 in a layer whose rows all ranks gather; in
              block rows 3 C + 3 a layer, and 1 more where c > 1: widths, the number of chunks (2), counts, ids and rows of each, the block
Steps of training are small, and their seconds hold much that does not grow with the rows. So an exact evaluation that `--measured` holds,
of ranks that have the whole graph, counts more than they do: its ratio to the prediction scales compute and prepare.
Memory touched for the first time is not counted: the first evaluation of a run takes longer than later ones.
Sampled scores take ceil(S / b) mini-batches of `eval_fanouts`, S vertices scored, in bulks of `scoring_bulk`: sampling, fetching, and a
third of a step's computing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, expm1

from ..distributed.matrix.grid import Order
from ..distributed.matrix.inference_memory import CHUNK_NUMBERS, DEVICE_CHUNK_NUMBERS
from ..loading.bulk_sizes import scoring_bulk
from .input_layer import fuses_input
from .measured import Measured
from .profiles import DeviceProfile
from .request import PlanRequest
from .sizes import Sizes, expected_sizes
from .traffic import CandidateGrid, Figures, SentPerRank, feature_group, features_away, fetching, inside_shares, sampling

_NUMBERED = 17  # bytes of an id that is numbered: read twice, its mark, its number, and the result
_SPLITS = 3


@dataclass(frozen=True)
class Moving(Figures):
    """Seconds of exchanges; those of several causes follow each other."""

    bytes: float = 0.0  # on links, at their bandwidth
    latency: float = 0.0  # messages that wait for each other
    host: float = 0.0  # the processor of a rank, for collectives and messages
    staging: float = 0.0  # copies between devices and the host, where the ranks exchange host memory


def exchanged(request: PlanRequest, sent: float, calls: float, size: int, inside: float) -> Moving:
    """Predict collectives among `size` ranks, each with size - 1 messages; a share stays inside the node."""
    if size == 1:
        return Moving()
    network, messages = request.connection(), size - 1
    waiting = inside * network.latency_inside.value + (1 - inside) * network.latency.value
    return Moving(
        bytes=sent * (inside / network.inside.value + (1 - inside) / network.between.value),
        latency=calls * messages * waiting,
        host=calls * (network.collective.value / 2 + messages * network.message.value),  # with lengths an all-to-all is two collectives
        staging=_staged(request, sent),
    )


def reduced(request: PlanRequest, ranks: int) -> Moving:
    """Predict the all-reduce of the gradients: devices halve and double (Thakur et al. 2005), other ranks send each its share, twice."""
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
    """Seconds of one rank in an epoch of T steps."""

    sample: float
    fetch: float
    compute: float
    reduce: float
    epoch: float  # less than the sum of the phases if sampling overlaps with training
    moving: Moving  # the seconds of the phases that are exchanges, by cause


def epoch_seconds(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int, measured: Measured) -> EpochSeconds:
    """Predict the seconds of an epoch with bulks of k mini-batches a rank; k is at most the steps of an epoch."""
    device = measured.device
    steps = request.steps(grid.ranks)
    order: Order = grid.order if request.exchange == "owner" else "rows"
    sampled = transfer(request, sampling(request, sizes, grid, k), grid, order) * (1 / k)
    fetched, gradients = fetch_transfer(request, sizes, grid, k), reduced(request, grid.ranks)
    sample = sizes.edges / device.sampling.value + sampled.total
    fused = fuses_input(request, sizes, grid)
    before = fused if measured.fused is None else measured.fused
    gather, compute = (of(request, sizes, device, fused) for of in (gathering, computing))
    if measured.gather_seconds is not None:
        gather *= measured.gather_seconds / gathering(request, sizes, device, before)
    if measured.compute_seconds is not None:
        compute *= measured.compute_seconds / computing(request, sizes, device, before)
    fetch = copies(request, sizes, grid) * gather + coding(request, sizes, grid, device) + fetched.total
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


def computing(request: PlanRequest, sizes: Sizes, device: DeviceProfile, fused: bool = False) -> float:
    """Seconds of the dense products and the aggregation of a step, forward and backward; a fused input layer aggregates as it fetches."""
    products = 2 if request.model == "sage" else 1
    layers = list(zip(reversed(sizes.hops), request.widths, request.widths[1:], strict=False))
    operations = 6 * products * sum(hop.destinations * into * out for hop, into, out in layers)
    aggregated = 8 * sum(hop.block_edges * into for hop, into, _ in layers[1 if fused else 0 :])
    return operations / device.operations.value + aggregated / device.bandwidth.value


def gathering(request: PlanRequest, sizes: Sizes, device: DeviceProfile, fused: bool = False) -> float:
    """Seconds in which the rows of H of a mini-batch are put in order, or averaged where they lie."""
    hop = sizes.hops[-1]
    rows = hop.destinations + hop.block_edges if fused else sizes.inputs
    return rows * request.feature_width * request.feature_bytes / device.gather.value


def copies(request: PlanRequest, sizes: Sizes, grid: CandidateGrid) -> float:
    """Return how often a fetched row is copied by ranks: once where it lies in one memory, see the docstring of the package."""
    return 2 + features_away(request, sizes, grid) if grid.placed == "partitioned" and feature_group(request, grid) > 1 else 1.0


def coding(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, device: DeviceProfile) -> float:
    """Seconds in which the rows that travel are encoded and decoded, each a read and a write; 0 if they travel as they are."""
    if request.feature_codec == "fp32":
        return 0.0
    return 2 * features_away(request, sizes, grid) * sizes.inputs * (4 * request.feature_width + request.row_bytes) / device.gather.value


@dataclass(frozen=True)
class EvaluationCost:
    """Seconds and collectives of a rank, and bytes that all ranks send, in one evaluation; an epoch has `every` times less."""

    kind: str
    seconds: float = 0.0
    bytes: float = 0.0
    every: int = 1
    collectives: float = 0.0  # of exact inference

    @property
    def epoch_seconds(self) -> float:
        """Seconds of an epoch, on average."""
        return self.seconds / self.every


def evaluation_cost(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, measured: Measured) -> EvaluationCost:
    """Predict one evaluation of a request, whose mini-batches have these sizes in training."""
    if request.evaluation == "none":
        return EvaluationCost("none")
    fused = fuses_input(request, sizes, grid) if measured.fused is None else measured.fused  # of the run, whose speed counts
    speed = 1.0 if measured.compute_seconds is None else measured.compute_seconds / computing(request, sizes, measured.device, fused)
    if request.evaluation == "exact":
        if measured.evaluate_seconds is None:
            copying = (
                1.0 if measured.gather_seconds is None else measured.gather_seconds / gathering(request, sizes, measured.device, fused)
            )
            return _exact(request, grid, measured, speed, copying)
        whole = CandidateGrid(measured.evaluate_ranks, measured.evaluate_ranks, "replicated")
        ratio = measured.evaluate_seconds / _exact(request, whole, measured, 1.0, 1.0).seconds
        return _exact(request, grid, measured, ratio, ratio)
    seconds, sent = _sampled(request, grid, measured, speed)
    return EvaluationCost(request.evaluation, seconds, sent, request.eval_every)


def sampled_request(request: PlanRequest) -> PlanRequest:
    """Return the request whose mini-batches sampled scores draw."""
    fanouts = request.eval_fanouts or (20,) * len(request.fanouts)
    return request.model_copy(update={"fanouts": fanouts, "seeds": request.scored_vertices, "seed_locality": None})


def _exact(request: PlanRequest, grid: CandidateGrid, measured: Measured, speed: float, copying: float) -> EvaluationCost:
    n, m, p, device = request.vertices, request.edges, grid.ranks, measured.device
    products, per_node = 2 if request.model == "sage" else 1, min(request.connection().per_node, grid.ranks)
    divided = grid.partitioned or feature_group(request, grid) > 1
    c = p // (grid.rows if grid.partitioned else feature_group(request, grid)) if divided else p
    inside = inside_shares(p, 1, per_node, "columns")[0]
    collectives = 2.0 + 2 * _SPLITS
    seconds, total = exchanged(request, 0.0, collectives, p, inside).total, 0.0
    for i, (into, out) in enumerate(zip(request.widths, request.widths[1:], strict=False)):
        u, raw = min(into, out), i == 0 and into <= out
        operations = 2 * products * n / p * into * out / device.operations.value
        seconds += speed * (operations + 4 * m / p * u / device.bandwidth.value)
        limit = DEVICE_CHUNK_NUMBERS if request.has_devices else CHUNK_NUMBERS
        chunks = ceil((n + m) / p * (max(into, out) if raw else out) / limit)
        distinct = -chunks * n * expm1(-m / (p * chunks * n))
        sent, calls = (0.0, 0.0) if raw else ((p - 1) * 4.0 * n * u, 1.0)
        if divided:
            sent = (c - 1) * 4 * n * u + p * (1 - c / p) * distinct * (4 + 4 * u)
            calls = 3.0 * chunks + 3 + (c > 1)
        if divided or raw:
            seconds += copying * ((n + m) / p * _NUMBERED + (2 - c / p) * distinct * 4 * u) / device.gather.value
        seconds += exchanged(request, sent / p, calls, p, inside).total
        total, collectives = total + sent, collectives + calls
    return EvaluationCost("exact", seconds, total, request.eval_every, collectives)


def _sampled(request: PlanRequest, grid: CandidateGrid, measured: Measured, speed: float) -> tuple[float, float]:
    scored, device = sampled_request(request), measured.device
    sizes, minibatches = expected_sizes(scored), scored.minibatches
    k = min(scoring_bulk(scored.batch_size, scored.fanouts), -(-minibatches // grid.ranks))
    drawn, fetch = sampling(scored, sizes, grid, k), fetching(scored, sizes, grid, k)
    moving: Moving = transfer(scored, drawn, grid, grid.order) * (1 / k) + fetch_transfer(scored, sizes, grid, k)
    fetched = copies(scored, sizes, grid) * gathering(scored, sizes, device) + coding(scored, sizes, grid, device)
    each = sizes.edges / device.sampling.value + (fetched + speed * computing(scored, sizes, device) / 3) + moving.total
    return -(-minibatches // grid.ranks) * each, minibatches * ((drawn.column + drawn.row) / k + fetch.column)
