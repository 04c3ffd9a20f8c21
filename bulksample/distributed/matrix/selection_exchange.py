"""Exchange selections (requests for rows of the adjacency) and ragged rows (their answers) between ranks.

A request names rows by mini-batch: 16 bytes a mini-batch and 4 bytes a row, or 8 where rows have names of their own. An answer is a
count for each row and, for each of its entries, the arrays requested. All of it is of kind "topology".
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...selection import Selection
from ...sparse import row_pointers, runs
from ..comm.base import Comm, PendingAlltoall
from .layout import Layout


class RoutedSelection(NamedTuple):
    """A selection split by the owners of its rows."""

    order: np.ndarray  # int64, shape (R,): rows of the selection sorted by owner, stable
    parts: list[Selection]


def split_by_owner(q: Selection, layout: Layout) -> RoutedSelection:
    """Split a selection into one part for each block row."""
    owner = layout.blocks_of(q.vertices)
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(layout.blocks + 1))
    minibatch = q.minibatch_of_row()
    parts = []
    for a, b in pairwise(ends):
        rows = order[a:b]
        sizes = np.bincount(minibatch[rows], minlength=len(q))
        names = None if q.own_names is None else q.own_names[rows]
        parts.append(Selection(q.minibatches, row_pointers(sizes), q.vertices[rows], q.n, names))
    return RoutedSelection(order, parts)


def exchange_selections(comm: Comm, parts: list[Selection]) -> list[Selection]:
    """Send ``parts[r]`` to rank r; return the selection received from each rank. Rows have names on all ranks or on none."""
    n, named = parts[0].n, parts[0].own_names is not None
    tables = comm.alltoall([np.stack([part.minibatches, part.sizes], axis=1) for part in parts], "topology")
    rows = comm.alltoall([np.stack([part.vertices, part.names][: 1 + named], axis=1) for part in parts], "topology")
    return [
        Selection(table[:, 0], row_pointers(table[:, 1]), row[:, 0], n, row[:, 1] if named else None)
        for table, row in zip(tables, rows, strict=True)
    ]


def stack_selections(selections: list[Selection]) -> Selection:
    """Concatenate selections."""
    sizes = np.concatenate([s.sizes for s in selections])
    vertices = np.concatenate([s.vertices for s in selections])
    names = np.concatenate([s.names for s in selections])
    minibatches = np.concatenate([s.minibatches for s in selections])
    return Selection(minibatches, row_pointers(sizes), vertices, selections[0].n, names)


def to_places(q: Selection, layout: Layout, first: int = 0) -> Selection:
    """Replace the vertices of a selection by their places in the layout, minus `first`. Names stay."""
    return Selection(q.minibatches, q.pointers, layout.places(q.vertices) - np.int32(first), q.n, q.names)


def exchange_ragged_rows(comm: Comm, rows: list[int], ends: np.ndarray, entries: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Send consecutive rows of different lengths to each rank.

    Parameters
    ----------
    rows : number of rows for each rank
    ends : int64, shape (sum of rows + 1,)
        Row pointers.
    entries : arrays of shape (ends[-1],)

    Returns
    -------
    For each rank, the received counts (int32), then its part of each array.
    """
    return wait_ragged_rows(start_ragged_rows(comm, rows, ends, entries))


def wait_ragged_rows(pending: list[PendingAlltoall]) -> list[list[np.ndarray]]:
    """Wait for `start_ragged_rows`; return the received arrays, rank by rank."""
    return [list(found) for found in zip(*[part.wait() for part in pending], strict=True)]


def start_ragged_rows(
    comm: Comm, rows: list[int], ends: np.ndarray, entries: list[np.ndarray], kind: str = "topology"
) -> list[PendingAlltoall]:
    """Begin `exchange_ragged_rows`: one all-to-all for the counts and one for each array."""
    cuts = row_pointers(rows)
    counts = np.diff(ends).astype(np.int32)
    pending = [comm.start_alltoall([counts[a:b] for a, b in pairwise(cuts)], kind)]
    for array in entries:
        pending.append(comm.start_alltoall([array[ends[a] : ends[b]] for a, b in pairwise(cuts)], kind))
    return pending


def in_request_order(order: np.ndarray, answers: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Sort the answers to a `RoutedSelection` back into the order of its rows: row pointers, then each array."""
    counts, *arrays = (np.concatenate(column) for column in zip(*answers, strict=True))
    own = np.empty(len(order), np.int64)
    own[order] = counts
    ends = row_pointers(own)
    start = np.empty(len(order), np.int64)
    start[order] = row_pointers(counts)[:-1]
    entry = runs(start, own)
    return [ends, *(array[entry] for array in arrays)]


def merge_columns(answers: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Merge pieces of the same rows from all ranks: row pointers, then each array. The first array ascends within each row."""
    row = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts, *_ in answers])
    columns = np.concatenate([answer[1] for answer in answers])
    order = np.argsort(row * (int(columns.max(initial=0)) + 1) + columns, kind="stable")  # ascending pieces: a merge
    arrays = [np.concatenate(column)[order] for column in list(zip(*answers, strict=True))[1:]]
    return [row_pointers(np.bincount(row, minlength=len(answers[0][0]))), *arrays]
