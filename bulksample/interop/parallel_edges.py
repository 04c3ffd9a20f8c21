"""GraphSAGE on a graph with parallel edges: a vertex draws among its edges, so that each of several to one neighbour has its chance.

P = Q B,  B the n x m incidence of edges and their destinations;    the picks are edges, and name their sources
"""

from __future__ import annotations

from ..backends.base import Backend
from ..backends.hops import Expansion, Hop, hop_by_hop
from ..rng import Stream
from ..samplers import NodeWise
from ..selection import Selection
from .edge_graph import EdgeGraph


def expand_edges(graph: EdgeGraph, backend: Backend, sampler: NodeWise, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
    """The hops of k minibatches; where weights would stand, every hop has its edges: int64, positions in ``graph.edges``."""

    def draw_hop(frontier: Selection, hop: int) -> Hop:
        picks = backend.sample_rows(graph.incidence, frontier, sampler.fanouts[hop], sampler.draw(stream, hop, epoch))
        return Hop(picks.pointers, graph.sources[picks.columns], picks.columns.astype("int64"))

    return hop_by_hop(backend.relabel, seeds, draw_hop, len(sampler.fanouts), sampler.frontier == "new")
