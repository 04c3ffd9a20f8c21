"""GraphSAGE on a graph with parallel edges: a vertex draws among its edges, not among its distinct neighbors.

P = Q B,  B the n x m incidence of destinations and edges;    each pick is an edge, whose source is the neighbor
"""

from __future__ import annotations

from ..backends.base import Backend
from ..backends.hops import Expansion, Hop, hop_by_hop
from ..rng import Stream
from ..samplers import NodeWise
from ..selection import Selection
from .edge_graph import EdgeGraph


def expand_edges(graph: EdgeGraph, backend: Backend, sampler: NodeWise, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
    """Sample the hops of k mini-batches; `Hop.weights` holds the drawn edges: int64, positions in ``graph.edges``."""

    def draw_hop(frontier: Selection, hop: int) -> Hop:
        picks = backend.sample_rows(graph.incidence, frontier, sampler.fanouts[hop], sampler.draw(stream, hop, epoch))
        return Hop(picks.pointers, graph.sources[picks.columns], picks.columns.astype("int64"))

    return hop_by_hop(backend.relabel, seeds, draw_hop, len(sampler.fanouts), sampler.frontier == "new")
