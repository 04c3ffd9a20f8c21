"""Selections and ragged rows on the move: who is asked for which rows, and what comes back.

A request names rows by minibatch, 16 bytes a minibatch and 4 bytes a row (8 where rows carry names of their own). An answer is
a count for each row and, entry by entry, whatever the rows hold. All of it is of kind "topology".
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...selection import Selection
from ...sparse import runs
from ..comm.base import Comm, PendingAlltoall
from .layout import Layout


class RoutedSelection(NamedTuple):
    """A selection cut by owner."""

    order: np.ndarray  # int64, shape (R,): the rows of the selection, owner by owner, in their own order within each
    parts: list[Selection]


def split_by_owner(q: Selection, layout: Layout) -> RoutedSelection:
    """The rows of each block row."""
    owner = layout.blocks_of(q.vertices)
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(layout.blocks + 1))
    minibatch = q.minibatch_of_row()
    parts = []
    for a, b in pairwise(ends):
        rows = order[a:b]
        sizes = np.bincount(minibatch[rows], minlength=len(q))
        parts.append(
            Selection(q.minibatches, row_pointers(sizes), q.vertices[rows], q.n, None if q.own_names is None else q.own_names[rows])
        )
    return RoutedSelection(order, parts)


def exchange_selections(comm: Comm, parts: list[Selection]) -> list[Selection]:
    """Send a selection to each rank; what each rank sent to this one. All ranks' rows carry names, or none does."""
    n, named = parts[0].n, parts[0].own_names is not None
    tables = comm.alltoall([np.stack([part.minibatches, part.sizes], axis=1) for part in parts], "topology")
    rows = comm.alltoall([np.stack([part.vertices, part.names][: 1 + named], axis=1) for part in parts], "topology")
    return [
        Selection(table[:, 0], row_pointers(table[:, 1]), row[:, 0], n, row[:, 1] if named else None)
        for table, row in zip(tables, rows, strict=True)
    ]


def stack_selections(selections: list[Selection]) -> Selection:
    """Selections one after the other."""
    sizes = np.concatenate([s.sizes for s in selections])
    vertices = np.concatenate([s.vertices for s in selections])
    names = np.concatenate([s.names for s in selections])
    minibatches = np.concatenate([s.minibatches for s in selections])
    return Selection(minibatches, row_pointers(sizes), vertices, selections[0].n, names)


def to_places(q: Selection, layout: Layout, first: int = 0) -> Selection:
    """The same rows, told by their places counted from `first` on; they keep their names."""
    return Selection(q.minibatches, q.pointers, layout.places(q.vertices) - np.int32(first), q.n, q.names)


def exchange_ragged_rows(comm: Comm, rows: list[int], ends: np.ndarray, entries: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Send consecutive ragged rows to each rank.

    Parameters
    ----------
    rows : how many of them go to each rank
    ends : int64, shape (sum of rows + 1,)
        Row pointers.
    entries : arrays of shape (ends[-1],)

    Returns
    -------
    For each rank, what it sent: counts (int32), then its part of each array.
    """
    return wait_ragged_rows(start_ragged_rows(comm, rows, ends, entries))


def wait_ragged_rows(arrivals: list[PendingAlltoall]) -> list[list[np.ndarray]]:
    """What `start_ragged_rows` brings, rank by rank."""
    return [list(found) for found in zip(*[arrival.wait() for arrival in arrivals], strict=True)]


def start_ragged_rows(
    comm: Comm, rows: list[int], ends: np.ndarray, entries: list[np.ndarray], kind: str = "topology"
) -> list[PendingAlltoall]:
    """Begin `exchange_ragged_rows`: an arrival for the counts, and one for each array."""
    cuts = np.cumsum([0, *rows])
    counts = np.diff(ends).astype(np.int32)
    arrivals = [comm.start_alltoall([counts[a:b] for a, b in pairwise(cuts)], kind)]
    for array in entries:
        arrivals.append(comm.start_alltoall([array[ends[a] : ends[b]] for a, b in pairwise(cuts)], kind))
    return arrivals


def in_request_order(order: np.ndarray, answers: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Answers to routed rows in the order of the selection: row pointers, then each array."""
    counts, *arrays = (np.concatenate(column) for column in zip(*answers, strict=True))
    own = np.empty(len(order), np.int64)
    own[order] = counts
    ends = row_pointers(own)
    start = np.empty(len(order), np.int64)
    start[order] = row_pointers(counts)[:-1]
    entry = runs(start, own)
    return [ends, *(array[entry] for array in arrays)]


def merge_columns(answers: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Pieces of the same rows, one from each rank: row pointers, then each array, of which the first ascends within a row."""
    row = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts, *_ in answers])
    columns = np.concatenate([answer[1] for answer in answers])
    order = np.argsort(row * (int(columns.max(initial=0)) + 1) + columns, kind="stable")  # ascending pieces: a merge
    arrays = [np.concatenate(column)[order] for column in list(zip(*answers, strict=True))[1:]]
    return [row_pointers(np.bincount(row, minlength=len(answers[0][0]))), *arrays]


def row_pointers(counts: np.ndarray) -> np.ndarray:
    """Row pointers of counts: int64."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
