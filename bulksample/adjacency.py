"""The graph as samplers see it: the contract `Adjacency`, and `LocalAdjacency`, which holds all of A in this process.

A sampler multiplies, draws and restricts. It never asks whether A lies in this process or in block rows over many ranks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from .backends.base import Backend, Picks, check_fanout
from .backends.hops import Expansion, Hop, hop_by_hop
from .backends.layer_draws import LayerPicks, LayerRace, LayerWeights, SharedDraws
from .errors import DataError
from .pickled import Uncached
from .rng import Draw
from .selection import Selection
from .sparse import CSR, frozen
from .vertex_table import check_adjacency_once

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

    A subclass implements `left_multiply`, `sample_rows` and `restrict`. By default a layer is drawn from the product Q A, several
    hops are taken hop by hop, and no memory is predicted; a subclass overrides what it can do better.

    Attributes
    ----------
    n : int
        Number of vertices.
    weighted : bool
        True if edges have weights.
    backend : Backend
        Does this process's share of the work.
    collective : bool
        True if every method is a collective call, which all ranks that share A make in the same order.
    """

    n: int
    weighted: bool
    backend: Backend
    collective: bool = False

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
        """Predict the peak bytes of sampling k mini-batches node-wise, `seeds` seeds together, while k others are in use.

        Returns None if unknown.
        """
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
        """Predict the bytes that `expand_layers` takes beside its result; 0 if unknown.

        Each mini-batch draws among the neighbors of `rows`.
        """
        return 0


def race_weights(sums: np.ndarray, power: Literal[1, 2]) -> np.ndarray:
    """Compute NORM of layer-wise draws: the sums (power 1) or their squares (power 2) as float64, each one IEEE operation."""
    weights = sums.astype(np.float64)
    return np.square(weights) if power == 2 else weights


class LocalAdjacency(Uncached, Adjacency):
    """An adjacency matrix that lies in this process.

    Parameters
    ----------
    matrix : CSR, shape (n, n), canonical; int64 fixed-point weights or ones
    backend : Backend
    longest_column : int, optional
        Entries of the longest column of the whole matrix, if this matrix is a block of its rows.
    entries : bool
        Return the position of each edge in the matrix with an expansion, if the back end knows it.
    checked : bool
        The matrix comes from one that has been checked: leave the check out.

    Raises
    ------
    DataError
        If the matrix is malformed; see `check_adjacency`. A matrix is read once, however many adjacencies are made of it.
    """

    def __init__(
        self, matrix: CSR, backend: Backend, longest_column: int | None = None, entries: bool = False, checked: bool = False
    ) -> None:
        if not checked:
            check_adjacency_once(matrix)
        self._longest_column, self._entries = longest_column, entries
        self.matrix = matrix
        self.backend = backend
        self.n = matrix.shape[0]
        self.weighted = matrix.values is not None

    @property
    def whole_matrix(self) -> CSR:
        return self.matrix

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        if entries == "ones":
            return self.backend.spgemm(q.per_minibatch(), self._pattern)
        if entries == "weights":
            return self.backend.spgemm(q.per_minibatch(), self.matrix)
        if self.weighted:
            return self.backend.spgemm(q.per_minibatch(), self.squares)
        # every entry of row u is 1 / d_u**2, so the square is a scaling of Q: (Q D^-2) A. numpy dies of an index of int32 for whose
        # conversion there is no memory; `take` raises
        return self.backend.spgemm(q.per_minibatch(self._inverse_squares.take(q.vertices)), self._pattern)

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        return self.backend.sample_rows(self.matrix, q, check_fanout(fanout), draw)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        self._check_square()
        return self.backend.expand(self.matrix, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new, self._entries)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | SharedDraws, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion]:  # fmt: skip
        self._check_square()
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

    def _check_square(self) -> None:
        """Raise `DataError` if columns are no rows, so that what a hop finds could not be expanded in the next one."""
        if self.matrix.shape[0] != self.matrix.shape[1]:
            raise DataError(f"the adjacency must be square; its shape is {self.matrix.shape}")

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
        return (self.squares.positive, None) if self.weighted else (self._pattern, self._inverse_squares)

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
