"""Messages of several sections, one for each rank, written and read without a loop over ranks.

    message for rank r:   section 0 | section 1 | ...        each with the entries of its array that are for rank r

A word has four bytes; an entry of eight bytes takes two. Requests for rows by their ids are such messages (`request_ids`). Rows of
different lengths travel in one of two forms:

    ragged:     entries of each row | arrays of the entries   4 bytes a row; 4 or 8 bytes an entry and array
    in slots:   each row, then -1                             both sides know the slot of a row (`reply_slots`), so no lengths go ahead
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...errors import PeerLost
from ...sparse import row_pointers, runs
from ..comm.base import Comm, Pending
from .reply_slots import fill_slots, read_slots


class Section(NamedTuple):
    """An array of 4-byte or 8-byte numbers and, for each rank, how many consecutive entries are for it: integers, shape (size,)."""

    entries: np.ndarray
    counts: np.ndarray

    @property
    def words(self) -> np.ndarray:
        """The entries as int32, shape (entries, 1 or 2)."""
        return np.ascontiguousarray(self.entries).view(np.int32).reshape(len(self.entries), self.entries.itemsize // 4)


def pack(sections: list[Section]) -> tuple[np.ndarray, np.ndarray]:
    """Return the messages for all ranks, one after another (int32), and the words of each (int64, shape (size,))."""
    words = [section.words for section in sections]
    sizes = [section.counts * part.shape[1] for section, part in zip(sections, words, strict=True)]
    if len(sections) == 1:
        return words[0].reshape(-1), np.asarray(sizes[0], np.int64)
    lengths = np.asarray(np.stack(sizes).sum(axis=0), np.int64)
    message, at = np.empty(int(lengths.sum()), np.int32), row_pointers(lengths)[:-1]
    for size, part in zip(sizes, words, strict=True):
        message[runs(at, size)] = part.reshape(-1)
        at = at + size
    return message, lengths


class MessageReader:
    """Reads the sections of all messages, one section after another; `lengths` are their words, and `starts` where they begin."""

    def __init__(self, message: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None = None) -> None:
        self._message, self._at = message, row_pointers(lengths)[:-1] if starts is None else starts
        self._ends = self._at + lengths

    def take(self, counts: np.ndarray, dtype: np.dtype | type = np.int32) -> np.ndarray:
        """Return the next section, ``counts[r]`` entries of message r, one message after another."""
        words = counts * (np.dtype(dtype).itemsize // 4)
        entries: np.ndarray = self._message[runs(self._at, words)].view(dtype)
        self._at = self._at + words
        return entries

    def finish(self, fault: str) -> None:
        """Raise `PeerLost` with the rank that sent `fault`, unless every message has been read to its end."""
        if len(wrong := np.flatnonzero(self._at != self._ends)):
            raise PeerLost(f"rank {wrong[0]} sent {fault}")


def run_sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum consecutive runs of the given lengths: int64."""
    return np.diff(row_pointers(values)[row_pointers(counts)])


class RowRequests(NamedTuple):
    """The ids that ranks request for one fetch."""

    expected: np.ndarray  # int64, shape (p,): rows that each rank sends to this one
    requested: np.ndarray  # int32, shape (w,), or (w, words): the ids that others request, in rank order; distinct for each rank
    requested_counts: np.ndarray  # int64, shape (p,): how many of them each rank requests


def request_ids(comm: Comm, bounds: np.ndarray, wanted: Sequence[np.ndarray]) -> list[RowRequests]:
    """Request rows from the ranks that hold them, and receive the requests of all ranks, one for each fetch; collective.

    All pass equally many fetches. Rank i holds the rows ``bounds[i]:bounds[i + 1]``. `wanted` are the distinct ids that this rank wants for
    each of W fetches, ascending: int32 of shape (m,), or (m, words) of which the first names a row. A request to one rank holds, in words
    of 4 bytes, how many ids are of each fetch but the last, then the ids of each fetch. It is empty if it names no row. So 4 bytes are sent
    for each word of an id and, if there are several fetches, 4 (W - 1) to each rank that is asked (kind "topology"); 8 bytes to each other
    rank for the lengths (kind "control"). Raises `PeerLost` if another rank has sent a request that does not add up.
    """
    words, fetches = int(np.prod(wanted[0].shape[1:])), len(wanted)
    wanted_counts = np.array([np.diff(np.searchsorted(ids.reshape(len(ids), words)[:, 0], bounds)) for ids in wanted])
    used = wanted_counts.sum(axis=0) > 0
    starts = row_pointers(wanted_counts.reshape(-1))[:-1].reshape(wanted_counts.shape)
    ids = np.concatenate(wanted).reshape(-1)[runs(words * starts.T.reshape(-1), words * wanted_counts.T.reshape(-1))]
    sections = [Section(ids, words * np.asarray(wanted_counts.sum(axis=0)))]
    if fetches > 1:
        sections.insert(0, Section(wanted_counts[:-1, used].T.astype(np.int32).reshape(-1), used * (fetches - 1)))
    pending = comm.start_alltoall_rows(*pack(sections), "topology")
    reader = MessageReader(pending.wait(), pending.counts)
    sizes = _sizes(reader, pending.counts, fetches, words)
    pairs = zip(wanted_counts, sizes.T, strict=True)
    return [RowRequests(expected, reader.take(words * of_each).reshape(-1, *wanted[0].shape[1:]), of_each) for expected, of_each in pairs]


def _sizes(reader: MessageReader, lengths: np.ndarray, fetches: int, words: int) -> np.ndarray:
    """Read how many ids each rank requests for each fetch: int64, shape (p, W)."""
    used, heads = lengths > 0, (lengths > 0) * (fetches - 1)
    named, rest = np.divmod(lengths - heads, words)
    if (lengths < heads).any():
        raise PeerLost(f"rank {np.flatnonzero(lengths < heads)[0]} sent a request that is shorter than its counts")
    if rest.any():
        raise PeerLost(f"rank {np.flatnonzero(rest)[0]} sent a request that ends within an id")
    sizes = np.zeros((len(lengths), fetches), np.int64)
    sizes[used, :-1] = reader.take(heads).reshape(np.count_nonzero(used), fetches - 1)
    sizes[:, -1] = named - sizes.sum(axis=1)
    if (sizes < 0).any():
        raise PeerLost(f"rank {np.flatnonzero((sizes < 0).any(axis=1))[0]} sent a request whose counts do not add up to its length")
    return sizes


class RaggedRows(NamedTuple):
    """Rows of different lengths from all ranks, one after another."""

    rows: np.ndarray  # int64, shape (size,): rows from each rank
    counts: np.ndarray  # integers, shape (sum of rows,): entries of each row
    arrays: list[np.ndarray]


class RowsToSend(NamedTuple):
    """Consecutive rows of different lengths for all ranks. Where both sides know the `counts` of rows to come, entries travel alone."""

    rows: np.ndarray  # integers, shape (size,): rows for each rank
    ends: np.ndarray  # int64, shape (sum of rows + 1,): row pointers
    arrays: Sequence[np.ndarray]  # numbers of 4 or 8 bytes, shape (ends[-1],), of the same dtypes on all ranks
    expected: np.ndarray  # integers, shape (size,): rows that each rank will send to this one
    counts: np.ndarray | None = None  # integers, shape (sum of expected,)


def start_ragged_rows(comm: Comm, parts: Sequence[RowsToSend], kind: str = "topology") -> Pending[list[RaggedRows]]:
    """Begin to send rows to each rank, one message to each with the rows of all parts; `wait` returns the received rows of each part."""
    sections, incoming = list[Section](), np.zeros(comm.size, np.int64)
    for part in parts:
        of_each = np.diff(part.ends[row_pointers(part.rows)])
        if part.counts is None:
            sections.append(Section(np.diff(part.ends).astype(np.int32), np.asarray(part.rows, np.int64)))
        else:
            incoming += run_sums(part.counts, part.expected) * sum(array.itemsize // 4 for array in part.arrays)
        sections += [Section(array, of_each) for array in part.arrays]
    known = all(part.counts is not None for part in parts)
    pending = comm.start_alltoall_rows(*pack(sections), kind, incoming if known else None)

    def receive() -> list[RaggedRows]:
        received, reader = list[RaggedRows](), MessageReader(pending.wait(), pending.counts)
        for part in parts:
            rows = np.asarray(part.expected, np.int64)
            counts = reader.take(rows) if part.counts is None else part.counts
            entries = run_sums(counts, rows)
            received.append(RaggedRows(rows, counts, [reader.take(entries, array.dtype) for array in part.arrays]))
        reader.finish("an answer of another length than its counts say")
        return received

    return Pending(receive)


def exchange_ragged_rows(comm: Comm, rows: np.ndarray, ends: np.ndarray, arrays: list[np.ndarray], expected: np.ndarray) -> RaggedRows:
    """Send consecutive rows of different lengths to each rank, and return those received; see `RowsToSend`."""
    return start_ragged_rows(comm, [RowsToSend(rows, ends, arrays, expected)]).wait()[0]


class ReplySlots(NamedTuple):
    """The slots of rows in replies: int64."""

    requested: np.ndarray  # of the rows that are requested of this rank
    own: np.ndarray  # of the rows that it requested, in the order of their owners


class Reply(NamedTuple):
    """The rows that ranks requested of this one, and what this rank requested of them."""

    ends: np.ndarray  # int64, shape (rows of all requests + 1,): row pointers
    arrays: Sequence[np.ndarray]  # shape (ends[-1],); in slots, the first one holds ids
    requested: np.ndarray  # int64, shape (size,): rows that each rank requested
    order: np.ndarray  # int64, shape (R,): the rows that this rank requested, sorted by owner
    expected: np.ndarray  # int64, shape (size,): how many of them each owner has
    slots: ReplySlots | None = None  # None if the lengths of rows travel

    def to_send(self) -> RowsToSend:
        """Return the rows as they travel."""
        if self.slots is None:
            return RowsToSend(self.requested, self.ends, self.arrays, self.expected)
        counts = np.diff(self.ends)
        filled = [fill_slots(self.slots.requested, counts, array) for array in self.arrays]
        return RowsToSend(self.requested, row_pointers(self.slots.requested), filled, self.expected, self.slots.own)

    def received(self, rows: RaggedRows) -> list[np.ndarray]:
        """Return the replies of others in the order in which this rank requested them: row pointers, then each array."""
        if self.slots is not None:
            counts, used = read_slots(rows.counts, rows.arrays[0])
            rows = RaggedRows(rows.rows, counts, [array[used] for array in rows.arrays])
        counts, starts = np.empty(len(self.order), np.int64), np.empty(len(self.order), np.int64)
        counts[self.order], starts[self.order] = rows.counts, row_pointers(rows.counts)[:-1]
        entry = runs(starts, counts)
        return [row_pointers(counts), *(array[entry] for array in rows.arrays)]


def exchange_replies(comm: Comm, replies: Sequence[Reply]) -> list[list[np.ndarray]]:
    """Send rows back to the ranks that requested them, and return for each request its replies; see `Reply.received`."""
    received = start_ragged_rows(comm, [reply.to_send() for reply in replies]).wait()
    return [reply.received(rows) for reply, rows in zip(replies, received, strict=True)]


def merge_columns(pieces: RaggedRows, rows: int) -> list[np.ndarray]:
    """Merge pieces of all `rows`, or of none, from each rank: row pointers, then each array. The first array ascends within each row."""
    row = np.repeat(runs(np.zeros(len(pieces.rows)), pieces.rows), pieces.counts)
    columns = pieces.arrays[0]
    order = np.argsort(row * (int(columns.max(initial=0)) + 1) + columns, kind="stable")  # ascending pieces: a merge
    return [row_pointers(np.bincount(row, minlength=rows)), *(array[order] for array in pieces.arrays)]
