"""A graph, or a matrix, that lies in this process, as samplers see it: `LocalAdjacency`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .adjacency import Adjacency, By, Entries, KeptEdges, LayerLaw, fingerprint_of
from .backends.base import Backend, Picks, check_fanout
from .backends.hops import Expansion
from .backends.layer_draws import LayerRace, LayerWeights, SharedDraws
from .backends.relation_hops import expand_relations
from .backends.relational import HeteroExpansion, RelationLaw, RelationMatrix, Trees
from .errors import DataError
from .graph import Graph
from .graph.selection import Selection
from .graph.vertex_table import check_adjacency_once
from .pickled import Uncached
from .rng import Draw
from .sparse import CSR, fixed_point, frozen


class LocalAdjacency(Uncached, Adjacency):
    """The graph of this process.

    Parameters
    ----------
    of : Graph; or CSR, shape (n, n), canonical, int64 fixed-point weights or ones
        A graph, or the matrix of a plain one.
    backend : Backend
    longest_column : int, optional
        Entries of the longest column of the whole matrix, if this matrix is a block of its rows.
    entries : bool
        Return the position of each edge in the matrix with `expand`, if the back end knows it; `expand_trees` is asked by itself.
    checked : bool
        The matrix comes from one that has been checked: leave the check out.
    by_type : bool, optional
        Make mini-batches of a graph by type and relation; by default those of every graph that is not plain.

    Raises
    ------
    DataError
        If the graph or the matrix is malformed; see `Graph.check_structure`. A matrix is read once, however many adjacencies are made of
        it.
    """

    def __init__(
        self, of: Graph | CSR, backend: Backend, longest_column: int | None = None, entries: bool = False, checked: bool = False,
        by_type: bool | None = None,
    ) -> None:  # fmt: skip
        self.backend, self._longest_column, self._entries = backend, longest_column, entries
        self._prepared: dict[By | None, list[RelationMatrix]] = {}
        if isinstance(of, CSR):
            self._given: CSR | None = of
            if not checked:
                check_adjacency_once(of)
            self.n, self.weighted = of.shape[0], of.values is not None
            if of.shape[0] == of.shape[1]:
                self.graph = Graph(of)
            return
        of.check_structure()
        self._given = of.adjacency if of.plain else None
        self.take_graph(of, not of.plain if by_type is None else by_type)

    def _kept(self) -> dict[str, Any]:
        return super()._kept() | {"_prepared": {}}

    @cached_property
    def matrix(self) -> CSR:
        """The matrix of the only relation, or the union of all: shape (n, n)."""
        return union_of(self.graph) if self._given is None else self._given

    @property
    def whole_matrix(self) -> CSR:
        return self.matrix

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        if entries == "ones":
            return self.backend.spgemm(q.per_minibatch(), self._pattern)
        if entries == "weights":
            return self.backend.spgemm(q.per_minibatch(), self.matrix)
        if self.matrix.values is not None:
            return self.backend.spgemm(q.per_minibatch(), self.squares)
        # every entry of row u is 1 / d_u**2, so the square is a scaling of Q: (Q D^-2) A. numpy dies of an index of int32 for whose
        # conversion there is no memory; `take` raises
        return self.backend.spgemm(q.per_minibatch(self._inverse_squares.take(q.vertices)), self._pattern)

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        return self.backend.sample_rows(self.matrix, q, check_fanout(fanout), draw)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        rows = self._check_square(self._rows)
        return self.backend.expand(rows, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new, self._entries)

    def expand_unnumbered(
        self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool
    ) -> list[Expansion] | None:  # fmt: skip
        if self.by_type or self._entries:
            return None
        rows = self._check_square(self._rows)
        return self.backend.expand(rows, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new, numbered=False)

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops: by one call of the back end if it has it, else by `expand_relations`."""
        with_entries = self.entries_read if entries is None else entries
        if self._fuses and by is None and not trees.disjoint and not with_entries:
            return super().expand_trees(trees, laws, by, only_new)
        relations, counts = self.relations(by), [kind.count for kind in self.graph.types]
        fused = self.backend.expand_relations(counts, relations, trees, laws, only_new, with_entries)
        return expand_relations(self.backend, relations, trees, laws, only_new) if fused is None else fused

    @property
    def _fuses(self) -> bool:
        """True if `expand` draws what `expand_trees` defines: of one relation, within one type, whose rows hold no column twice."""
        return len(self.type_names) == len(self.relation_keys) == 1 and (not self.by_type or not self.relations(None)[0].repeats)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        self._check_square(self.matrix)
        how: LayerRace | SharedDraws | None = None
        if not isinstance(drawn, LayerLaw):
            how = drawn
        else:
            entries, factors = self._summed(drawn.entries)  # with the pattern of the matrix from which edges are kept
            if entries.value_bound * self.matrix.longest_column < 2**63:  # else hop by hop: there each product is checked by itself
                how = LayerRace(entries, factors, drawn.power, [check_fanout(fanout) for fanout in fanouts], draws)
        weights = LayerWeights(self.matrix.row_sums, debias, renormalise)
        expansions = None if how is None else self._expanded_layers(seeds, how, weights, only_new)
        return super().expand_layers(seeds, drawn, fanouts, draws, only_new, debias, renormalise) if expansions is None else expansions

    def _expanded_layers(
        self, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool
    ) -> list[Expansion] | None:
        """Call the back end once for all hops; None if it has no such call."""
        return self.backend.expand_layers(self.matrix.positive, seeds, drawn, weights, only_new)

    @property
    def _rows(self) -> CSR:
        """The matrix from which one relation draws: its own, where the union would be a copy."""
        return self.graph.relations[0].adjacency if self.by_type and len(self.relation_keys) == 1 else self.matrix

    def _check_square(self, matrix: CSR) -> CSR:
        """Return a matrix; raise `DataError` if columns are no rows, so that what a hop finds could not be expanded in the next one."""
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"the adjacency must be square; its shape is {matrix.shape}")
        return matrix

    def expand_tables(self, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        return self.backend.expand_tables(self.n, k, b, fanouts, vertices)

    def layer_tables(self, k: int, b: int, rows: np.ndarray) -> int:
        entries = int(self.matrix.degrees[rows].sum())
        candidates = round(-self.n * math.expm1(-entries / self.n)) if len(rows) else 0  # expected distinct ones, if columns were random
        return self.backend.layer_tables(self.matrix, k, b, candidates)

    def _summed(self, entries: Entries) -> tuple[CSR, np.ndarray | None]:
        """Return the matrix whose rows `left_multiply` adds, without zeros, and the factor of each row; None stands for ones."""
        if entries == "ones":
            return self.matrix.positive.with_values(None), None
        if entries == "weights":
            return self.matrix.positive, None
        return (self.squares.positive, None) if self.matrix.values is not None else (self._pattern, self._inverse_squares)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        matrix = self.matrix.positive if shares else self.matrix
        kept = self.backend.restrict(matrix, rows, columns)
        if not shares:
            return KeptEdges(kept.pointers, kept.columns, None)
        sums = np.repeat(np.maximum(self.matrix.row_sums.take(rows.vertices), 1.0), np.diff(kept.pointers))
        weights = 1.0 if matrix.values is None else matrix.values[kept.entries]
        return KeptEdges(kept.pointers, kept.columns, weights / sums)

    @cached_property
    def _pattern(self) -> CSR:
        return self.matrix.with_values(None)

    @cached_property
    def _square_bits(self) -> int:
        """Number of fractional bits of a squared weight, so few that the sum over the longest column stays within 2**62."""
        longest = self.matrix.longest_column if self._longest_column is None else self._longest_column
        return min(60, 62 - max(longest - 1, 0).bit_length())

    @cached_property
    def _inverse_squares(self) -> np.ndarray:
        inverse = 1.0 / np.maximum(self.matrix.row_sums, 1.0)
        return frozen(np.maximum(np.rint(np.ldexp(inverse * inverse, self._square_bits)), 1).astype(np.int64))

    @cached_property
    def squares(self) -> CSR:
        """The matrix with squared row-normalised weights, in fixed point, as its entries: 0 exactly where the weight is 0."""
        weights = self.matrix.entries()
        share = weights / np.repeat(np.maximum(self.matrix.row_sums, 1.0), self.matrix.degrees)
        squares = np.rint(np.ldexp(share * share, self._square_bits)).astype(np.int64)
        return self.matrix.with_values(np.maximum(squares, weights > 0))  # a positive weight stays drawable

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the matrix of a plain graph, or of the graph; see `fingerprint_of`."""
        return fingerprint_of(self.graph) if self.by_type else self.matrix.fingerprint

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
        matrices = [_counts(relation.adjacency, rows.repeats) for relation, rows in zip(graph.relations, self.relations(None), strict=True)]
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

    @property
    def first_with_parallel_edges(self) -> str | None:
        if not self.by_type:
            return None
        named = zip(self.graph.relations, self.relations(None), strict=True)
        return next((str(relation) for relation, matrix in named if matrix.repeats), None)


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
