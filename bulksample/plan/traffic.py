"""Bytes that are sent in an epoch, and how many messages they come in; the formulas stand at the top of the package."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1

from ..distributed.costs.published import PublishedWords, published_words
from .request import PlanRequest
from .sizes import Hop, Sizes, union


@dataclass(frozen=True)
class Grid:
    """p ranks on a p / c x c grid, and what lies on it in block rows.

    Attributes
    ----------
    graph : {"replicated", "partitioned", "published"}
        A and H whole on every rank (c = p); both in block rows; A whole and H in block rows.
    """

    ranks: int
    replication: int
    graph: str

    @property
    def rows(self) -> int:
        """q, the block rows of H."""
        return self.ranks // self.replication

    @property
    def partitioned(self) -> bool:
        """Whether A is in block rows too."""
        return self.graph == "partitioned"

    @property
    def share(self) -> float:
        """Of the rows of A that a rank holds: r."""
        return 1 / self.rows if self.partitioned else 1.0

    @property
    def away(self) -> float:
        """a, the share of rows that another rank of the process column holds."""
        return 1 - 1 / self.rows


@dataclass(frozen=True)
class Exchange:
    """What one rank sends on average: bytes and all-to-alls, inside its process column and its process row."""

    column: float = 0.0
    row: float = 0.0
    column_calls: float = 0.0
    row_calls: float = 0.0

    def __add__(self, other: Exchange) -> Exchange:
        return Exchange(
            self.column + other.column, self.row + other.row, self.column_calls + other.column_calls, self.row_calls + other.row_calls
        )


@dataclass(frozen=True)
class Traffic:
    """Bytes of an epoch by kind, over all ranks."""

    topology: float
    features: float
    gradients: float
    control: float

    @property
    def total(self) -> float:
        return self.topology + self.features + self.gradients + self.control


def traffic(request: PlanRequest, sizes: Sizes, grid: Grid, k: int) -> Traffic:
    """What all ranks send in an epoch of bulks of k minibatches a rank."""
    minibatches, steps = request.minibatches, -(-request.minibatches // grid.ranks)
    bulk, fetch = sampling(request, sizes, grid, k), fetching(request, sizes, grid)
    calls = grid.ranks * -(-steps // k)
    words = 8 * (grid.rows - 1) * bulk.column_calls + 8 * (grid.replication - 1) * bulk.row_calls
    ids = grid.away * 4 * sizes.inputs
    return Traffic(
        topology=minibatches * ((bulk.column + bulk.row) / k + ids),
        features=minibatches * (fetch.column - ids),
        gradients=steps * 2 * (grid.ranks - 1) * 4 * (request.parameters + 3),
        control=calls * words + grid.ranks * steps * 8 * (grid.rows - 1) * fetch.column_calls,
    )


def sampling(request: PlanRequest, sizes: Sizes, grid: Grid, k: int) -> Exchange:
    """Of one rank, for one bulk of k minibatches."""
    return sum(sampling_hops(request, sizes, grid, k), Exchange())


def sampling_hops(request: PlanRequest, sizes: Sizes, grid: Grid, k: int) -> list[Exchange]:
    """The same for each hop; nothing with the graph replicated."""
    if not grid.partitioned:
        return []
    policy = _owner if request.exchange == "owner" else _rows
    return [policy(request, hop, fanout, grid, k) for hop, fanout in zip(sizes.hops, request.fanouts, strict=True)]


def fetching(request: PlanRequest, sizes: Sizes, grid: Grid) -> Exchange:
    """Of one rank, for the features of one minibatch: ids, then rows."""
    return Exchange(column=grid.away * sizes.inputs * (4 + request.row_bytes), column_calls=2)


def published(request: PlanRequest, sizes: Sizes, grid: Grid) -> PublishedWords:
    """What the printed cost of the 1.5D algorithm says of an epoch."""
    return published_words(grid.ranks, grid.replication, [request.minibatches * hop.rows for hop in sizes.hops], request.degree)


def _owner(request: PlanRequest, hop: Hop, fanout: int, grid: Grid, k: int) -> Exchange:
    others, away = grid.rows - 1, grid.away
    if request.sampler == "sage":
        return Exchange(column=k * (16 * others + away * (8 * hop.rows + 4 * hop.edges)), column_calls=4)
    restrict = Exchange(column=k * (32 * others + 4 * hop.drawn * others + away * (8 * hop.rows + 12 * hop.edges)), column_calls=7)
    if request.sampler == "fastgcn":
        return restrict
    own_range = hop.candidates / grid.rows
    answers = 12 * (own_range if fanout < 0 else min(fanout + 1.0, own_range))
    return restrict + Exchange(column=k * others * (16 + 4 * hop.rows + 4 + answers), column_calls=5)


def _rows(request: PlanRequest, hop: Hop, fanout: int, grid: Grid, k: int) -> Exchange:
    fetch = _fetch_rows(request, hop, grid, k)
    if request.sampler != "ladies":
        return fetch
    others = grid.replication - 1
    products = -request.vertices * expm1(-hop.rows * request.degree / (grid.replication * request.vertices))
    reduce = Exchange(row=k * others * (16 + 4 * hop.rows + 4 + 12 * products), row_calls=5)
    return _stages(request, hop, grid, k, entry=12) + reduce + fetch


def _fetch_rows(request: PlanRequest, hop: Hop, grid: Grid, k: int) -> Exchange:
    """Distinct rows of A for each rank: named inside the process row, fetched in its columns, handed on."""
    own, others = union(hop.rows, request.vertices, k), grid.replication - 1
    answers = own * (1 - 1 / grid.replication) * (4 + _entry(request) * request.degree)
    row = Exchange(row=4 * own * others + answers, row_calls=4 if request.weighted else 3)
    return _stages(request, hop, grid, k, _entry(request)) + row


def _stages(request: PlanRequest, hop: Hop, grid: Grid, k: int, entry: int) -> Exchange:
    """The rows that a process row names, each asked for by the member whose process column works on its block."""
    n, d, stages = request.vertices, request.degree, grid.rows / grid.replication
    calls = 2 + (entry == 12)
    if request.exchange == "rows-oblivious":
        return Exchange(column=(grid.rows - 1) * n * (4 + entry * d) / grid.ranks, column_calls=stages * calls)
    named = union(hop.rows, n, k * grid.replication)
    return Exchange(column=grid.away * named * (8 + entry * d) / grid.replication, column_calls=stages * (calls + 1))


def _entry(request: PlanRequest) -> int:
    """Bytes of an entry of A that travels."""
    return 12 if request.weighted else 4
