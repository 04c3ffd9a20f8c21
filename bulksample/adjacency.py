"""The graph as samplers see it: the contract `Adjacency`.

A sampler multiplies, draws and restricts. It never asks whether A lies in this process or in block rows over many ranks, nor whether it is
the matrix of one relation or the union of several, the block matrix over the numbering of all vertices.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from .backends.base import Backend, Picks, check_fanout
from .backends.hops import Expansion, Hop, hop_by_hop
from .backends.layer_draws import LayerPicks, SharedDraws
from .backends.relational import HeteroExpansion, RelationLaw, Trees
from .errors import UsageError
from .graph import EDGE, NODE, Graph, Key
from .graph.selection import Selection
from .rng import Draw
from .sparse import CSR, row_pointers, spaced

By = Literal["vertices", "edges"]
Entries = Literal["ones", "weights", "squares"]


class LayerLaw(NamedTuple):
    """The probabilities of a layer-wise draw: arguments of `Adjacency.sample_layer`."""

    entries: Entries
    power: Literal[1, 2]


class KeptEdges(NamedTuple):
    """Q_R A Q_C, kept per mini-batch: the edges from selected rows to selected columns."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): positions in the mini-batch's part of Q_C, ascending by global vertex
    shares: np.ndarray | None  # float64, shape (E,): w_uv / sum_j w_uj, which is 1 / degree where A holds ones


class Adjacency(ABC):
    """The n x n matrix A of a graph; row v lists the in-neighbors that v aggregates from.

    A subclass implements `left_multiply`, `sample_rows` and `restrict`. By default A is the matrix of one relation, a layer is drawn from
    the product Q A, several hops are taken hop by hop, and no memory is predicted; a subclass overrides what it can do better.

    Attributes
    ----------
    n : int
        Number of vertices, of all types.
    weighted : bool
        True if edges have weights.
    backend : Backend
        Does this process's share of the work.
    collective : bool
        True if every method is a collective call, which all ranks that share A make in the same order.
    by_type : bool
        True if mini-batches are by type and relation; those of a plain graph are not, unless a user asks for it.
    graph : Graph
        Its types, relations and times; a matrix in block rows has none.
    type_names : tuple of str
    relation_keys : tuple of (source, name, destination)
    ends : tuple of (int, int)
        The places of the source type and of the destination type of each relation.
    entries_read : bool
        True once `MiniBatch.entries` was read: from now on draws tell them, unless their sampler makes none.
    """

    n: int
    weighted: bool
    backend: Backend
    collective: bool = False
    by_type: bool = False
    graph: Graph
    type_names: tuple[str, ...] = (NODE,)
    relation_keys: tuple[Key, ...] = ((NODE, EDGE, NODE),)
    ends: tuple[tuple[int, int], ...] = ((0, 0),)
    entries_read = False

    def split(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the type of vertices in the numbering of all types, and their ids within it."""
        offsets = self.graph.offsets
        kind = np.searchsorted(offsets, vertices, side="right") - 1
        return kind, (vertices - offsets[kind]).astype(np.int32)

    def check_whole(self) -> None:  # noqa: B027  # most adjacencies take layer-wise samplers
        """Raise `UsageError` if layer-wise samplers do not work here: on relations of which this process lacks rows."""

    @property
    def first_with_parallel_edges(self) -> str | None:
        """The first relation that has parallel edges; None if none has."""
        return None

    def take_graph(self, graph: Graph, by_type: bool = True) -> None:
        """Take the types, the relations and the number of vertices of a graph."""
        self.graph, self.n, self.by_type = graph, graph.n, by_type
        self.type_names = tuple(kind.name for kind in graph.types)
        self.relation_keys = tuple(relation.key for relation in graph.relations)
        self.ends = tuple((graph.place(relation.source), graph.place(relation.destination)) for relation in graph.relations)
        self.weighted = any(relation.adjacency.values is not None for relation in graph.relations)

    @property
    def whole_matrix(self) -> CSR | None:
        """Return A if all of it lies in this process, None otherwise."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """Return a hash that tells graphs apart, see `CSR.fingerprint`; None if this process does not hold all of A."""
        return None if self.whole_matrix is None else self.whole_matrix.fingerprint

    @property
    def gathered_bytes(self) -> int:
        """Bytes of what draws have gathered from other ranks, and keep, beside the rows that this rank holds."""
        return 0

    def at(self, place: str) -> None:
        """Name the mini-batches that are sampled next; ranks that sample together compare it."""
        return

    @abstractmethod
    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        """Compute Q A with one row of Q per mini-batch: int64, shape (k, n).

        `entries` names what stands at (u, v): 1; the fixed-point weight; or the square of the row-normalised weight,
        (w_uv / sum_j w_uj)**2, in fixed point.
        """

    @abstractmethod
    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        """Draw SAMPLE(NORM(Q A), s) with one row of Q per (mini-batch, vertex), in one step; see `Backend.sample_rows`."""

    @abstractmethod
    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        """Compute Q_R A Q_C per mini-batch, A row-normalised: an edge of weight 0 is none, as it has no share.

        If `shares` is false, weights are not read: all edges are kept, without their shares.
        """

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        """Draw SAMPLE(NORM(Q A), s) with one row of Q per mini-batch; NORM raises sums to a power. See `Backend.smallest_keys`."""
        p = self.left_multiply(q, entries)
        return self.backend.smallest_keys(p.indptr, p.indices, race_weights(p.entries(), power), check_fanout(fanout), q.minibatches, draw)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """Take k mini-batches through all hops of node-wise sampling: `sample_rows` hop by hop, numbered; see `Backend.expand`."""

        def draw_hop(frontier: Selection, hop: int) -> Hop:
            return Hop(*self.sample_rows(frontier, fanouts[hop], draws[hop]), None)

        return hop_by_hop(self.backend.relabel, seeds, draw_hop, len(fanouts), only_new)

    def expand_unnumbered(
        self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool
    ) -> list[Expansion] | None:  # fmt: skip
        """Take k mini-batches through all hops as `expand` does, but leave the last one in vertices; None where every hop is numbered."""
        return None

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take the trees of k mini-batches through all hops on all relations; here by `expand`, on one, without times.

        Parameters
        ----------
        trees : Trees
            Of their own for each seed, or one for each mini-batch.
        laws : [hop][relation] of RelationLaw
        by : {"vertices", "edges"}, optional
            The times that count.
        only_new : bool
            Expand only the vertices that the previous hop found; otherwise all vertices found so far.
        entries : bool, optional
            See `samplers.NodeWise`.
        """
        if by is not None or trees.disjoint:
            raise UsageError("times and trees of their own are for a graph in this process, or for relations in block rows")
        pointers = row_pointers(np.bincount(trees.tree_of_seed[0], minlength=len(trees.names)))
        seeds, hops = Selection(trees.names, pointers, trees.seeds[0], self.n), [law for (law,) in laws]
        return [HeteroExpansion.of_one(one) for one in self.expand(seeds, [h.fanout for h in hops], [h.draw for h in hops], only_new)]

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        """Take k mini-batches through all hops of layer-wise sampling: `sample_layer` and `restrict` hop by hop, numbered and weighted.

        `drawn` is the law by which hops draw, or the picks of every hop where these need no frontier. For `debias` and
        `renormalise` see `samplers.LayerWise`.
        """

        def draw_hop(frontier: Selection, hop: int) -> Hop:
            if not isinstance(drawn, LayerLaw):
                return self._edges_to(drawn[hop], frontier, debias, renormalise)
            picks = self.sample_layer(frontier, drawn.entries, drawn.power, fanouts[hop], draws[hop])
            return self._edges_to(picks, frontier, debias, renormalise)

        return hop_by_hop(self.backend.relabel, seeds, draw_hop, len(fanouts), only_new)

    def _edges_to(self, drawn: LayerPicks, frontier: Selection, debias: bool, renormalise: bool) -> Hop:
        """Extract the edges from a frontier to the vertices that its mini-batches drew, and weigh them."""
        columns = Selection(frontier.minibatches, drawn.pointers, drawn.columns, frontier.n)
        kept = self.restrict(frontier, columns)  # Q_R A Q_C
        assert kept.shares is not None
        edges, weights = np.diff(kept.pointers), kept.shares
        source = np.repeat(columns.pointers[frontier.minibatch_of_row()], edges) + kept.columns
        if debias:
            weights = weights / drawn.inclusion[source]
        if renormalise:
            row = np.repeat(np.arange(len(edges)), edges)
            total = np.bincount(row, weights, minlength=len(edges))[row]  # sums run left to right, alike everywhere
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return Hop(kept.pointers, columns.vertices[source], weights.astype(np.float32))

    def bulk_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int | None:
        """Predict the peak bytes of sampling k mini-batches node-wise, `seeds` together, while k others are in use; None if unknown."""
        return None

    def layer_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool) -> int | None:
        """Predict the peak bytes of sampling k mini-batches layer-wise, their result included; None if unknown.

        `from_frontier` is false where the vertices that a hop draws do not depend on its frontier.
        """
        return None

    def expand_tables(self, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        """Predict the bytes that `expand` takes beside its result; 0 if unknown. See `Backend.expand_tables`."""
        return 0

    def layer_tables(self, k: int, b: int, rows: np.ndarray) -> int:
        """Predict the bytes of `expand_layers` beside its result, drawn among the neighbors of `rows` by each mini-batch; 0 if unknown."""
        return 0


def race_weights(sums: np.ndarray, power: Literal[1, 2]) -> np.ndarray:
    """Compute NORM of layer-wise draws: the sums (power 1) or their squares (power 2) as float64, each one IEEE operation."""
    weights = sums.astype(np.float64)
    return np.square(weights) if power == 2 else weights


def kind_of_times(graph: Graph, by: Literal["auto", "vertices", "edges"]) -> By:
    """Return which times count; raises `UsageError` if the graph has none of them or, for ``auto``, both."""
    vertices = [kind.name for kind in graph.types if kind.times is not None]
    edges = [str(relation) for relation in graph.relations if relation.times is not None]
    if by == "auto":
        if vertices and edges:
            both = f"type(s) {', '.join(vertices)} and {', '.join(edges)} have times"
            raise UsageError(f"both vertices and edges have times: {both}; use 'vertices' or 'edges'")
        by = "vertices" if vertices else "edges"
    if not (vertices if by == "vertices" else edges):
        raise UsageError(f"time was asked for, but graph {graph.name!r} has no times of {by}")
    return by


def fingerprint_of(graph: Graph) -> str:
    """Return a SHA-256 of the schema, of the units of weights, and of parts of each adjacency and of all times; see `CSR.fingerprint`."""
    made = hashlib.sha256()
    for kind in graph.types:
        made.update(f"{kind.name} {kind.count}".encode())
    for relation in graph.relations:
        unit = "" if relation.adjacency.values is None else f" {relation.weight_unit!r}"
        made.update(f"{relation.key}{unit} {relation.adjacency.fingerprint}".encode())
    timed = [*((kind.name, kind.times) for kind in graph.types), *((str(r.key), r.times) for r in graph.relations)]
    for name, times in timed:
        if times is not None:
            made.update(f"times of {name}".encode() + spaced(times))
    return made.hexdigest()
