"""The one seam between samplers and the graph: `Adjacency`.

A sampler multiplies, draws and restricts; whether A lies in this process or in block rows over many ranks is
the business of whoever implements these four methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from .backends.base import Backend, LayerPicks, LayerRace, LayerWeights, Picks, check_fanout
from .backends.hops import Expansion
from .rng import Draw
from .selection import Selection
from .sparse import CSR, frozen

Entries = Literal["ones", "weights", "squares"]


class LayerLaw(NamedTuple):
    """By what a layer-wise sampler draws from a frontier: arguments of `Adjacency.sample_layer`."""

    entries: Entries
    power: Literal[1, 2]


class Kept(NamedTuple):
    """Q_R A Q_C, kept per minibatch: the edges from selected rows to selected columns."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): positions in the minibatch's part of Q_C, ascending by global vertex
    shares: np.ndarray | None  # float64, shape (E,): w_uv / sum_j w_uj, which is 1 / degree where A holds ones


class Adjacency(Protocol):
    """A, n x n; row v lists the in-neighbours that v aggregates from."""

    n: int
    weighted: bool
    backend: Backend

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        """Q A with one row of Q per minibatch: int64, shape (k, n).

        `entries` says what stands at (u, v): 1; the fixed-point weight; or the square of the row-normalised weight,
        (w_uv / sum_j w_uj)**2, in fixed point.
        """

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        """SAMPLE(NORM(Q A), s) with one row of Q per (minibatch, vertex), fused; see `Backend.sample_rows`."""

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        """SAMPLE(NORM(Q A), s) with one row of Q per minibatch, NORM raising the sums to a power; see `Backend.smallest_keys`."""

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> Kept:
        """Q_R A Q_C per minibatch, A row-normalised; the shares are left out where they are not asked for."""


@runtime_checkable
class ExpandsRows(Protocol):
    """An adjacency that can also take minibatches through all hops in one call; the others are asked hop by hop."""

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        """`sample_rows` hop by hop, numbered; see `Backend.expand`. Collective where A lies on many ranks."""


@runtime_checkable
class Expands(ExpandsRows, Protocol):
    """One that does so by itself, asking no other rank."""

    def expand_tables(self, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        """Bytes that it takes beside what it returns; see `Backend.expand_tables`."""


@runtime_checkable
class ExpandsLayers(Protocol):
    """An adjacency that can also take minibatches through all hops of a layer-wise sampler in one call."""

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | Sequence[LayerPicks], fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion] | None:  # fmt: skip
        """`sample_layer` and `restrict` hop by hop, numbered and weighted; None where it must go hop by hop."""

    def layer_tables(self, k: int, b: int, rows: np.ndarray) -> int:
        """Bytes that it takes beside its result, where minibatches draw among the neighbours of such rows; see `Backend.layer_tables`."""


@runtime_checkable
class Predicts(Protocol):
    """An adjacency that knows what memory its expansions take."""

    def bulk_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int:
        """Bytes at the most while k minibatches of so many seeds together are made, as many others being in use."""

    def layer_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool) -> int:
        """Bytes at the most while k minibatches of a layer-wise sampler are made; `from_frontier`: what hops draw is not given."""


def race_weights(sums: np.ndarray, power: Literal[1, 2]) -> np.ndarray:
    """NORM of layer-wise draws: the sums (power 1) or their squares (power 2) as float64, each one IEEE operation."""
    weights = sums.astype(np.float64)
    return np.square(weights) if power == 2 else weights


class LocalAdjacency:
    """A that lies in this process.

    Parameters
    ----------
    matrix : CSR, shape (n, n), canonical; int64 fixed-point weights or ones
    backend : Backend
    longest_column : int, optional
        Entries of the longest column of the whole matrix, where this one is a block of its rows.
    entries : bool
        Whether expansions say where in the matrix their edges stand, if the back end knows.
    """

    def __init__(self, matrix: CSR, backend: Backend, longest_column: int | None = None, entries: bool = False) -> None:
        self._longest_column, self._entries = longest_column, entries
        self.matrix = matrix
        self.backend = backend
        self.n = matrix.shape[0]
        self.weighted = matrix.values is not None

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        if entries == "ones":
            return self.backend.spgemm(q.per_minibatch(), self._pattern)
        if entries == "weights":
            return self.backend.spgemm(q.per_minibatch(), self.matrix)
        if self.weighted:
            return self.backend.spgemm(q.per_minibatch(), self.squares)
        # every entry of row u is 1 / d_u**2, so the square is a scaling of Q: (Q D^-2) A
        return self.backend.spgemm(q.per_minibatch(self._inverse_squares[q.vertices]), self._pattern)

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        return self.backend.sample_rows(self.matrix, q, check_fanout(fanout), draw)

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        return self.backend.expand(self.matrix, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new, self._entries)

    def expand_layers(
        self, seeds: Selection, drawn: LayerLaw | Sequence[LayerPicks], fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool,
        debias: bool, renormalise: bool,
    ) -> list[Expansion] | None:  # fmt: skip
        how: LayerRace | Sequence[LayerPicks]
        if isinstance(drawn, LayerLaw):
            entries, factors = self._summed(drawn.entries)
            if entries.value_bound * self.matrix.longest_column > 2**63 - 1:
                return None  # sums might not fit; hop by hop each product is checked by itself
            how = LayerRace(entries, factors, drawn.power, [check_fanout(fanout) for fanout in fanouts], draws)
        else:
            how = drawn
        return self._expanded_layers(seeds, how, LayerWeights(self._row_sums, debias, renormalise), only_new)

    def _expanded_layers(
        self, seeds: Selection, drawn: LayerRace | Sequence[LayerPicks], weights: LayerWeights, only_new: bool
    ) -> list[Expansion] | None:
        return self.backend.expand_layers(self.matrix, seeds, drawn, weights, only_new)

    def expand_tables(self, k: int, b: int, fanouts: Sequence[int], vertices: int) -> int:
        return self.backend.expand_tables(self.n, k, b, fanouts, vertices)

    def layer_tables(self, k: int, b: int, rows: np.ndarray) -> int:
        entries = int(self.matrix.degrees[rows].sum())
        candidates = round(-self.n * math.expm1(-entries / self.n)) if len(rows) else 0  # distinct ones, if they were drawn at random
        return self.backend.layer_tables(self.matrix, k, b, candidates)

    def _summed(self, entries: Entries) -> tuple[CSR, np.ndarray | None]:
        """The matrix whose rows `left_multiply` adds, and what it multiplies each row by."""
        if entries == "ones":
            return self._pattern, None
        if entries == "weights":
            return self.matrix, None
        return (self.squares, None) if self.weighted else (self._pattern, self._inverse_squares)

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        p = self.left_multiply(q, entries)
        return self.backend.smallest_keys(p.indptr, p.indices, race_weights(p.entries(), power), check_fanout(fanout), q.minibatches, draw)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> Kept:
        kept = self.backend.restrict(self._pattern, rows, columns)
        if not shares:
            return Kept(kept.pointers, kept.columns, None)
        sums = np.repeat(np.maximum(self._row_sums[rows.vertices], 1.0), np.diff(kept.pointers))
        weights = 1.0 if self.matrix.values is None else self.matrix.values[kept.entries]
        return Kept(kept.pointers, kept.columns, weights / sums)

    @cached_property
    def _pattern(self) -> CSR:
        return self.matrix.with_values(None)

    @cached_property
    def _row_sums(self) -> np.ndarray:
        """Exact sums, as float64: the weights are integers below 2**62 by construction."""
        if self.matrix.values is None:
            return self.matrix.degrees.astype(np.float64)
        running = np.zeros(self.matrix.nnz + 1, np.uint64)
        np.cumsum(self.matrix.values.astype(np.uint64), out=running[1:])  # exact modulo 2**64, and a row sum is below that
        return (running[self.matrix.indptr[1:]] - running[self.matrix.indptr[:-1]]).astype(np.float64)

    @cached_property
    def _square_bits(self) -> int:
        """Fractional bits of a square: a column sum is at most its longest column, and stays within 2**62."""
        longest = self.matrix.longest_column if self._longest_column is None else self._longest_column
        return min(60, 62 - max(longest - 1, 0).bit_length())

    @cached_property
    def _inverse_squares(self) -> np.ndarray:
        inverse = 1.0 / np.maximum(self._row_sums, 1.0)
        return frozen(np.rint(np.ldexp(inverse * inverse, self._square_bits)).astype(np.int64))

    @cached_property
    def squares(self) -> CSR:
        """The matrix with the entries that `left_multiply` calls squares."""
        share = self.matrix.entries() / np.repeat(np.maximum(self._row_sums, 1.0), self.matrix.degrees)
        return self.matrix.with_values(np.rint(np.ldexp(share * share, self._square_bits)).astype(np.int64))
