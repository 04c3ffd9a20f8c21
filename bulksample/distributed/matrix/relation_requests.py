"""Exchange the rows of a hop over all relations: one request to each rank that owns rows, and one answer back.

Let D run over the types in which relations end that draw in this hop. A request to one rank, in words of 4 bytes:

    runs and rows of each D | of each D:  tree of each run | rows of each run (| ends) (| starts) | rows (| their names)

A run is rows of one tree and one window of time; an end or a start takes two words. A message is empty if it asks for no row. The answer
has one of two forms, which all ranks choose alike (`HopForm.of`), with r over the relations that draw:

    padded: of each r, w_r words a row, sources and then -1  (| 2 w_r, entries) (| 2 w_r, times)       its length is known
    ragged: of each r, the edges of each row | sources       (| entries) (| times)                     2 words an entry or a time

All of it is of kind "topology".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.relational import RelationLaw
from ...errors import PeerLost
from ...relations.draw import Frontier, RowPicks
from ...rng import Law
from ...sparse import row_pointers
from ..comm.base import Comm
from .layout import Layout
from .packed_messages import Section, pack, unpack
from .selection_exchange import MOST_PADDED, RaggedRows, in_request_order


class RelationFacts(NamedTuple):
    """A relation as all ranks know it."""

    source: int  # the place of its source type
    destination: int
    rows: int  # of the whole adjacency
    edges: int
    longest: int  # edges of the longest row
    timed: bool  # its edges have times that count


class DrawnRelation(NamedTuple):
    """A relation that draws in a hop."""

    place: int
    destination: int
    width: int  # the most edges that a row draws
    sends_times: bool


class HopForm(NamedTuple):
    """The form of the messages of a hop, the same on every rank."""

    types: tuple[int, ...]  # types whose rows are asked for
    relations: tuple[DrawnRelation, ...]
    padded: bool
    ends: bool
    starts: bool
    named: bool
    entries: bool

    @staticmethod
    def of(
        facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], ends: bool, starts: bool, moving: bool, entries: bool
    ) -> HopForm:  # fmt: skip
        """Choose the form: padded if no row has more than 32 edges, and each type at most twice as many words as on average in the other.

        Times lower the number of edges in a window, of which this choice knows nothing.
        """
        drawn, room, used = [], dict[int, int](), dict[int, float]()
        for place, (fact, law) in enumerate(zip(facts, laws, strict=True)):
            width = most_drawn(fact.longest, law)
            if not width:
                continue
            drawn.append(DrawnRelation(place, fact.destination, width, moving and fact.timed))
            room[fact.destination] = room.get(fact.destination, 0) + width
            used[fact.destination] = used.get(fact.destination, 0.0) + 1 + fact.edges / max(1, fact.rows)
        padded = all(one.width <= MOST_PADDED for one in drawn) and all(room[t] <= 2 * used[t] for t in room)
        return HopForm(tuple(sorted(room)), tuple(drawn), padded, ends, starts, moving, entries)

    @property
    def words_of_run(self) -> int:
        """Words that a request takes for a run, beside its rows."""
        return 2 + 2 * self.ends + 2 * self.starts

    def words_of_edge(self, relation: DrawnRelation) -> int:
        """Words that an answer takes for an edge."""
        return 1 + 2 * self.entries + 2 * relation.sends_times


def most_drawn(longest: int, law: RelationLaw) -> int:
    """Return the most edges that a row draws, if the longest has so many."""
    if law.fanout < 0 or not longest:
        return longest
    with_replacement = law.draw.law in (Law.REPLACEMENT, Law.WEIGHTED) and not law.last
    return law.fanout if with_replacement else min(law.fanout, longest)


class RowRuns(NamedTuple):
    """The rows of one type in the order of their owners, cut into runs of one tree and one window."""

    order: np.ndarray  # int64, shape (R,): rows of the frontier
    rows: np.ndarray  # int64, shape (owners,)
    runs: np.ndarray  # int64, shape (owners,)
    firsts: np.ndarray  # int64, shape (all runs,): the first of the ordered rows of each run
    lengths: np.ndarray  # int32, shape (all runs,)


def route_rows(frontier: Frontier, layout: Layout) -> RowRuns:
    """Order the rows of a frontier by owner and tree, and where windows move by window too."""
    owner = layout.blocks_of(frontier.vertices)
    windows = [column for column in (frontier.starts, frontier.ends) if column is not None]
    order = np.lexsort((*windows, frontier.minibatches, owner))
    new = np.ones(len(order), bool)
    keys = [column[order] for column in (owner, frontier.minibatches, *windows)]
    new[1:] = np.any([column[1:] != column[:-1] for column in keys], axis=0)
    firsts = np.flatnonzero(new)
    lengths = np.diff(firsts, append=len(order)).astype(np.int32)
    rows, runs = (np.bincount(some, minlength=layout.blocks) for some in (owner, keys[0][firsts]))
    return RowRuns(order, rows, runs, firsts, lengths)


class AskedRows(NamedTuple):
    """Rows of one type that all ranks ask for, in rank order."""

    frontier: Frontier
    rows: np.ndarray  # int64, shape (size,): from each rank


def exchange_requests(comm: Comm, form: HopForm, frontiers: Sequence[Frontier], routed: dict[int, RowRuns]) -> dict[int, AskedRows]:
    """Send the rows of each type to their owners, and return what was asked of this rank, by type."""
    counts = np.stack([column for t in form.types for column in (routed[t].runs, routed[t].rows)], axis=1)
    used = counts.any(axis=1)
    sections = [Section(counts[used].astype(np.int32).reshape(-1), used * counts.shape[1])]
    for t in form.types:
        frontier, way = frontiers[t], routed[t]
        of_runs = way.order[way.firsts]
        sections.append(Section(frontier.minibatches[of_runs].astype(np.uint32).view(np.int32), way.runs))
        sections.append(Section(way.lengths, way.runs))
        sections += [Section(column[of_runs], way.runs) for column in (frontier.ends, frontier.starts) if column is not None]
        sections.append(Section(frontier.vertices[way.order], way.rows))
        if form.named:
            sections.append(Section(frontier.names[way.order], way.rows))
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, "topology")
    return _asked(form, pending.wait(), pending.counts)


def _asked(form: HopForm, message: np.ndarray, lengths: np.ndarray) -> dict[int, AskedRows]:
    used, width = lengths > 0, 2 * len(form.types)
    at = row_pointers(lengths)[:-1]
    counts = np.zeros((len(lengths), width), np.int64)
    counts[used] = unpack(message, at, used * width).reshape(-1, width)
    at, out = at + used * width, {}
    for place, t in enumerate(form.types):
        runs, rows = counts[:, 2 * place], counts[:, 2 * place + 1]
        words, at = unpack(message, at, runs, np.uint32).astype(np.int64), at + runs
        each, at = unpack(message, at, runs), at + runs
        windows: list[np.ndarray | None] = []
        for there in (form.ends, form.starts):
            windows.append(np.repeat(unpack(message, at, runs, np.int64), each) if there else None)
            at = at + 2 * runs * there
        vertices, at = unpack(message, at, rows), at + rows
        names = vertices
        if form.named:
            names, at = unpack(message, at, rows), at + rows
        ends, starts = windows
        out[t] = AskedRows(Frontier(vertices, names, np.repeat(words, each), starts, ends), rows)
    _check_lengths(at, lengths, "request")
    return out


def exchange_answers(
    comm: Comm, form: HopForm, drawn: Sequence[RowPicks], asked: dict[int, AskedRows], routed: dict[int, RowRuns]
) -> list[RowPicks]:  # fmt: skip
    """Send the draws of each relation back to the ranks that asked; return those of the own rows, in the order of the frontiers."""
    sections, expected = list[Section](), np.zeros(comm.size, np.int64)
    for relation, picks in zip(form.relations, drawn, strict=True):
        sections += _answer(form, relation, picks, asked[relation.destination].rows)
        expected += routed[relation.destination].rows * relation.width * form.words_of_edge(relation)
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, "topology", expected if form.padded else None)
    message, lengths = pending.wait(), pending.counts
    at, out = row_pointers(lengths)[:-1], []
    for relation in form.relations:
        take = _padded if form.padded else _ragged
        picks, at = take(form, relation, message, at, routed[relation.destination])
        out.append(picks)
    _check_lengths(at, lengths, "answer")
    return out


def _answer(form: HopForm, relation: DrawnRelation, picks: RowPicks, rows: np.ndarray) -> list[Section]:
    counts = np.diff(picks.pointers)
    columns = [picks.columns, *([picks.entries] if form.entries else []), *([picks.times] if relation.sends_times else [])]
    arrays = [column for column in columns if column is not None]
    if not form.padded:
        of_each = np.diff(picks.pointers[row_pointers(rows)])
        return [Section(counts.astype(np.int32), rows), *(Section(array, of_each) for array in arrays)]
    used, sections = np.arange(relation.width) < counts[:, None], []
    for array in arrays:
        padded = np.full(used.shape, -1, array.dtype)
        padded[used] = array
        sections.append(Section(padded.reshape(-1), rows * relation.width))
    return sections


def _dtypes(form: HopForm, relation: DrawnRelation) -> list[type]:
    return [np.int32, *([np.int64] * form.entries), *([np.int64] * relation.sends_times)]


def _picks(form: HopForm, relation: DrawnRelation, pointers: np.ndarray, arrays: list[np.ndarray]) -> RowPicks:
    return RowPicks(pointers, arrays[0], arrays[1] if form.entries else None, arrays[-1] if relation.sends_times else None)


def _padded(
    form: HopForm, relation: DrawnRelation, message: np.ndarray, at: np.ndarray, way: RowRuns
) -> tuple[RowPicks, np.ndarray]:  # fmt: skip
    """Read the padded answers of a relation; return its draws, and where the next one begins."""
    found, counts = [], way.rows * relation.width
    for dtype in _dtypes(form, relation):
        own: np.ndarray = np.empty((len(way.order), relation.width), dtype)
        own[way.order] = unpack(message, at, counts, dtype).reshape(own.shape)
        found.append(own)
        at = at + counts * (own.itemsize // 4)
    used = found[0] >= 0
    return _picks(form, relation, row_pointers(np.count_nonzero(used, axis=1)), [own[used] for own in found]), at


def _ragged(
    form: HopForm, relation: DrawnRelation, message: np.ndarray, at: np.ndarray, way: RowRuns
) -> tuple[RowPicks, np.ndarray]:  # fmt: skip
    """Read the ragged answers of a relation; see `_padded`."""
    counts, at = unpack(message, at, way.rows), at + way.rows
    edges, arrays = np.diff(row_pointers(counts)[row_pointers(way.rows)]), []
    for dtype in _dtypes(form, relation):
        arrays.append(unpack(message, at, edges, dtype))
        at = at + edges * (np.dtype(dtype).itemsize // 4)
    pointers, *own = in_request_order(way.order, RaggedRows(way.rows, counts, arrays))
    return _picks(form, relation, pointers, own), at


def _check_lengths(at: np.ndarray, lengths: np.ndarray, what: str) -> None:
    wrong = np.flatnonzero(at != row_pointers(lengths)[1:])
    if len(wrong):
        raise PeerLost(f"rank {wrong[0]} sent a {what} of another length than its counts say")
