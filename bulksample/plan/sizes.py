"""Predict the size of a mini-batch hop by hop, by the formulas in the docstring of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, expm1, log1p

from .request import PlanRequest


@dataclass(frozen=True)
class ExpectedHop:
    """Expected draws of one hop of one mini-batch, and the sizes of its block; by the frontier rule `new` it holds earlier hops too."""

    rows: float  # R, vertices that draw
    edges: float  # E, edges drawn (node-wise) or kept (layer-wise)
    drawn: float  # S, layer-wise; 0 node-wise
    candidates: float  # C, layer-wise; 0 node-wise
    destinations: float
    sources: float
    block_edges: float


@dataclass(frozen=True)
class Sizes:
    """Expected sizes of a full mini-batch of b seeds."""

    batch_size: int
    hops: tuple[ExpectedHop, ...]  # in order from the seeds on
    nested: bool  # the last block holds all others (the frontier rule `new`)
    weighted: bool  # sampled edges carry weights (layer-wise)
    # measured shares of rows on other block rows, see `locality`; empty where seeds are drawn from the whole graph
    shares: Mapping[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    def away(self, ranks: int, rows: int, hop: int = -1) -> float:
        """a, the share of the rows that draw in a hop, or by default of the input rows, that other block rows than the rank's own hold."""
        shares = self.shares.get((ranks, rows))
        return 1 - 1 / rows if shares is None else shares[hop]

    @property
    def inputs(self) -> float:
        """U, the vertices whose features the mini-batch needs."""
        return self.hops[-1].sources

    @property
    def edges(self) -> float:
        """Edges of all hops, each draw counted once."""
        return sum(hop.edges for hop in self.hops)

    @property
    def rows(self) -> float:
        """Drawing vertices of all hops, each counted once per hop."""
        return sum(hop.rows for hop in self.hops)

    @property
    def nbytes(self) -> float:
        """Bytes of the arrays of the mini-batch, as `MiniBatch.nbytes` counts them."""
        blocks = self.hops[-1:] if self.nested else self.hops
        entry = 8 if self.weighted else 4
        return 8 * self.batch_size + 4 * self.inputs + sum(8 * (hop.destinations + 1) + entry * hop.block_edges for hop in blocks)

    def scaled_to(self, edges: float, inputs: float) -> Sizes:
        """Return the sizes with measured edges and inputs. Everything but the seeds is scaled by the same factor."""
        share = edges / self.edges if self.edges else 1.0
        hops = [
            replace(
                hop, rows=hop.rows * (share if i else 1), edges=hop.edges * share, destinations=hop.destinations * (share if i else 1),
                sources=hop.sources * share, block_edges=hop.block_edges * share,
            )
            for i, hop in enumerate(self.hops)
        ]  # fmt: skip
        return replace(self, hops=(*hops[:-1], replace(hops[-1], sources=inputs)))


def expected_sizes(request: PlanRequest) -> Sizes:
    """Predict the sizes of the mini-batches of a request, on a graph whose edges are drawn at random."""
    seeds = min(request.batch_size, request.vertices)
    draw = _node_wise if request.sampler == "sage" else _layer_wise
    return Sizes(request.batch_size, tuple(draw(request, seeds)), request.frontier == "new", request.sampler != "sage")


def union(part: float, whole: float, parts: float) -> float:
    """Return the expected size of the union of `parts` independent random subsets of size `part` of a set of size `whole`."""
    return -whole * expm1(parts * log1p(-part / whole)) if part < whole else whole


def _node_wise(request: PlanRequest, seeds: int) -> list[ExpectedHop]:
    n, d = request.vertices, request.degree
    vertices: list[float] = [0.0, float(seeds)]  # vertices before the first hop, and after each
    left: list[float] = [1.0]  # for the vertices found in each hop: the share of their edges that no hop has drawn yet
    hops: list[ExpectedHop] = []
    for fanout in request.fanouts:
        expanding = len(left) if request.frontier == "all" else 1  # groups of vertices that draw, counted from the newest
        rows = vertices[-1] - vertices[-1 - expanding]
        share = 1.0 if fanout < 0 or fanout >= d else fanout / d
        left = [kept * (1 - share) if i >= len(left) - expanding else kept for i, kept in enumerate(left)]
        drawn = sum((b - a) * d * (1 - kept) for a, b, kept in zip(vertices, vertices[1:], left, strict=False))
        edges, sources = rows * d * share, n - (n - seeds) * exp(-drawn / n)
        hops.append(ExpectedHop(rows, edges, 0, 0, vertices[-1], sources, _block_edges(request, hops, edges)))
        vertices.append(hops[-1].sources)
        left.append(1.0)
    return hops


def _layer_wise(request: PlanRequest, seeds: int) -> list[ExpectedHop]:
    n, d = request.vertices, request.degree
    static = request.sampler == "fastgcn"
    before, destinations, hops = 0.0, float(seeds), list[ExpectedHop]()
    for fanout in request.fanouts:
        rows = destinations if request.frontier == "all" else destinations - before
        mean = d if static else rows * d / n  # mean edges from a candidate into the rows that P sums
        candidates = -n * expm1(-mean)
        drawn = candidates if fanout < 0 else min(float(fanout), candidates)
        y = 1.0 if drawn >= candidates else -log1p(-drawn / n) / mean
        edges = rows * d * (1 - (1 - y) * (1 - drawn / n))
        # of the vertices that a static law draws, those with an edge into the rows
        new = n * (1 - exp(-d * y) - exp(-d * rows / n) + exp(-d * (1 - (1 - y) * (1 - rows / n)))) if static else drawn
        sources = destinations + new * (1 - destinations / n)
        hops.append(ExpectedHop(rows, edges, drawn, candidates, destinations, sources, _block_edges(request, hops, edges)))
        before, destinations = destinations, hops[-1].sources
    return hops


def _block_edges(request: PlanRequest, before: list[ExpectedHop], edges: float) -> float:
    """Return the edges of a hop's block, which under the frontier rule `new` includes those of the hops before it."""
    return edges + sum(hop.edges for hop in before) if request.frontier == "new" else edges
