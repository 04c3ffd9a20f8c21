"""SAMPLE(NORM(Q A_r)) of one relation, by the primitives of any back end: the definition of draws on relations and in windows of time.

    P = Q_D A_r        the rows of the frontier
    P = NORM(P)        positions [lo, hi) of the rows in the order of time; all of them without times
    Q' = SAMPLE(P, s)  the law of the sampler on what is left, or the last s

UNIFORM and REPLACEMENT draw positions in 0 .. hi - lo - 1 of the order of time. Laws that weigh neighbors see them in the order of the
adjacency. RACE names a neighbor by its column or, in a relation with parallel edges, by its position in the row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..graph.selection import Selection
from ..rng import Law
from ..sparse import CSR, row_pointers, runs
from .base import Backend
from .relational import RelationLaw, RelationMatrix, RowPicks, TimedRows


class Frontier(NamedTuple):
    """The rows of one type from which a hop draws."""

    vertices: np.ndarray  # int32, shape (R,)
    names: np.ndarray  # int32, shape (R,): of the rows in the counter, as a rule the vertices
    minibatches: np.ndarray  # int64, shape (R,): word 2 of the counter
    starts: np.ndarray | None  # int64, shape (R,): the windows; None: since ever
    ends: np.ndarray | None  # None: without times


def draw_rows(backend: Backend, relation: RelationMatrix, frontier: Frontier, law: RelationLaw, with_times: bool = False) -> RowPicks:
    """Draw from the rows of a frontier; `with_times` adds the times of the edges, if the relation has some."""
    drawn = backend.sample_relation(relation, *frontier, law) or _by_primitives(backend, relation, frontier, law)
    return drawn._replace(times=relation.times[drawn.entries]) if with_times and relation.times is not None else drawn


def _by_primitives(backend: Backend, relation: RelationMatrix, frontier: Frontier, law: RelationLaw) -> RowPicks:
    """Draw by the primitives of any back end; this defines `Backend.sample_relation`."""
    if relation.timed is None or frontier.ends is None:
        pointers, entries = _of_whole_rows(backend, relation, frontier, law)
    else:
        pointers, positions = _of_windows(backend, relation, relation.timed, frontier, law)
        entries = np.repeat(relation.matrix.indptr[frontier.vertices.astype(np.int64)], np.diff(pointers)) + positions
    return RowPicks(pointers, relation.matrix.indices[entries], entries)


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
        return picks.pointers, positions[windows.find(np.repeat(places, np.diff(picks.pointers)), picks.columns)]
    return picks.pointers, _ascending(picks.pointers, picks.columns)


def _one_each(frontier: Frontier, rows: np.ndarray, n: int) -> Selection:
    """Select rows of a matrix, each as a mini-batch of its own: every row has its own word 2 of the counter."""
    return Selection(frontier.minibatches, np.arange(len(rows) + 1), rows, n, frontier.names)


def _ascending(pointers: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Sort the positions of each row."""
    row = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    return positions[np.lexsort((positions, row))]
