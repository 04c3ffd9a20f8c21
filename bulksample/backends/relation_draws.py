"""SAMPLE(NORM(Q A_r)) of one relation, by the primitives of any back end: the definition of draws on relations and in windows of time.

    P = Q_D A_r        the rows of the frontier
    P = NORM(P)        positions [lo, hi) of the rows in the order of time; all of them without times
    Q' = SAMPLE(P, s)  the law of the sampler on what is left, or the last s

UNIFORM and REPLACEMENT draw positions in 0 .. hi - lo - 1 of the order of time. Laws that weigh neighbors see them in the order of the
adjacency. RACE names a neighbor by its column or, in a relation with parallel edges, by its position in the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..graph.selection import Selection
from ..rng import Law
from ..sparse import CSR, frozen, row_pointers, runs
from .base import Backend
from .reference import located
from .relational import RelationLaw, RelationPicks, RelationRows


class RowPicks(NamedTuple):
    """The edges drawn from each row, in the order of the adjacency."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): sources
    entries: np.ndarray | None  # int64, shape (E,): positions in the adjacency; None if nobody asked for them
    times: np.ndarray | None = None  # int64, shape (E,): of the edges, if windows move and the relation has times


class Frontier(NamedTuple):
    """The rows of one type from which a hop draws."""

    vertices: np.ndarray  # int32, shape (R,)
    names: np.ndarray  # int32, shape (R,): of the rows in the counter, as a rule the vertices
    minibatches: np.ndarray  # int64, shape (R,): word 2 of the counter
    starts: np.ndarray | None  # int64, shape (R,): the windows; None: since ever
    ends: np.ndarray | None  # None: without times


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

    @property
    def rows(self) -> RelationRows:
        """The adjacency, as back ends take it."""
        return RelationRows(self.source, self.destination, self.matrix, None if self.timed is None else self.timed.entries, self.repeats)

    def names_columns(self, law: Law) -> bool:
        """True if the law names neighbors by their columns."""
        return law is Law.LABOR or (law is Law.RACE and not self.repeats)


def draw_rows(backend: Backend, relation: RelationMatrix, frontier: Frontier, law: RelationLaw, with_times: bool = False) -> RowPicks:
    """Draw from the rows of a frontier; `with_times` adds the times of the edges, if the relation has some."""
    drawn = backend.sample_relation(relation.rows, *frontier, law) or _by_primitives(backend, relation, frontier, law)
    times = relation.times[drawn.entries] if with_times and relation.times is not None else None
    return RowPicks(*drawn, times)


def _by_primitives(backend: Backend, relation: RelationMatrix, frontier: Frontier, law: RelationLaw) -> RelationPicks:
    """Draw by the primitives of any back end; this defines `Backend.sample_relation`."""
    if relation.timed is None or frontier.ends is None:
        pointers, entries = _of_whole_rows(backend, relation, frontier, law)
    else:
        pointers, positions = _of_windows(backend, relation, relation.timed, frontier, law)
        entries = np.repeat(relation.matrix.indptr[frontier.vertices.astype(np.int64)], np.diff(pointers)) + positions
    return RelationPicks(pointers, relation.matrix.indices[entries], entries)


def _of_whole_rows(backend: Backend, relation: RelationMatrix, frontier: Frontier, law: RelationLaw) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and entries drawn from whole rows."""
    by_column = law.fanout >= 0 and relation.names_columns(law.draw.law)
    matrix = relation.matrix if by_column else relation.positions
    picks = backend.sample_rows(matrix, _one_each(frontier, frontier.vertices, matrix.shape[0]), law.fanout, law.draw)
    if by_column:
        return picks.pointers, backend.locate(matrix, frontier.vertices, picks.pointers, picks.columns)
    return picks.pointers, np.repeat(matrix.indptr[frontier.vertices.astype(np.int64)], np.diff(picks.pointers)) + picks.columns


def _of_windows(
    backend: Backend, relation: RelationMatrix, timed: TimedRows, frontier: Frontier, law: RelationLaw
) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and positions in the rows, drawn from windows of them."""
    assert frontier.ends is not None
    matrix, rows = relation.matrix, frontier.vertices.astype(np.int64)
    low, high = timed.windows(matrix, rows, frontier.starts, frontier.ends, law.strict)
    if law.last and law.fanout >= 0:
        low = np.maximum(low, high - law.fanout)
    counts = high - low
    pointers, positions = row_pointers(counts), timed.positions[runs(matrix.indptr[rows] + low, counts)]
    if law.fanout < 0 and law.draw.law.weighs and matrix.values is not None:  # all of positive weight
        kept = matrix.values[np.repeat(matrix.indptr[rows], counts) + positions] > 0
        pointers, positions = row_pointers(kept)[pointers], positions[kept]
    if law.last or law.fanout < 0:
        return pointers, _ascending(pointers, positions)
    by_position = law.draw.law in (Law.UNIFORM, Law.REPLACEMENT)
    if not by_position:
        positions = _ascending(pointers, positions)
    by_column = relation.names_columns(law.draw.law)
    entries = np.repeat(matrix.indptr[rows], counts) + positions
    windows = CSR(
        pointers,
        matrix.indices[entries] if by_column else positions,
        None if by_position or matrix.values is None else matrix.values[entries],
        (len(rows), matrix.shape[1] if by_column else int(matrix.degrees.max(initial=0))),
    )
    places = np.arange(len(rows), dtype=np.int32)
    picks = backend.sample_rows(windows, _one_each(frontier, places, len(rows)), law.fanout, law.draw)
    if by_column:
        return picks.pointers, positions[located(windows, places, picks.pointers, picks.columns)]
    return picks.pointers, _ascending(picks.pointers, picks.columns)


def _one_each(frontier: Frontier, rows: np.ndarray, n: int) -> Selection:
    """Select rows of a matrix, each as a mini-batch of its own: every row has its own word 2 of the counter."""
    return Selection(frontier.minibatches, np.arange(len(rows) + 1), rows, n, frontier.names)


def _ascending(pointers: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Sort the positions of each row."""
    row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    return positions[np.lexsort((positions, row))]
