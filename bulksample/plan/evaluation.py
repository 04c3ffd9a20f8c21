"""Predict the seconds and bytes of one evaluation: exact, over all neighbors, or sampled.

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

from ..distributed.matrix.inference_memory import CHUNK_NUMBERS, DEVICE_CHUNK_NUMBERS
from ..loading.bulk_sizes import scoring_bulk
from .measured import Measured
from .request import PlanRequest
from .seconds import Moving, coding, computing, copies, exchanged, fetch_transfer, gathering, transfer
from .sizes import Sizes, expected_sizes
from .traffic import CandidateGrid, feature_group, fetching, inside_shares, sampling

_NUMBERED = 17  # bytes of an id that is numbered: read twice, its mark, its number, and the result
_SPLITS = 3


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
    speed = 1.0 if measured.compute_seconds is None else measured.compute_seconds / computing(request, sizes, measured.device)
    if request.evaluation == "exact":
        if measured.evaluate_seconds is None:
            copying = 1.0 if measured.gather_seconds is None else measured.gather_seconds / gathering(request, sizes, grid, measured.device)
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
    work = (
        copies(scored, sizes, grid) * gathering(scored, sizes, grid, device)
        + coding(scored, sizes, grid, device)
        + speed * computing(scored, sizes, device) / 3
    )
    each = sizes.edges / device.sampling.value + work + moving.total
    return -(-minibatches // grid.ranks) * each, minibatches * ((drawn.column + drawn.row) / k + fetch.column)
