"""A graph that maps every entry of its adjacency A back to the user's edges.

    A[v, u] = 1, or the weight, of the edges u -> v;    entry i of A stands for edges[pointers[i] : pointers[i + 1]]

torch_geometric and DGL allow parallel edges. A holds such edges as one entry, so the edges themselves are kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ..backends.base import Backend
from ..backends.hops import Expansion, Hop, hop_by_hop
from ..errors import DataError, UsageError
from ..pickled import Rebuilt
from ..rng import Stream
from ..samplers import NodeWise
from ..selection import Selection
from ..sparse import CSR, MAX_VERTICES, fixed_point, row_pointers, runs


@dataclass(frozen=True, eq=False)
class EdgeGraph(Rebuilt):
    """An adjacency, with the positions of its edges in the user's edge list.

    Parameters
    ----------
    matrix : CSR, shape (n, n), canonical
        Ones if no edge repeats and edges have no weights; else int64: the sum of the weights, or the number, of parallel edges.
    edges : int64, shape (m,)
        The position of each edge in the user's `edge_index`, sorted by (destination, source, position).
    pointers : int64, shape (nnz + 1,), optional
        Position of the first edge of each entry; None if no edge repeats.
    weights : int64, shape (m,), optional
        Weight of each edge, in the order of `edges`.
    """

    matrix: CSR
    edges: np.ndarray
    pointers: np.ndarray | None
    weights: np.ndarray | None

    @cached_property
    def incidence(self) -> CSR:
        """The incidence of destinations and edges: shape (n, m); column e stands for ``edges[e]``."""
        if len(self.edges) > MAX_VERTICES:
            raise DataError(f"{len(self.edges)} edges do not fit int32; use a graph without parallel edges, or with fewer than 2**31 edges")
        starts = self._starts[self.matrix.indptr]
        return CSR(starts, np.arange(len(self.edges), dtype=np.int32), self.weights, (self.matrix.shape[0], len(self.edges)))

    @cached_property
    def sources(self) -> np.ndarray:
        """The source of each edge, in the order of `edges`: int32, shape (m,)."""
        return np.repeat(self.matrix.indices, np.diff(self._starts))

    def user_edges(self, edges: np.ndarray) -> np.ndarray:
        """Convert positions in `edges` to positions in the user's `edge_index`: int64."""
        return edges if self._in_order else self.edges[edges]

    def edges_of(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all edges of some entries of A, if edges repeat; those of weight 0 are none.

        Returns
        -------
        edges : int64
            Positions in `edges`.
        counts : int64, shape (len(entries),)
            Number of edges of each entry, 0 where its weight is 0.
        shares : float32
            The share of each edge in the weight of its entry.
        """
        assert self.pointers is not None
        counts = self.pointers[entries + 1] - self.pointers[entries]
        edges = runs(self.pointers[entries], counts)
        if self.weights is not None:
            kept = self.weights[edges] > 0
            edges, counts = edges[kept], np.diff(row_pointers(kept)[row_pointers(counts)])
        total = np.repeat(self.matrix.entries()[entries], counts)
        own = np.ones(len(edges), np.int64) if self.weights is None else self.weights[edges]
        return edges, counts, (own / np.maximum(total, 1)).astype(np.float32)

    @cached_property
    def _in_order(self) -> bool:
        return bool((np.diff(self.edges) == 1).all()) and (not len(self.edges) or self.edges[0] == 0)

    @property
    def _starts(self) -> np.ndarray:
        return np.arange(self.matrix.nnz + 1) if self.pointers is None else self.pointers


def edge_graph(sources: np.ndarray, destinations: np.ndarray, n: int, weights: np.ndarray | None = None, name: str = "") -> EdgeGraph:
    """Build the graph of edges in any order.

    Parameters
    ----------
    sources, destinations : int64, shape (m,)
    n : int
    weights : float64, shape (m,) or (m, 1), optional
    name : str
        The user's name of the weights, for messages.

    Raises
    ------
    DataError
        If an edge names no vertex, or a weight is negative or not finite.
    UsageError
        If the number of weights is not the number of edges.

    Notes
    -----
    Sorts m keys, unless they are sorted already.
    """
    if n > MAX_VERTICES:
        raise DataError(f"there are {n} vertices, by num_nodes or the largest id of the edges; number them from 0, fewer than 2**31")
    for end, vertices in (("source", sources), ("destination", destinations)):
        bad = np.flatnonzero((vertices < 0) | (vertices >= n))
        if len(bad):
            raise DataError(f"edge {bad[0]} names {end} {vertices[bad[0]]}; vertices run from 0 to {n - 1}")
    keys = destinations * n + sources
    if (keys[1:] >= keys[:-1]).all():
        edges = np.arange(len(keys))
    else:
        ordered, order = torch.sort(torch.from_numpy(keys), stable=True)
        keys, edges = ordered.numpy(), order.numpy()
    integers = None if weights is None else _fixed(weights, name, sources, destinations)[edges]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    indptr = np.searchsorted(keys[first], np.arange(n + 1) * n) if n else np.zeros(1, np.int64)
    values, pointers = integers, None
    if len(first) < len(keys):
        pointers = np.append(first, len(keys))
        values = np.diff(pointers) if integers is None else np.add.reduceat(integers, first)
    return EdgeGraph(CSR(indptr.astype(np.int64), (keys[first] % max(n, 1)).astype(np.int32), values, (n, n)), edges, pointers, integers)


def expand_edges(graph: EdgeGraph, backend: Backend, sampler: NodeWise, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
    """Sample the hops of k mini-batches by GraphSAGE; a vertex draws among its edges, not among its distinct neighbors.

    P = Q B,  B the n x m incidence of destinations and edges;    each pick is an edge, whose source is the neighbor

    `Hop.weights` holds the drawn edges: int64, positions in ``graph.edges``.
    """

    def draw_hop(frontier: Selection, hop: int) -> Hop:
        picks = backend.sample_rows(graph.incidence, frontier, sampler.fanouts[hop], sampler.draw(stream, hop, epoch))
        return Hop(picks.pointers, graph.sources[picks.columns], picks.columns.astype("int64"))

    return hop_by_hop(backend.relabel, seeds, draw_hop, len(sampler.fanouts), sampler.frontier == "new")


def _fixed(weights: np.ndarray, name: str, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
    """Return fixed-point weights of the edges, in the user's order: int64, shape (m,)."""
    if weights.shape not in ((len(sources),), (len(sources), 1)):
        raise UsageError(f"weight {name!r} must have one number for each of the {len(sources)} edges; its shape is {weights.shape}")
    most = max(int(np.bincount(ends, minlength=1).max(initial=0)) for ends in (sources, destinations))
    return fixed_point(weights.reshape(-1), most)[0]
