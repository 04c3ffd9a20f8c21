"""Arguments and results of `Backend.expand_relations` and `Backend.sample_relation`, and the definition of `Backend.relabel_trees`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..rng import Draw, Law
from ..sparse import CSR, frozen, row_pointers
from .hops import Expansion, Hop


@dataclass(frozen=True, eq=False)
class TimedRows:
    """The entries of a matrix in the order of time, row by row, beside the matrix: 16 bytes an edge.

    What belongs to an entry lies together, so that a window and what is drawn from it are in neighboring cache lines. Rows are ordered by
    (time, column, entry). So equal times leave a row as it is, and drawing from all of it draws what a graph without times draws.
    """

    entries: np.ndarray  # int64, shape (m, 2): a time, which ascends within a row; two int32, the position in its row of A, and the column

    @property
    def times(self) -> np.ndarray:
        """The times: int64, shape (m,)."""
        return self.entries[:, 0]

    @property
    def positions(self) -> np.ndarray:
        """The position in its row of A that each entry came from: int32, shape (m,)."""
        return self.entries.view(np.int32)[:, 2]

    @staticmethod
    def of(matrix: CSR, times: np.ndarray) -> TimedRows:
        """Sort each row by time; `times` holds that of each entry, int64 of shape (m,). Equal times keep the order of the row."""
        rows = matrix.row_of_entry()
        sorted_already = not ((times[1:] < times[:-1]) & (rows[1:] == rows[:-1])).any()
        entries = np.arange(matrix.nnz) if sorted_already else np.lexsort((times, rows))
        sorted_entries = np.empty((matrix.nnz, 2), np.int64)
        sorted_entries[:, 0] = times[entries]
        halves = sorted_entries.view(np.int32)
        halves[:, 2], halves[:, 3] = entries - matrix.indptr[rows], matrix.indices[entries]
        return TimedRows(frozen(sorted_entries, np.int64))

    def windows(
        self, matrix: CSR, rows: np.ndarray, starts: np.ndarray | None, ends: np.ndarray, strict: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the window [lo, hi) of each of R rows, as positions in the row: two int64 of shape (R,). hi is never below lo.

        lo = first position with time >= start;   hi = first position with time > end (>= end if strict)
        """
        first, last = matrix.indptr[rows], matrix.indptr[rows + 1]
        high = self._bisect(first, last, ends, after_equal=not strict)
        low = first if starts is None else self._bisect(first, last, starts, after_equal=False)
        return low - first, np.maximum(high, low) - first

    def _bisect(self, low: np.ndarray, high: np.ndarray, wanted: np.ndarray, after_equal: bool) -> np.ndarray:
        """Return the first position of each range whose time is not below `wanted`, or above it, by bisection of all rows at once."""
        low, high = low.copy(), high.copy()
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) >> 1
            at, time = wanted[open_], self.times[middle]
            below = time <= at if after_equal else time < at
            low[open_[below]], high[open_[~below]] = middle[below] + 1, middle[~below]
        return low


@dataclass(frozen=True, eq=False)
class RelationMatrix:
    """The adjacency of a relation with what drawing needs."""

    source: int  # the place of its source type
    destination: int
    matrix: CSR  # shape (destinations, sources)
    times: np.ndarray | None = None  # int64, shape (m,): of each entry; None if there are none, or time does not count
    parallel: bool | None = None  # there are parallel edges; needed of a matrix that holds some rows of a relation, else looked up

    @cached_property
    def timed(self) -> TimedRows | None:
        """The entries in the order of time; None without times."""
        return None if self.times is None else TimedRows.of(self.matrix, self.times)

    @property
    def timed_entries(self) -> np.ndarray | None:
        """The array of `timed`; None without times."""
        return None if self.timed is None else self.timed.entries

    @cached_property
    def repeats(self) -> bool:
        """True if there are parallel edges."""
        if self.parallel is not None:
            return self.parallel
        columns, starts = self.matrix.indices, np.zeros(self.matrix.nnz + 1, bool)
        starts[self.matrix.indptr] = True
        return bool(((columns[1:] == columns[:-1]) & ~starts[1:-1]).any())

    @cached_property
    def positions(self) -> CSR:
        """The adjacency with the position of each entry in its row in the place of its column."""
        matrix = self.matrix
        places = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], matrix.degrees)
        return CSR(matrix.indptr, places.astype(np.int32), matrix.values, (matrix.shape[0], int(matrix.degrees.max(initial=0))))

    def names_columns(self, law: Law) -> bool:
        """True if the law names neighbors by their columns."""
        return law is Law.LABOR or (law is Law.RACE and not self.repeats)


class RelationLaw(NamedTuple):
    """The law by which the rows of one relation draw in one hop."""

    fanout: int
    draw: Draw
    last: bool = False
    strict: bool = False


class RowPicks(NamedTuple):
    """The edges drawn from each of R rows of a relation, in the order of the adjacency."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): sources
    entries: np.ndarray | None  # int64, shape (E,): positions in the adjacency; None if nobody asked for them
    times: np.ndarray | None = None  # int64, shape (E,): of the edges, if windows move and the relation has times


class Trees(NamedTuple):
    """The t trees of k mini-batches, and their seeds."""

    pointers: np.ndarray  # int64, shape (k + 1,): the trees of each mini-batch
    names: np.ndarray  # int64, shape (t,): word 2 of the counters of each tree
    seeds: list[np.ndarray]  # per type, int32 of shape (R,): vertices within the type, mini-batch by mini-batch
    tree_of_seed: list[np.ndarray]  # per type, int64 of shape (R,)
    starts: np.ndarray | None = None  # int64, shape (t,): the window of each tree; None: since ever
    ends: np.ndarray | None = None  # int64, shape (t,); None: without times
    moving: bool = False  # the end moves with the walk: see `TimeRule`

    @property
    def disjoint(self) -> bool:
        """True unless each mini-batch has one tree."""
        return bool((np.diff(self.pointers) != 1).any())


class HeteroExpansion(NamedTuple):
    """One mini-batch after all its hops, in local numbers; see `backends.hops.Expansion`."""

    seed_rows: list[np.ndarray]  # per type, int32
    vertices: list[np.ndarray]  # per type, int32: within the type
    trees: list[np.ndarray]  # per type, int32: the tree of each vertex among those of the mini-batch; empty if it has one
    held: np.ndarray  # int64, shape (L + 1, types): vertices before the first hop and after each
    hops: list[list[Hop]]  # [hop][relation]; if only new vertices are expanded, the rows of all hops up to it, or one hop that holds all

    def trees_of(self, place: int) -> np.ndarray:
        """Return the tree of each vertex of a type: int32."""
        return self.trees[place] if self.trees else np.zeros(len(self.vertices[place]), np.int32)

    @staticmethod
    def of_one(expansion: Expansion) -> HeteroExpansion:
        """Return the expansion of one relation, whose vertices share one tree."""
        held = np.array(expansion.held, np.int64)[:, None]
        return HeteroExpansion([expansion.seed_rows], [expansion.vertices], [], held, [[hop] for hop in expansion.hops])

    def plain(self) -> Expansion:
        """Return the expansion of the only type and the only relation."""
        return Expansion(self.seed_rows[0], self.vertices[0], self.held[:, 0].tolist(), [hop for (hop,) in self.hops])


class TreeVertices(NamedTuple):
    """Vertices of one type, mini-batch by mini-batch, each of a tree; where windows of time move, a tree holds one of each end."""

    vertices: np.ndarray  # int32, shape (N,)
    trees: np.ndarray  # int64, shape (N,): of the bulk
    ends: np.ndarray | None  # int64, shape (N,): the window of each row if it moves


def relabel_by_sorting(
    pointers: np.ndarray, held: TreeVertices, found: TreeVertices, tree_pointers: np.ndarray
) -> tuple[np.ndarray, TreeVertices, np.ndarray]:
    """Number what trees found by sorting all of it; see `Backend.relabel_trees`."""
    vertices, trees = (np.concatenate(pair) for pair in zip(held[:2], found[:2], strict=True))
    ends = None if held.ends is None or found.ends is None else np.concatenate([held.ends, found.ends])
    keys = np.stack([vertices, trees, *([] if ends is None else [ends])]).astype(np.int64)
    order = np.lexsort(keys)  # stable: equal ones in the order in which they were found
    new = np.ones(len(order), bool)
    new[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    first = order[new]
    minibatch = np.searchsorted(tree_pointers, trees[first], side="right") - 1
    rank = np.lexsort((first, minibatch))
    extended = row_pointers(np.bincount(minibatch, minlength=len(pointers) - 1))
    place = np.empty(len(rank), np.int64)
    place[rank] = np.arange(len(rank)) - extended[minibatch[rank]]
    local = np.empty(len(order), np.int64)
    local[order] = place[np.cumsum(new) - 1]
    kept = first[rank]
    every = TreeVertices(vertices[kept], trees[kept], None if ends is None else ends[kept])
    return extended, every, local[len(held.vertices) :].astype(np.int32)
