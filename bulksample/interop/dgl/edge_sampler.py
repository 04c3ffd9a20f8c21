"""Sample mini-batches that name the user's edges; `BulkLoader` iterates over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...adjacency import Adjacency
from ...backends.hops import Expansion, Hop
from ...errors import UsageError
from ...rng import Stream
from ...selection import Selection
from ...sparse import row_pointers
from ..edge_graph import edge_graph, expand_edges
from .samplers import BlockSampler


class EdgeHop(NamedTuple):
    """One layer of a mini-batch in local vertex numbers; row r holds the edges into vertex r."""

    num_destinations: int
    num_sources: int
    pointers: np.ndarray  # int64, shape (destinations + 1,)
    columns: np.ndarray  # int32, shape (E,)
    edges: np.ndarray  # int64, shape (E,): the user's edge ids
    weights: np.ndarray | None  # float32, shape (E,)


class EdgeMiniBatch(NamedTuple):
    """One mini-batch: its vertices, and its layers from the seeds outwards."""

    vertices: np.ndarray
    hops: list[EdgeHop]

    @property
    def seeds(self) -> np.ndarray:
        """The distinct seeds: int32, shape (b,)."""
        return self.vertices[: self.hops[0].num_destinations]

    @property
    def blocks(self) -> list[EdgeHop]:
        """The layers from the input to the output, as in a `MiniBatch`."""
        return self.hops[::-1]

    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.vertices.nbytes + sum(hop.pointers.nbytes + hop.columns.nbytes + hop.edges.nbytes for hop in self.hops)


class EdgeSampler:
    """A sampler for `BulkLoader` whose mini-batches name the user's edges."""

    def __init__(self, graph: Any, block_sampler: BlockSampler) -> None:
        if not getattr(graph, "is_homogeneous", False):
            raise UsageError(f"graph: got a {type(graph).__name__}; use a DGLGraph")
        if block_sampler.by_type is not None:
            raise UsageError("fanouts are dicts by edge type, but the graph has one type; use numbers")
        prob, sampler = block_sampler.prob, block_sampler.sampler
        if prob is not None and prob not in graph.edata:
            raise UsageError(f"the graph has no edge feature {prob!r}; it has {', '.join(graph.edata) or 'none'}")
        source, destination = (ends.cpu().numpy().astype(np.int64) for ends in graph.edges(order="eid"))
        weights = None if prob is None else graph.edata[prob].cpu().double().numpy()
        self.edges = edge_graph(source, destination, graph.num_nodes(), weights, prob or "")
        self.sampler = sampler
        self._by_edge = sampler.name == "sage" and self.edges.pointers is not None

    @property
    def identity(self) -> str:
        """See `Sampler.identity`."""
        return self.sampler.identity

    def check(self, adjacency: Adjacency) -> None:
        self.sampler.check(adjacency)

    def table_bytes(self, adjacency: Adjacency, k: int, like: EdgeMiniBatch) -> int:
        """See `Sampler.table_bytes`."""
        return self.sampler.table_bytes(adjacency, k, like)  # type: ignore[arg-type]  # has the attributes that are read

    def sample_bulk(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[EdgeMiniBatch]:
        """See `Sampler.sample_bulk`."""
        if self._by_edge:
            parts = expand_edges(self.edges, adjacency.backend, self.sampler, seeds, stream, epoch)  # type: ignore[arg-type]
        else:
            parts = self.sampler.expand(adjacency, seeds, stream, epoch)
        return [self._found(adjacency, part) for part in parts]

    def _found(self, adjacency: Adjacency, part: Expansion) -> EdgeMiniBatch:
        hops = [self._hop(adjacency, part.vertices, hop, *sizes) for hop, *sizes in zip(part.hops, part.held, part.held[1:], strict=False)]
        return EdgeMiniBatch(part.vertices, hops)

    def _hop(self, adjacency: Adjacency, vertices: np.ndarray, hop: Hop, destinations: int, sources: int) -> EdgeHop:
        """Name the edges of a hop; an entry of the adjacency that stands for parallel edges becomes all of them."""
        if self._by_edge:
            assert hop.weights is not None
            return EdgeHop(destinations, sources, hop.pointers, hop.columns, self.edges.user_edges(hop.weights), None)
        entries = hop.entries
        if entries is None:
            entries = adjacency.backend.locate(self.edges.matrix, vertices[:destinations], hop.pointers, vertices[hop.columns])
        if self.edges.pointers is None:
            return EdgeHop(destinations, sources, hop.pointers, hop.columns, self.edges.user_edges(entries), hop.weights)
        edges, counts, shares = self.edges.edges_of(entries)
        ends = row_pointers(counts)
        weights = None if hop.weights is None else np.repeat(hop.weights, counts) * shares
        return EdgeHop(destinations, sources, ends[hop.pointers], np.repeat(hop.columns, counts), self.edges.user_edges(edges), weights)
