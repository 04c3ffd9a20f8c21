"""A heterogeneous graph as samplers see it: one matrix per relation, ready to draw from, and their union.

The union is the block matrix of all relations over the numbering of all vertices; parallel edges, of one relation or of several, are one
entry, the sum of their weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..adjacency import Adjacency, Entries, KeptEdges, LayerLaw, LocalAdjacency
from ..backends.base import Backend, Picks
from ..backends.hops import Expansion
from ..backends.layer_draws import SharedDraws
from ..backends.relational import HeteroExpansion, RelationLaw, Trees
from ..errors import UsageError
from ..graph import Graph
from ..pickled import Uncached
from ..rng import Draw
from ..selection import Selection
from ..sparse import CSR, fixed_point, frozen, spaced
from .draw import RelationMatrix
from .expand import expand_relations

By = Literal["vertices", "edges"]


class RelationAdjacency(Uncached, Adjacency):
    """The relations of a graph in this process.

    Parameters
    ----------
    graph : Graph
    backend : Backend

    Raises
    ------
    DataError
        If the graph is malformed; see `Graph.check_structure`.

    Attributes
    ----------
    n : int
        Number of vertices of all types.
    """

    entries_read = False  # of a mini-batch, after it was drawn: from now on draws tell them, unless their sampler makes none

    def __init__(self, graph: Graph, backend: Backend) -> None:
        graph.check_structure()
        self.graph, self.backend, self.n = graph, backend, graph.n
        self._prepared: dict[By | None, list[RelationMatrix]] = {}

    def _kept(self) -> dict[str, Any]:
        return super()._kept() | {"_prepared": {}}

    def check_whole(self) -> None:
        """Raise `UsageError` if this process does not hold every row of the relations."""
        return

    @cached_property
    def union(self) -> LocalAdjacency:
        """The block matrix of all relations, on which homogeneous samplers work."""
        return LocalAdjacency(union_of(self.graph), self.backend)

    @cached_property
    def weighted(self) -> bool:  # type: ignore[override]
        return any(relation.adjacency.values is not None for relation in self.graph.relations)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        return self.union.left_multiply(q, entries)

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        return self.union.sample_rows(q, fanout, draw)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        return self.union.restrict(rows, columns, shares)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        return self.union.expand_layers(seeds, drawn, fanouts, draws, only_new, debias, renormalise)

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the graph; see `fingerprint_of`."""
        return fingerprint_of(self.graph)

    @cached_property
    def row_sums(self) -> list[np.ndarray]:
        """The sum of the weights of each row of each relation, float64, and of each row of the union, in the numbering of all types."""
        of_relations = [one.adjacency.row_sums * one.weight_unit for one in self.graph.relations]
        whole = np.zeros(self.n)
        for relation, sums in zip(self.graph.relations, of_relations, strict=True):
            first = self.graph.offsets[self.graph.place(relation.destination)]
            whole[first : first + len(sums)] += sums
        return [*of_relations, whole]

    @cached_property
    def shares_of_rows(self) -> list[tuple[CSR, np.ndarray]]:
        """For each relation the number of edges at each place, and what each edge of a row counts for: 1 / degree.

        The shares are int64 of shape (destinations,), in fixed point. All relations from one source type have one unit, so fine that the
        sum over all their edges into a vertex stays within 2**62.
        """
        graph = self.graph
        matrices = [_counts(relation.adjacency, own.repeats) for relation, own in zip(graph.relations, self.relations(None), strict=True)]
        most = {kind.name: 0 for kind in graph.types}
        for relation, matrix in zip(graph.relations, matrices, strict=True):
            most[relation.source] += matrix.value_bound * matrix.longest_column
        out = []
        for relation, matrix in zip(graph.relations, matrices, strict=True):
            unit = min(60, 62 - max(most[relation.source] - 1, 0).bit_length())
            share = np.ldexp(1.0 / np.maximum(relation.adjacency.degrees, 1), unit)
            out.append((matrix, frozen(np.maximum(np.rint(share), 1), np.int64)))
        return out

    def relations(self, by: By | None) -> list[RelationMatrix]:
        """Return the relations with the times of vertices, of edges, or none."""
        if by not in self._prepared:
            graph, matrices = self.graph, []
            for relation in graph.relations:
                times = relation.times if by == "edges" else None
                stamps = graph.type(relation.source).times
                if by == "vertices" and stamps is not None:
                    times = stamps[relation.adjacency.indices]
                ends = graph.place(relation.source), graph.place(relation.destination)
                matrices.append(RelationMatrix(*ends, relation.adjacency, times))
            self._prepared[by] = matrices
        return self._prepared[by]

    @property
    def held_bytes(self) -> int:
        """Bytes of the adjacencies that this process holds, in memory or mapped from a store."""
        return sum(relation.adjacency.nbytes() for relation in self.graph.relations)

    def kind_of_times(self, by: Literal["auto", "vertices", "edges"]) -> By:
        """Return which times count; see `kind_of_times`."""
        return kind_of_times(self.graph, by)

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops: by one call of the back end if it has it, else by `expand_relations`.

        For `entries` see `RelationSampler`.
        """
        relations, counts = self.relations(by), [kind.count for kind in self.graph.types]
        rows, told = [relation.rows for relation in relations], self.entries_read if entries is None else entries
        fused = self.backend.expand_relations(counts, rows, trees, laws, only_new, told)
        return expand_relations(self.backend, relations, trees, laws, only_new) if fused is None else fused

    def split(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the type of vertices in the numbering of all types, and their ids within it."""
        kind = np.searchsorted(self.graph.offsets, vertices, side="right") - 1
        return kind, (vertices - self.graph.offsets[kind]).astype(np.int32)


def kind_of_times(graph: Graph, by: Literal["auto", "vertices", "edges"]) -> By:
    """Return which times count; raises `UsageError` if the graph has none of them or, for ``auto``, both."""
    vertices = [kind.name for kind in graph.types if kind.times is not None]
    edges = [str(relation) for relation in graph.relations if relation.times is not None]
    if by == "auto":
        if vertices and edges:
            found = f"type(s) {', '.join(vertices)} and {', '.join(edges)} have times"
            raise UsageError(f"both vertices and edges have times: {found}; use 'vertices' or 'edges'")
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


def _counts(matrix: CSR, repeats: bool) -> CSR:
    """Return the number of edges at each place, canonical."""
    plain = matrix.with_values(None)
    return CSR.from_edges(plain.row_of_entry(), plain.indices, plain.shape, plain.entries()) if repeats else plain


def union_of(graph: Graph) -> CSR:
    """Return the block matrix of all relations: shape (n, n); ones if no entry stands for several edges and no relation has weights."""
    rows = [graph.offsets[graph.place(r.destination)] + r.adjacency.row_of_entry() for r in graph.relations]
    columns = [graph.offsets[graph.place(r.source)] + r.adjacency.indices for r in graph.relations]
    place = np.concatenate([np.empty(0, np.int64), *rows]), np.concatenate([np.empty(0, np.int64), *columns])
    weights = [relation.adjacency.entries() * relation.weight_unit for relation in graph.relations]
    real = np.concatenate([np.empty(0), *weights])
    most = max((int(np.bincount(ends, minlength=1).max()) for ends in place), default=0)
    matrix = CSR.from_edges(*place, (graph.n, graph.n), fixed_point(real, most)[0])
    plain = matrix.nnz == len(real) and all(relation.adjacency.values is None for relation in graph.relations)
    return matrix.with_values(None) if plain else matrix
