"""How large a minibatch is expected to be, hop by hop; the formulas stand at the top of the package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, expm1, log1p

from .request import PlanRequest


@dataclass(frozen=True)
class Hop:
    """What one hop of one minibatch is expected to draw.

    Attributes
    ----------
    rows : R, vertices that draw
    edges : E, drawn (node-wise) or kept (layer-wise)
    drawn, candidates : S and C, layer-wise; 0 node-wise
    destinations, sources, block_edges : of its block, which under the frontier rule `new` holds those of the hops before
    """

    rows: float
    edges: float
    drawn: float
    candidates: float
    destinations: float
    sources: float
    block_edges: float


@dataclass(frozen=True)
class Sizes:
    """A full minibatch of b seeds.

    Attributes
    ----------
    hops : from the seeds on
    nested : whether the last block holds all others (the frontier rule `new`)
    weighted : whether edges carry weights (layer-wise)
    """

    batch_size: int
    hops: tuple[Hop, ...]
    nested: bool
    weighted: bool

    @property
    def inputs(self) -> float:
        """U, the vertices whose features are needed."""
        return self.hops[-1].sources

    @property
    def edges(self) -> float:
        """Each draw once."""
        return sum(hop.edges for hop in self.hops)

    @property
    def rows(self) -> float:
        """Each vertex that draws, once for each time it does."""
        return sum(hop.rows for hop in self.hops)

    @property
    def nbytes(self) -> float:
        """Memory of its arrays: `MiniBatch.nbytes`."""
        blocks = self.hops[-1:] if self.nested else self.hops
        entry = 8 if self.weighted else 4
        return 8 * self.batch_size + 4 * self.inputs + sum(8 * (hop.destinations + 1) + entry * hop.block_edges for hop in blocks)

    def scaled_to(self, edges: float, inputs: float) -> Sizes:
        """The same with measured edges and inputs; everything but the seeds is scaled alike."""
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
    """The minibatches of a request, on a graph whose edges were drawn at random."""
    seeds = min(request.batch_size, request.vertices)
    draw = _node_wise if request.sampler == "sage" else _layer_wise
    return Sizes(request.batch_size, tuple(draw(request, seeds)), request.frontier == "new", request.sampler != "sage")


def union(part: float, whole: float, parts: float) -> float:
    """Distinct members of so many independent parts of a whole."""
    return -whole * expm1(parts * log1p(-part / whole)) if part < whole else whole


def _node_wise(request: PlanRequest, seeds: int) -> list[Hop]:
    n, d = request.vertices, request.degree
    held: list[float] = [0.0, float(seeds)]  # before the first hop, and after each
    left: list[float] = [1.0]  # of the edges of the vertices found in each hop: the share that no hop has drawn yet
    hops: list[Hop] = []
    for fanout in request.fanouts:
        expanding = len(left) if request.frontier == "all" else 1  # of the groups of vertices, counted from the newest
        rows = held[-1] - held[-1 - expanding]
        share = 1.0 if fanout < 0 or fanout >= d else fanout / d
        left = [kept * (1 - share) if i >= len(left) - expanding else kept for i, kept in enumerate(left)]
        drawn = sum((b - a) * d * (1 - kept) for a, b, kept in zip(held, held[1:], left, strict=False))
        hops.append(_hop(request, hops, rows, rows * d * share, held[-1], n - (n - seeds) * exp(-drawn / n)))
        held.append(hops[-1].sources)
        left.append(1.0)
    return hops


def _layer_wise(request: PlanRequest, seeds: int) -> list[Hop]:
    n, d = request.vertices, request.degree
    static = request.sampler == "fastgcn"
    before, held, hops = 0.0, float(seeds), list[Hop]()
    for fanout in request.fanouts:
        rows = held if request.frontier == "all" else held - before
        mean = d if static else rows * d / n  # edges of a candidate into the rows that P adds up
        candidates = -n * expm1(-mean)
        drawn = candidates if fanout < 0 else min(float(fanout), candidates)
        y = 1.0 if drawn >= candidates else -log1p(-drawn / n) / mean
        edges = rows * d * (1 - (1 - y) * (1 - drawn / n))
        found = _with_an_edge(n, d, rows / n, y) if static else drawn
        hops.append(_hop(request, hops, rows, edges, held, held + found * (1 - held / n), drawn, candidates))
        before, held = held, hops[-1].sources
    return hops


def _with_an_edge(n: int, d: float, share: float, y: float) -> float:
    """Of the vertices that a static law draws, those with an edge into a share of all rows."""
    return n * (1 - exp(-d * y) - exp(-d * share) + exp(-d * (1 - (1 - y) * (1 - share))))


def _hop(
    request: PlanRequest, before: list[Hop], rows: float, edges: float, held: float, sources: float, drawn: float = 0, candidates: float = 0
) -> Hop:
    nested = edges + sum(hop.edges for hop in before) if request.frontier == "new" else edges
    return Hop(rows, edges, drawn, candidates, held, sources, nested)
