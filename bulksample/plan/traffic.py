"""Predict the bytes and messages that ranks send in an epoch, by the formulas in the docstring of the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import expm1
from operator import add
from typing import Self

from ..distributed.matrix.grid import Order
from ..distributed.matrix.reply_slots import is_padded
from .request import PlanRequest
from .sizes import ExpectedHop, Sizes, union


@dataclass(frozen=True)
class CandidateGrid:
    """A p / c x c process grid, and the placement of A and H on it."""

    ranks: int
    replication: int
    graph: str  # "replicated": A on every rank (c = p), and H; "partitioned": both in block rows; "published": A on every rank, H in rows
    features: str = ""  # where H lies: "replicated", "partitioned", "machine" or "host"; empty: where `graph` says
    feature_replication: int = 0  # c of H in block rows; 0: that of the grid
    order: Order = "rows"  # of the grid of H; see `distributed.matrix.grid`

    @property
    def topology(self) -> str:
        """Return the placement of A: replicated or partitioned."""
        return "partitioned" if self.partitioned else "replicated"

    @property
    def placed(self) -> str:
        """Return the placement of H: replicated, partitioned, machine or host."""
        return self.features or ("replicated" if self.graph == "replicated" else "partitioned")

    @property
    def rows(self) -> int:
        """q, the number of block rows."""
        return self.ranks // self.replication

    @property
    def partitioned(self) -> bool:
        """True if A is in block rows too."""
        return self.graph == "partitioned"

    @property
    def share(self) -> float:
        """r, the share of the rows of A that a rank holds."""
        return 1 / self.rows if self.partitioned else 1.0


@dataclass(frozen=True)
class Figures:
    """A dataclass of numbers, which add up field by field and together, and which a factor repeats."""

    @property
    def total(self) -> float:
        """The sum of all fields."""
        return float(sum(astuple(self)))

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    def __mul__(self, factor: float) -> Self:
        return type(self)(*(factor * number for number in astuple(self)))


@dataclass(frozen=True)
class SentPerRank(Figures):
    """Bytes and collectives of one rank on average, inside its process column and its process row."""

    column: float = 0.0  # bytes sent, without the lengths that go ahead of messages
    row: float = 0.0
    column_calls: float = 0.0  # collectives, those of lengths included
    row_calls: float = 0.0
    column_words: float = 0.0  # collectives of lengths alone
    row_words: float = 0.0


@dataclass(frozen=True)
class EpochBytes(Figures):
    """Bytes that all ranks send in an epoch, by kind."""

    topology: float
    features: float
    gradients: float
    control: float


def epoch_bytes(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> EpochBytes:
    """Predict the bytes that all ranks send in an epoch with bulks of k mini-batches a rank."""
    minibatches, steps = request.trained(grid.ranks), request.steps(grid.ranks)
    bulk, fetch = sampling(request, sizes, grid, k), fetching(request, sizes, grid, k)
    calls = grid.ranks * -(-steps // k)
    words = 8 * (grid.rows - 1) * bulk.column_words + 8 * (grid.replication - 1) * bulk.row_words
    group = feature_group(request, grid)
    ids = requested_bytes(request, sizes, grid, k)
    return EpochBytes(
        topology=minibatches * ((bulk.column + bulk.row) / k + ids),
        features=minibatches * (fetch.column - ids),
        gradients=steps * 2 * (grid.ranks - 1) * 4 * (request.parameters + 3),
        control=calls * (words + 8 * (group - 1) * k * fetch.column_words),
    )


def epoch_collectives(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> dict[str, float]:
    """Predict the collectives of a rank in an epoch by kind, lengths as "control", without others and those of the epoch's end."""
    steps = request.steps(grid.ranks)
    bulk, bulks = sampling(request, sizes, grid, k), -(-steps // k)
    column, row = grid.rows > 1, grid.replication > 1
    words = column * bulk.column_words + row * bulk.row_words
    fetched = feature_group(request, grid) > 1
    return {
        "topology": bulks * (column * bulk.column_calls + row * bulk.row_calls - words + fetched),
        "features": steps * fetched,
        "gradients": steps if grid.ranks > 1 else 0,
        "control": bulks * (words + fetched),
    }


def sampling(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> SentPerRank:
    """Predict what one rank sends to sample one bulk of k mini-batches."""
    return sum(sampling_hops(request, sizes, grid, k), SentPerRank())


def sampling_hops(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> list[SentPerRank]:
    """Predict what one rank sends in each hop of a bulk; an empty list if the graph is replicated."""
    if not grid.partitioned:
        return []
    policy = _owner if request.exchange == "owner" else _rows
    away = [sizes.away(grid.ranks, grid.rows, i) for i in range(len(sizes.hops))]
    return [policy(request, hop, fanout, grid, k, share) for hop, fanout, share in zip(sizes.hops, request.fanouts, away, strict=True)]


def fetching(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> SentPerRank:
    """Predict what one rank sends to fetch the features of one mini-batch: its share of the lengths and ids of a bulk, then rows."""
    moved = features_away(request, sizes, grid) * sizes.inputs * request.row_bytes
    return SentPerRank(column=moved + requested_bytes(request, sizes, grid, k), column_calls=1 + 2 / k, column_words=1 / k)


def requested_bytes(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> float:
    """Predict the bytes of the ids that one rank requests for one of k mini-batches, whose ids travel at once."""
    group = feature_group(request, grid)
    return 4 * (features_away(request, sizes, grid) * sizes.inputs + (group - 1) * (k - 1) / k)


def features_away(request: PlanRequest, sizes: Sizes, grid: CandidateGrid) -> float:
    """Return the share of the input rows of a mini-batch that its rank fetches from others."""
    group = feature_group(request, grid)
    return sizes.away(grid.ranks, group) if grid.placed == "partitioned" else 1 - 1 / group


def feature_group(request: PlanRequest, grid: CandidateGrid) -> int:
    """Return the number of ranks among which a rank fetches rows of H: 1 if it or its machine holds all."""
    if grid.placed == "partitioned":
        return grid.ranks // (grid.feature_replication or grid.replication)
    return min(request.connection().per_node, grid.ranks) if grid.placed == "machine" and request.has_devices else 1


def bytes_between_machines(request: PlanRequest, sizes: Sizes, grid: CandidateGrid, k: int) -> float:
    """Predict how many of the bytes of an epoch go to other machines, control messages left out."""
    per_node = min(request.connection().per_node, grid.ranks)
    bulk, fetch = sampling(request, sizes, grid, k), fetching(request, sizes, grid, k)
    order: Order = grid.order if request.exchange == "owner" else "rows"
    column, row = (1 - inside for inside in inside_shares(grid.ranks, grid.replication, per_node, order))
    group = feature_group(request, grid)
    away = 0.0 if grid.placed == "machine" else 1 - inside_shares(grid.ranks, grid.ranks // group, per_node, grid.order)[0]
    gradients = epoch_bytes(request, sizes, grid, k).gradients * (1 - inside_shares(grid.ranks, 1, per_node, "columns")[0])
    return request.trained(grid.ranks) * ((bulk.column * column + bulk.row * row) / k + fetch.column * away) + gradients


def inside_shares(ranks: int, replication: int, per_node: int, order: Order) -> tuple[float, float]:
    """Return the shares of what a rank sends to others of its process column, and of its process row, that stay on its machine."""
    q, c = ranks // replication, replication
    column, row = (per_node // c, per_node) if order == "rows" else (per_node, per_node // q)
    return tuple((min(max(1, on), size) - 1) / (size - 1) if size > 1 else 1.0 for on, size in ((column, q), (row, c)))  # type: ignore[return-value]


def _owner(request: PlanRequest, hop: ExpectedHop, fanout: int, grid: CandidateGrid, k: int, away: float) -> SentPerRank:
    others = grid.rows - 1
    if request.sampler == "sage":
        padded = is_padded(fanout, request.edges, request.vertices)
        answers = 4 * fanout * hop.rows if padded else 4 * hop.edges
        sent = others * (4 + 8 * k) + k * away * (4 * hop.rows + answers)
        return SentPerRank(column=sent, column_calls=3, column_words=1)
    requested = others * (4 + 12 * k + 4 * k * hop.drawn)
    restrict = SentPerRank(column=requested + k * away * (8 * hop.rows + 12 * hop.edges), column_calls=4, column_words=2)
    if request.sampler == "fastgcn":
        return restrict
    own_range = hop.candidates / grid.rows
    answers = 12 * (own_range if fanout < 0 else min(fanout + 1.0, own_range))
    products = others * (4 + k * (12 + 4 * hop.rows + answers))
    return restrict + SentPerRank(column=products, column_calls=4, column_words=2)


def _rows(request: PlanRequest, hop: ExpectedHop, fanout: int, grid: CandidateGrid, k: int, away: float) -> SentPerRank:
    """Predict the fetch of distinct rows of A: members of the process row are told their ids, fetch the rows and send them back."""
    entry = 12 if request.weighted else 4  # bytes of an entry of A in a message
    distinct = union(hop.rows, request.vertices, k) * (1 - 1 / grid.replication)
    returned = SentPerRank(row=distinct * (8 + entry * request.degree), row_calls=4, row_words=2)
    fetch = _stages(request, hop, grid, k, entry, away) + returned
    if request.sampler != "ladies":
        return fetch
    others = grid.replication - 1
    products = -request.vertices * expm1(-hop.rows * request.degree / (grid.replication * request.vertices))
    ids = 4 * k * hop.rows * (1 - 1 / grid.replication)
    reduce = SentPerRank(row=ids + others * (4 + k * (12 + 12 * products)), row_calls=4, row_words=2)
    return _stages(request, hop, grid, k, 12, away) + reduce + fetch


def _stages(request: PlanRequest, hop: ExpectedHop, grid: CandidateGrid, k: int, entry: int, away: float) -> SentPerRank:
    """Predict the stages that fetch the rows a process row names; each member requests those in the blocks of its process column."""
    n, d, stages = request.vertices, request.degree, grid.rows / grid.replication
    used = min(1.0, stages)  # the share of the process columns that have stages
    if request.exchange == "rows-oblivious":
        moved = (grid.rows - 1) * n * (4 + entry * d) / grid.ranks
        return SentPerRank(column=moved, column_calls=2 * used + stages, column_words=used)
    named = union(hop.rows, n, k * grid.replication)
    moved = away * named * (8 + entry * d) / grid.replication
    return SentPerRank(column=moved, column_calls=3 * used + stages, column_words=used)


def published_words(ranks: int, replication: int, rows_per_layer: Sequence[float], degree: float) -> tuple[float, float, float]:
    """Evaluate the three terms of the published cost of the 1.5D product P = Q A, summed over layers.

    `rows_per_layer` are the rows of Q, summed over ranks. With k b rows of Q, d entries in a row of A, and p ranks on a p/c x c grid, the
    critical path of a process has

        k b / c              words on the column ids of Q that it gathers,
        k b d / c            words on rows of A,
        c k b d / p          words on the all-reduce over its process row.

    As published, k b are the rows for the layer of the seeds, then k b s, k b s**2, ... without deduplication of frontiers. A word is an
    entry: an id and its value, if there is one. The first two terms count what one process of a column sends while the others wait, over
    the p / c**2 stages. So all c columns together move k b and k b d words. The p processes of the all-reduces move c k b d words.

    Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
    """
    rows = float(sum(rows_per_layer))
    return rows / replication, rows * degree / replication, replication * rows * degree / ranks
