"""Sample a graph of one relation by the plain samplers, and name the user's edges, of which several may be parallel.

    A[v, u] = 1, or the weight, of the edges u -> v;    entry i of A stands for the edges pointers[i] : pointers[i + 1] of the relation

torch_geometric and DGL allow parallel edges, which are entries of their own in a `Relation`. Plain samplers draw from A, which holds them
as one entry. GraphSAGE draws among the edges themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import Backend
from ..backends.hops import Expansion, Hop, hop_by_hop
from ..errors import DataError
from ..graph import Key, Relation
from ..graph.minibatch import Block, MiniBatch, TypeRows
from ..graph.selection import Selection
from ..pickled import Rebuilt
from ..rng import Stream
from ..samplers import AnySampler, LayerWise, NodeWise, Sampler
from ..sparse import CSR, MAX_VERTICES, row_pointers, runs


@dataclass(frozen=True, eq=False)
class EdgeGraph(Rebuilt):
    """The edges of a relation, and the adjacency A that holds parallel ones as one entry."""

    relation: Relation

    @cached_property
    def pointers(self) -> np.ndarray | None:
        """The first edge of each entry of A: int64, shape (nnz + 1,); None if no edge repeats."""
        a = self.relation.adjacency
        first = np.ones(a.nnz + 1, bool)
        first[1:-1] = a.indices[1:] != a.indices[:-1]
        first[a.indptr] = True
        return None if first.all() else np.flatnonzero(first)

    @cached_property
    def matrix(self) -> CSR:
        """A: ones if no edge repeats and edges have no weights; else int64, the sum of the weights, or the number, of parallel edges."""
        a, pointers = self.relation.adjacency, self.pointers
        if pointers is None:
            return a
        values = np.diff(pointers) if a.values is None else np.add.reduceat(a.values, pointers[:-1])
        return CSR(np.searchsorted(pointers, a.indptr), a.indices[pointers[:-1]], values, a.shape)

    @cached_property
    def incidence(self) -> CSR:
        """The incidence of destinations and edges: shape (n, m)."""
        a = self.relation.adjacency
        if a.nnz > MAX_VERTICES:
            raise DataError(f"{a.nnz} edges do not fit int32; use a graph without parallel edges, or with fewer than 2**31 edges")
        return CSR(a.indptr, np.arange(a.nnz, dtype=np.int32), a.values, (a.shape[0], a.nnz))

    def edges_of(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all edges of some entries of A, if edges repeat; those of weight 0 are none.

        They are entries of the relation (int64), the number of each entry's (int64, 0 where its weight is 0), and the share of each edge in
        the weight of its entry (float32).
        """
        assert self.pointers is not None
        weights = self.relation.adjacency.values
        counts = self.pointers[entries + 1] - self.pointers[entries]
        edges = runs(self.pointers[entries], counts)
        if weights is not None:
            kept = weights[edges] > 0
            edges, counts = edges[kept], np.diff(row_pointers(kept)[row_pointers(counts)])
        total = np.repeat(self.matrix.entries()[entries], counts)
        edge_weights = np.ones(len(edges), np.int64) if weights is None else weights[edges]
        return edges, counts, (edge_weights / np.maximum(total, 1)).astype(np.float32)


class EdgeSampler(AnySampler):
    """A plain sampler on a graph of one type and one relation; the entries of its mini-batches are the user's edges.

    The base draws from `EdgeGraph.matrix`, except that GraphSAGE draws among parallel edges.
    """

    def __init__(self, relation: Relation, base: Sampler) -> None:
        self.edges, self.base, self.key = EdgeGraph(relation), base, relation.key
        self.by_edge = base.name == "sage" and self.edges.pointers is not None

    @property
    def identity(self) -> str:
        return self.base.identity

    @property
    def settings(self) -> dict[str, Any]:
        return self.base.settings

    def most_drawn(self, relations: Sequence[Key]) -> tuple[int, ...]:
        return self.base.most_drawn(relations)

    def check(self, adjacency: Adjacency) -> None:
        self.base.check(adjacency)

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        return self.base.table_bytes(adjacency, k, replace(like, by_type=False))

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        if self.by_edge:
            parts = expand_edges(self.edges, adjacency.backend, self.base, seeds, stream, epoch)  # type: ignore[arg-type]
        else:
            parts = cast(NodeWise | LayerWise, self.base).expand(adjacency, seeds, stream, epoch)
        return [self._minibatch(adjacency, seeds, j, epoch, part) for j, part in enumerate(parts)]

    def _minibatch(self, adjacency: Adjacency, seeds: Selection, j: int, epoch: int, part: Expansion) -> MiniBatch:
        """Return mini-batch j of a bulk, with a block for each hop; of nested blocks only the one that holds all others."""
        nested, vertices = self.base.frontier == "new", seeds.part(j)
        drawn = [self._named(adjacency, part.vertices, hop) for hop in (part.hops[-1:] if nested else part.hops)]
        blocks: list[dict[Key, Block]] = []
        entries: list[dict[Key, Any]] = []
        for hop, rows, sources in zip(drawn[::-1], part.held[-2::-1], part.held[:0:-1], strict=False):
            edges = slice(hop.pointers[rows])
            weights = None if hop.weights is None else hop.weights[edges]
            blocks.append({self.key: Block(hop.pointers[: rows + 1], hop.columns[edges], weights, sources)})
            entries.append({self.key: None if hop.entries is None else hop.entries[edges]})
        rows_of_type = {self.key[0]: TypeRows(part.vertices, np.array(part.held), vertices, part.seed_rows, np.arange(len(vertices)))}
        return MiniBatch(int(seeds.minibatches[j]), epoch, rows_of_type, tuple(blocks), nested, known_entries=tuple(entries))

    def _named(self, adjacency: Adjacency, vertices: np.ndarray, hop: Hop) -> Hop:
        """Return the edges of a hop as entries of the relation; an entry of A becomes all its parallel edges, which share its weight."""
        entries = hop.entries
        if self.by_edge:
            return hop
        if entries is None:
            rows = vertices[: len(hop.pointers) - 1]
            entries = adjacency.backend.locate(self.edges.matrix, rows, hop.pointers, vertices[hop.columns])
        if self.edges.pointers is None:
            return hop._replace(entries=entries)
        edges, counts, shares = self.edges.edges_of(entries)
        weights = None if hop.weights is None else np.repeat(hop.weights, counts) * shares
        return Hop(row_pointers(counts)[hop.pointers], np.repeat(hop.columns, counts), weights, edges)


def expand_edges(graph: EdgeGraph, backend: Backend, sampler: NodeWise, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
    """Sample the hops of k mini-batches by GraphSAGE; a vertex draws among its edges, not among its distinct neighbors.

    P = Q B,  B the n x m incidence of destinations and edges;    each pick is an edge, whose source is the neighbor
    """

    def draw_hop(frontier: Selection, hop: int) -> Hop:
        picks = backend.sample_rows(graph.incidence, frontier, sampler.fanouts[hop], sampler.draw(stream, hop, epoch))
        return Hop(picks.pointers, graph.relation.adjacency.indices[picks.columns], None, picks.columns.astype(np.int64))

    return hop_by_hop(backend.relabel, seeds, draw_hop, len(sampler.fanouts), sampler.frontier == "new")
