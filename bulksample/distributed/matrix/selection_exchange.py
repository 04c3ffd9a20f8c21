"""Exchange selections (requests for rows of the adjacency) and their answers between ranks: a message to each rank, and one back.

A request to one rank, in words of 4 bytes, with k mini-batches of which it is for R rows:

    k | ids of the mini-batches | rows of each | the rows (| their names) (| columns of each | the columns)

It is empty if it names no row. An answer has one of two forms:

    in rooms: the picks of each row, then -1              both sides know the room of a row (`answer_rooms`), so no lengths go ahead
    ragged: entries of each row | arrays of the entries   4 bytes a row; 4 or 8 bytes an entry and array

All of it is of kind "topology", unless said otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...errors import PeerLost
from ...selection import Selection
from ...sparse import row_pointers, runs
from ..comm.base import Comm, PendingRows
from .answer_rooms import fill_rooms, read_rooms
from .layout import Layout
from .packed_messages import Section, pack, run_sums, unpack


class RoutedSelection(NamedTuple):
    """The rows of a selection, grouped by owner."""

    order: np.ndarray  # int64, shape (R,): rows of the selection sorted by owner, stable
    sizes: np.ndarray  # int64, shape (owners, k): rows by owner and mini-batch

    @property
    def rows(self) -> np.ndarray:
        """Number of rows of each owner: int64, shape (owners,)."""
        return np.asarray(self.sizes.sum(axis=1))


class Requests(NamedTuple):
    """The requests of all ranks, stacked in rank order."""

    rows: Selection
    counts: np.ndarray  # int64, shape (size,): rows from each rank
    minibatches: np.ndarray  # int64, shape (size,): mini-batches from each rank
    columns: Selection | None = None


def route(q: Selection, layout: Layout) -> RoutedSelection:
    """Group the rows of a selection by owner: a counting sort."""
    owner = layout.blocks_of(q.vertices)
    sizes = np.bincount(owner * len(q) + q.minibatch_of_row(), minlength=layout.blocks * len(q))
    small = owner.astype(np.uint16) if layout.blocks < 2**16 else owner  # numpy sorts short integers by counting
    return RoutedSelection(np.argsort(small, kind="stable"), sizes.reshape(layout.blocks, len(q)))


def request_rows(comm: Comm, q: Selection, routed: RoutedSelection, columns: Selection | None = None) -> Requests:
    """Send each row to its owner, and `columns` (of the same mini-batches) to all ranks that own one; return what was received.

    Rows have names on all ranks or on none.
    """
    names = None if q.own_names is None else q.own_names[routed.order]
    return _exchange(comm, q, routed.sizes, q.vertices[routed.order], names, columns)


def request_from_all(comm: Comm, q: Selection) -> Requests:
    """Send the whole selection to every rank; return what was received."""
    sizes = np.broadcast_to(q.sizes, (comm.size, len(q)))
    names = None if q.own_names is None else np.tile(q.own_names, comm.size)
    return _exchange(comm, q, sizes, np.tile(q.vertices, comm.size), names, None)


def _exchange(
    comm: Comm, q: Selection, sizes: np.ndarray, vertices: np.ndarray, names: np.ndarray | None, columns: Selection | None
) -> Requests:
    rows, k = sizes.sum(axis=1), len(q)
    used = rows > 0
    often = used * k
    ids = q.minibatches.astype(np.uint32).view(np.int32)
    sections = [
        Section(np.full(np.count_nonzero(used), k, np.int32), used.astype(np.int64)),
        Section(np.tile(ids, np.count_nonzero(used)), often),
        Section(sizes[used].astype(np.int32).reshape(-1), often),
        Section(vertices, rows),
    ]
    if names is not None:
        sections.append(Section(names, rows))
    if columns is not None:
        sections.append(Section(np.tile(columns.sizes.astype(np.int32), np.count_nonzero(used)), often))
        sections.append(Section(np.tile(columns.vertices, np.count_nonzero(used)), used * len(columns.vertices)))
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, "topology")
    return _received(pending.wait(), pending.counts, q.n, names is not None, columns is not None)


def _received(message: np.ndarray, lengths: np.ndarray, n: int, named: bool, with_columns: bool) -> Requests:
    at, used = row_pointers(lengths)[:-1], lengths > 0
    k = np.zeros(len(lengths), np.int64)
    k[used] = message[at[used]]
    ids = unpack(message, at + used, k, np.uint32).astype(np.int64)
    sizes = unpack(message, at + used + k, k)
    rows, at = run_sums(sizes, k), at + used + 2 * k
    vertices, at = unpack(message, at, rows), at + rows
    names = None
    if named:
        names, at = unpack(message, at, rows), at + rows
    columns = None
    if with_columns:
        of_each, at = unpack(message, at, k), at + k
        selected = run_sums(of_each, k)
        columns, at = Selection(ids, row_pointers(of_each), unpack(message, at, selected), n), at + selected
    if (at != row_pointers(lengths)[1:]).any():
        raise PeerLost(f"rank {np.flatnonzero(at != row_pointers(lengths)[1:])[0]} sent a request of another length than its sizes say")
    return Requests(Selection(ids, row_pointers(sizes), vertices, n, names), rows, k, columns)


def to_places(q: Selection, layout: Layout, first: int = 0) -> Selection:
    """Replace the vertices of a selection by their places in the layout, minus `first`. Names stay."""
    return Selection(q.minibatches, q.pointers, layout.places(q.vertices) - np.int32(first), q.n, q.names)


def answer_rows(
    comm: Comm, ends: np.ndarray, columns: np.ndarray, asked: np.ndarray, rooms: np.ndarray, counts: np.ndarray, routed: RoutedSelection
) -> tuple[np.ndarray, np.ndarray]:
    """Send the picks of each requested row back in its room; return the picks of the own rows.

    Parameters
    ----------
    ends : int64, shape (rows of all requests + 1,)
        Row pointers of the picks.
    columns : int32, shape (ends[-1],)
    asked : int64, shape (rows of all requests,)
        The room of each requested row.
    rooms : int64, shape (R,)
        The room of each own row, in the order of `routed`.
    counts : int64, shape (size,)
        Rows that each rank requested.
    routed : RoutedSelection
        The own request.

    Returns
    -------
    Row pointers and picks in the order of the rows of the own selection.
    """
    sent = fill_rooms(asked, np.diff(ends), columns)
    found = comm.alltoall_rows(sent, run_sums(asked, counts), "topology", incoming=run_sums(rooms, routed.rows))
    drawn, used = read_rooms(rooms, found)
    pointers, picks = in_request_order(routed.order, RaggedRows(routed.rows, drawn, [found[used]]))
    return pointers, picks


class RaggedRows(NamedTuple):
    """Rows of different lengths from all ranks, one after another."""

    rows: np.ndarray  # int64, shape (size,): rows from each rank
    counts: np.ndarray  # integers, shape (sum of rows,): entries of each row
    arrays: list[np.ndarray]


class PendingRaggedRows:
    """Ragged rows under way. Call `wait` on each."""

    def __init__(self, pending: PendingRows, rows: np.ndarray, dtypes: list[np.dtype], counts: np.ndarray | None) -> None:
        self._pending, self._rows, self._dtypes, self._counts = pending, rows, dtypes, counts

    def wait(self) -> RaggedRows:
        """Return the received rows."""
        message, lengths = self._pending.wait(), self._pending.counts
        at, rows, counts = row_pointers(lengths)[:-1], self._rows, self._counts
        if counts is None:
            counts, at = unpack(message, at, rows), at + rows
        entries, arrays = run_sums(counts, rows), []
        for dtype in self._dtypes:
            arrays.append(unpack(message, at, entries, dtype))
            at = at + entries * (dtype.itemsize // 4)
        if (at != row_pointers(lengths)[1:]).any():
            rank = np.flatnonzero(at != row_pointers(lengths)[1:])[0]
            raise PeerLost(f"rank {rank} sent an answer of another length than its counts say")
        return RaggedRows(rows, counts, arrays)


def start_ragged_rows(
    comm: Comm, rows: np.ndarray, ends: np.ndarray, entries: list[np.ndarray], expected: np.ndarray, kind: str = "topology",
    counts: np.ndarray | None = None,
) -> PendingRaggedRows:  # fmt: skip
    """Begin to send consecutive rows of different lengths to each rank: one message to each.

    Parameters
    ----------
    rows : integers, shape (size,)
        Number of rows for each rank.
    ends : int64, shape (sum of rows + 1,)
        Row pointers.
    entries : arrays of 4-byte or 8-byte numbers, shape (ends[-1],)
    expected : integers, shape (size,)
        Number of rows that each rank will send to this one.
    counts : integers, shape (sum of expected,), optional
        Entries of each row that will come, where both sides know them: given on all ranks or on none. Then entries alone travel.
    """
    of_each, expected = np.diff(ends[row_pointers(rows)]), np.asarray(expected, np.int64)
    sections, incoming = [Section(array, of_each) for array in entries], None
    if counts is None:
        sections.insert(0, Section(np.diff(ends).astype(np.int32), np.asarray(rows, np.int64)))
    else:
        incoming = run_sums(counts, expected) * sum(array.itemsize // 4 for array in entries)
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, kind, incoming)
    return PendingRaggedRows(pending, expected, [array.dtype for array in entries], counts)


def exchange_ragged_rows(comm: Comm, rows: np.ndarray, ends: np.ndarray, entries: list[np.ndarray], expected: np.ndarray) -> RaggedRows:
    """Send consecutive rows of different lengths to each rank, and return those received; see `start_ragged_rows`."""
    return start_ragged_rows(comm, rows, ends, entries, expected).wait()


def in_request_order(order: np.ndarray, answers: RaggedRows) -> list[np.ndarray]:
    """Sort the answers to a `RoutedSelection` back into the order of its rows: row pointers, then each array."""
    own = np.empty(len(order), np.int64)
    own[order] = answers.counts
    ends = row_pointers(own)
    start = np.empty(len(order), np.int64)
    start[order] = row_pointers(answers.counts)[:-1]
    entry = runs(start, own)
    return [ends, *(array[entry] for array in answers.arrays)]


def merge_columns(answers: RaggedRows, rows: int) -> list[np.ndarray]:
    """Merge pieces of the same rows from all ranks: row pointers, then each array. The first array ascends within each row.

    Every rank has sent a piece of all `rows`, or of none.
    """
    row = np.repeat(runs(np.zeros(len(answers.rows)), answers.rows), answers.counts)
    columns = answers.arrays[0]
    order = np.argsort(row * (int(columns.max(initial=0)) + 1) + columns, kind="stable")  # ascending pieces: a merge
    return [row_pointers(np.bincount(row, minlength=rows)), *(array[order] for array in answers.arrays)]
