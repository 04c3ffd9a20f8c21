"""Predict the seconds and bytes of one evaluation: exact, over all neighbors, or sampled.

Exact inference computes layer l of width w_l from the w_(l-1) below, u = min of both being sent. Each rank takes n / p rows, m / p entries:
    compute   2 n / p w_(l-1) w_l (twice for sage) / (operations a second) + 4 m / p u / (bytes a second)
    prepare   where sources are fetched (in block rows, and in a layer that sends nothing): (n + m) / p / (sampled edges a second) to number
              the sources of a chunk, which costs what numbering those of a mini-batch does, and 3 copies of the distinct sources,
              n (1 - exp(-m / (p n))) 4 u / (gathered bytes a second): encoded, put in place, put in order
    bytes     (p - 1) 4 n u over all ranks where all ranks hold A; in block rows (c - 1) 4 n u, and for each rank the distinct
              sources on other block rows, a n (1 - exp(-m / (p n))) of 4 + 4 u bytes. Layer 1 sends nothing if all ranks hold H, f <= w_1
Sampled scores take ceil(S / b) mini-batches of `eval_fanouts`, S vertices scored, in bulks of `scoring_bulk`: sampling, fetching, and a
third of a step's computing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1

from ..bulk_sizes import scoring_bulk
from .measured import Measured
from .moving import Moving, exchanged
from .request import PlanRequest
from .seconds import coding, computing, fetch_transfer, gathering, transfer
from .sizes import Sizes, expected_sizes
from .traffic import CandidateGrid, feature_group, fetching, inside_shares, sampling


@dataclass(frozen=True)
class EvaluationCost:
    """Seconds of a rank, and bytes that all ranks send, in one evaluation; those of an epoch are `every` times less."""

    kind: str
    seconds: float = 0.0
    bytes: float = 0.0
    every: int = 1

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
        copying = 1.0 if measured.gather_seconds is None else measured.gather_seconds / gathering(request, sizes, grid, measured.device)
        seconds, sent = _exact(request, grid, measured, speed, copying)
    else:
        seconds, sent = _sampled(request, grid, measured, speed)
    return EvaluationCost(request.evaluation, seconds, sent, request.eval_every)


def sampled_request(request: PlanRequest) -> PlanRequest:
    """Return the request whose mini-batches sampled scores draw."""
    fanouts = request.eval_fanouts or (20,) * len(request.fanouts)
    return request.model_copy(update={"fanouts": fanouts, "seeds": request.scored_vertices, "seed_locality": None})


def _exact(request: PlanRequest, grid: CandidateGrid, measured: Measured, speed: float, copying: float) -> tuple[float, float]:
    n, m, p, device = request.vertices, request.edges, grid.ranks, measured.device
    products, per_node = 2 if request.model == "sage" else 1, min(request.connection().per_node, grid.ranks)
    divided = grid.partitioned or feature_group(request, grid) > 1
    distinct, seconds, total = -n * expm1(-m / (p * n)), 0.0, 0.0
    inside = inside_shares(p, 1, per_node, "columns")[0]
    for i, (into, out) in enumerate(zip(request.widths, request.widths[1:], strict=False)):
        u = min(into, out)
        operations = 2 * products * n / p * into * out / device.operations.value
        seconds += speed * (operations + 4 * m / p * u / device.bandwidth.value)
        if divided:
            rows = p // (grid.rows if grid.partitioned else feature_group(request, grid))
            sent = (rows - 1) * 4 * n * u + p * (1 - rows / p) * distinct * (4 + 4 * u)
        else:
            sent = 0.0 if i == 0 and into <= out else (p - 1) * 4.0 * n * u
        if divided or (i == 0 and into <= out):
            seconds += (n + m) / p / device.sampling.value + copying * 3 * distinct * 4 * u / device.gather.value
        seconds += exchanged(request, sent / p, 4.0 if sent else 0.0, p, inside).total
        total += sent
    return seconds, total


def _sampled(request: PlanRequest, grid: CandidateGrid, measured: Measured, speed: float) -> tuple[float, float]:
    scored, device = sampled_request(request), measured.device
    sizes, minibatches = expected_sizes(scored), scored.minibatches
    k = min(scoring_bulk(scored.batch_size, scored.fanouts), -(-minibatches // grid.ranks))
    drawn, fetch = sampling(scored, sizes, grid, k), fetching(scored, sizes, grid, k)
    moving: Moving = transfer(scored, drawn, grid, grid.order) * (1 / k) + fetch_transfer(scored, sizes, grid, k)
    work = gathering(scored, sizes, grid, device) + coding(scored, sizes, grid, device) + speed * computing(scored, sizes, device) / 3
    each = sizes.edges / device.sampling.value + work + moving.total
    return -(-minibatches // grid.ranks) * each, minibatches * ((drawn.column + drawn.row) / k + fetch.column)
