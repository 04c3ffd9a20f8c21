"""Compare the placements of topology and features: for each, the grid with the shortest epoch that fits, of those that `train` offers."""

from __future__ import annotations

from collections.abc import Iterator

from ..distributed.matrix.grid import Order
from ..distributed.matrix.placement import FEATURES, TOPOLOGIES
from .request import PlanRequest, divisors
from .traffic import CandidateGrid


def placements(request: PlanRequest, p: int) -> Iterator[list[CandidateGrid]]:
    """Yield the grids of each placement of topology and features on p ranks, for every c; the options of the request leave others out."""
    for topology in [request.topology] if request.topology else TOPOLOGIES:
        for features in [request.features] if request.features else FEATURES:
            grids = list(_grids(request, p, topology, features))
            if grids:
                yield grids


def _grids(request: PlanRequest, p: int, topology: str, features: str) -> Iterator[CandidateGrid]:
    """Yield the grids of one placement; c = p is that of a replicated one, unless it is the only c."""
    order = _order(request, p)
    values = [c for c in request.replication or divisors(p) if c < p or p == 1]
    other = request.feature_replication if features == "partitioned" and p % (request.feature_replication or 1) == 0 else None
    if topology == "partitioned":
        for c in values:
            yield CandidateGrid(p, c, "partitioned", features, other or 0, order)
    elif features == "partitioned":
        for c in [other] if other else values:
            yield CandidateGrid(p, c, "published", features, 0, order)
    else:
        yield CandidateGrid(p, p, "replicated", features, 0, order)


def _order(request: PlanRequest, p: int) -> Order:
    """Return the order that `train` takes: columns where there are several machines of equally many ranks."""
    per_node = request.connection().per_node
    if request.grid_order != "auto":
        return "rows" if request.grid_order == "rows" else "columns"
    return "columns" if p > per_node and p % per_node == 0 else "rows"
