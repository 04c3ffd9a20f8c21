"""Predict the bytes that one rank holds, by the formulas in the docstring of the package."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..distributed.comm.primitives import MOST_ELEMENTS
from ..distributed.matrix.inference_memory import layers, streamed_bytes
from ..distributed.matrix.reply_slots import RowLaw, is_padded
from ..loading.bulk_sizes import COPIES
from .input_layer import fuses_input
from .request import PlanRequest
from .seconds import sampled_request
from .sizes import Sizes, expected_sizes
from .traffic import CandidateGrid, feature_group, sampling_hops

_PER_SEED = 16  # seeds (int32), their classes (int64), the loader's copy (int32); the order of an epoch is kept nowhere
_PER_GROUPED_SEED = 16  # more with `seed_locality`: places in part order and seeds in that order (int64)
_LABELS_AND_MASKS = 11  # bytes of a vertex: int64 and three bools


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank, by purpose. Training and exact evaluation take turns."""

    graph: float
    features: float
    vectors: float
    model: float
    bulk: float
    buffers: float
    activations: float
    evaluation: float

    @property
    def total(self) -> float:
        """Bytes at the peak."""
        always = self.graph + self.features + self.vectors + self.model
        return always + max(self.bulk + self.buffers + self.activations, self.evaluation)


def rank_memory(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> RankMemory:
    """Predict the memory of a rank that trains on bulks of k mini-batches."""
    group = feature_group(request, grid)
    # the requests for the rows of a bulk wait for their turn: see `RowExchange.ask`
    requests = k * sizes.inputs * (9 + 4 * (1 - 1 / group)) if group > 1 else 0.0
    return RankMemory(
        graph=_graph(request, grid),
        features=request.vertices * request.feature_width * request.feature_bytes * _feature_share(request, grid),
        vectors=_vectors(request, grid),
        model=16 * request.parameters,
        bulk=COPIES * k * sizes.nbytes,
        buffers=_sampling_buffers(request, sizes, grid, k) + _fetch_buffers(request, sizes, grid) + requests,
        activations=_kept(request, sizes) + _gradients(request, sizes),
        evaluation=_evaluation(request, grid) if request.evaluation == "exact" else _sampled(request, grid),
    )


def largest_bulk(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, budget: float) -> int:
    """Return the largest k, of at most an epoch, that fits a budget; 0 if none fits."""
    steps = request.steps(grid.ranks)
    return bisect_right(range(1, steps + 1), budget, key=lambda k: rank_memory(request, sizes, grid, k).total)


def host_bytes(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> float:
    """Return the bytes of the memory of each machine that training on bulks of k mini-batches takes.

    Ranks without devices take there all that they hold. Beside devices it holds a process for each, the features of the placement `host`,
    and the buffers of exchanges where the ranks exchange host memory.
    """
    ranks = min(request.connection().per_node, grid.ranks)
    process = request.machine().process.value
    if not request.has_devices:
        return ranks * (process + rank_memory(request, sizes, grid, k).total)
    staged = _sampling_buffers(request, sizes, grid, k) + _fetch_buffers(request, sizes, grid) if request.device_comm == "host" else 0.0
    features = request.vertices * request.feature_width * request.feature_bytes if grid.placed == "host" else 0
    return features + ranks * (process + staged)


def _feature_share(request: PlanRequest, grid: CandidateGrid) -> float:
    """Return the share of the features in the memory of a rank; without a device it counts its part of what its machine holds."""
    if grid.placed == "partitioned":
        return (grid.feature_replication or grid.replication) / grid.ranks
    if grid.placed == "replicated":
        return 1.0
    return 0.0 if grid.placed == "host" and request.has_devices else 1 / min(request.connection().per_node, grid.ranks)


def _graph(request: PlanRequest, grid: CandidateGrid) -> float:
    n, m, share = request.vertices, request.edges, grid.share
    rows = 8 * (n * share + 1) + (12 if request.weighted else 4) * m * share
    if not grid.partitioned and feature_group(request, grid) > 1:  # the rows of which a rank infers the hidden rows
        rows += (8 * n + (12 if request.weighted else 4) * m) / feature_group(request, grid)
    if request.sampler == "sage":
        if not grid.partitioned or request.exchange != "owner":
            return rows
        # all ranks know the count of a row where answers are not padded, as wide as that of the longest row, which may have n edges
        counted = [fanout for fanout in request.fanouts if not is_padded(fanout, m, n)]
        return rows + n * max((RowLaw(fanout).width_of_counts(n) for fanout in counted), default=0)
    means = 4 * m * share if request.weighted else 0
    squares = 8 * m * share if grid.partitioned or request.weighted else 8 * n
    columns = 8 * (n + 1) + 12 * m * share if grid.partitioned and request.exchange == "owner" else 0
    static = 12 * n if request.sampler == "fastgcn" else 0
    return rows + means + squares + 8 * n * share + columns + static


def _vectors(request: PlanRequest, grid: CandidateGrid) -> float:
    """Bytes of the labels, masks and degrees of a rank's rows, of their ids in a block row, of the seeds, and for gcn of all degrees."""
    seeds = (_PER_SEED + (_PER_GROUPED_SEED if request.seed_locality else 0)) * (request.seeds or request.vertices)
    if not grid.partitioned:
        return (_LABELS_AND_MASKS + 4) * request.vertices + seeds
    return (_LABELS_AND_MASKS + 8) * request.vertices * grid.share + (4 * request.vertices if request.model == "gcn" else 0) + seeds


def _sampling_buffers(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> float:
    """Bytes that the largest hop of a bulk sends and receives; for LADIES also the rows of P of the bulk."""
    products = 12 * k * max(hop.candidates for hop in sizes.hops) if request.sampler == "ladies" else 0.0
    return products + 2 * max((hop.column + hop.row for hop in sampling_hops(request, sizes, grid, k)), default=0.0)


def _fetch_buffers(request: PlanRequest, sizes: Sizes, grid: CandidateGrid) -> float:
    """Bytes of the rows of this step as float32; if rows are exchanged, also of the next ones: sent, received, and in order.

    A fused input layer takes rows of its destinations alone.
    """
    if fuses_input(request, sizes, grid):
        return sizes.hops[-1].destinations * 4 * request.feature_width
    group = feature_group(request, grid)
    exchanged = (2 * (1 - 1 / group) + 1) * request.row_bytes if group > 1 else 0
    return sizes.inputs * (4 * request.feature_width + exchanged)


def _kept(request: PlanRequest, sizes: Sizes) -> float:
    """Return the bytes kept for the backward pass: means, and rows after relu and dropout, whose signs are the masks."""
    widths = request.widths
    rows = zip(reversed(sizes.hops), widths, widths[1:], strict=False)
    return 4 * sum(hop.destinations * (into + out) for hop, into, out in rows)


def _gradients(request: PlanRequest, sizes: Sizes) -> float:
    """Return the bytes of the gradients of the largest layer, before and after relu and dropout."""
    return 8 * max(hop.destinations * out for hop, out in zip(reversed(sizes.hops), request.widths[1:], strict=False))


def _sampled(request: PlanRequest, grid: CandidateGrid) -> float:
    """Bytes of the mini-batch of sampled scores: as in training, without gradients; 0 if nothing is evaluated."""
    if request.evaluation == "none":
        return 0.0
    scored = sampled_request(request)
    sizes = expected_sizes(scored)
    return COPIES * sizes.nbytes + _fetch_buffers(scored, sizes, grid) + _kept(scored, sizes)


def _evaluation(request: PlanRequest, grid: CandidateGrid) -> float:
    """Bytes of exact inference at its widest layer: gathered rows, and this rank's before, sent, and twice after; or streamed if less."""
    group = feature_group(request, grid)
    blocks, share = (grid.partitioned or group > 1), grid.share if grid.partitioned else 1 / group
    gathering = (grid.replication if grid.partitioned else grid.ranks // group) if blocks else grid.ranks
    widest = 0.0
    for below, sent, out in layers(request.widths, not blocks):
        gathered = 4 * request.vertices * sent * share
        arriving = MOST_ELEMENTS if gathering > 1 and gathered > MOST_ELEMENTS else 0  # a round of an exchange, before it is put in order
        widest = max(widest, gathered + arriving + 4 * request.vertices * (below + sent + 2 * out) / grid.ranks)
    if request.eval_memory is None or widest <= request.eval_memory:
        return widest
    rows = request.vertices / grid.ranks
    return streamed_bytes(request.widths, request.vertices, rows, request.degree, not blocks, request.eval_memory)
