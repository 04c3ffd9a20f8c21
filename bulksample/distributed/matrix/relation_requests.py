"""Exchange the rows of a hop over all relations: one request to each rank that owns rows, and one answer back.

Let D run over the types in which relations end that draw in this hop. A request to one rank, in words of 4 bytes:

    runs and rows of each D | of each D:  tree of each run | rows of each run (| ends) (| starts) | rows (| their names)

A run is rows of one tree and one window of time; an end or a start takes two words. A message is empty if it asks for no row. The answer
has one of two forms, which all ranks choose alike (`HopForm.of`), with r over the relations that draw:

    in rooms: of each r, sources and then -1 in the room of each row  (| entries) (| times)       its length is known (`answer_rooms`)
    ragged:   of each r, the edges of each row | sources              (| entries) (| times)       2 words an entry or a time

All of it is of kind "topology".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.relational import RelationLaw
from ...errors import PeerLost
from ...relations.draw import Frontier, RowPicks
from ...sparse import row_pointers
from ..comm.base import Comm
from .answer_rooms import Counted, RowLaw, fill_rooms, is_padded, read_rooms
from .layout import Layout
from .packed_messages import Section, pack, run_sums, unpack
from .relation_blocks import HopRules, RelationFacts
from .selection_exchange import RaggedRows, in_request_order


class DrawnRelation(NamedTuple):
    """A relation that draws in a hop."""

    place: int
    destination: int
    law: RowLaw
    longest: int  # edges of its longest row
    by_weight: bool  # edges of weight zero are not drawn
    padded: bool  # all rows have one room
    sends_times: bool

    @property
    def width(self) -> int:
        """The most edges that a row draws."""
        return self.law.most_drawn(self.longest)

    @property
    def table(self) -> tuple[int, bool]:
        """The name of the counts of its rows."""
        return self.place, self.by_weight

    def rooms(self, counts: np.ndarray) -> np.ndarray:
        """Return the rooms of rows that may draw `counts` edges: int64."""
        return np.asarray(self.law.edges_drawn(counts), np.int64)


class HopForm(NamedTuple):
    """The form of the messages of a hop, the same on every rank."""

    types: tuple[int, ...]  # types whose rows are asked for
    relations: tuple[DrawnRelation, ...]
    ragged: bool
    ends: bool
    starts: bool
    named: bool
    entries: bool

    @staticmethod
    def of(facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], rules: HopRules) -> HopForm:
        """Choose the form: ragged if rows draw from windows of time and are not padded, since a window may leave most of a room empty.

        Else rooms are padded to the longest row, or as long as each row draws: see `is_padded`.
        """
        drawn, ragged = [], False
        for place, (fact, law) in enumerate(zip(facts, map(RowLaw.of, laws), strict=True)):
            width = law.most_drawn(fact.longest)
            if not width:
                continue
            padded = is_padded(width, fact.edges, fact.rows)
            ragged |= fact.timed and (rules.ends or rules.starts) and not padded
            by_weight = fact.weighted and law.reads_weights
            drawn.append(DrawnRelation(place, fact.destination, law, fact.longest, by_weight, padded, rules.moving and fact.timed))
        types = tuple(sorted({one.destination for one in drawn}))
        return HopForm(types, tuple(drawn), ragged, rules.ends, rules.starts, rules.moving, rules.entries)

    def counted(self, layouts: Sequence[Layout]) -> list[Counted]:
        """Return the counts that rooms need, given the block rows of each type."""
        if self.ragged:
            return []
        return [
            Counted(one.table, layouts[one.destination], one.law.width_of_counts(one.longest)) for one in self.relations if not one.padded
        ]

    @property
    def words_of_run(self) -> int:
        """Words that a request takes for a run, beside its rows."""
        return 2 + 2 * self.ends + 2 * self.starts

    def words_of_edge(self, relation: DrawnRelation) -> int:
        """Words that an answer takes for an edge."""
        return 1 + 2 * self.entries + 2 * relation.sends_times


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


class Rooms(NamedTuple):
    """The rooms of rows of a relation in an answer."""

    asked: np.ndarray  # int64: of the rows that are asked of this rank
    own: np.ndarray  # int64: of its own rows, in the order of `RowRuns`


def exchange_answers(
    comm: Comm, form: HopForm, drawn: Sequence[RowPicks], rooms: Sequence[Rooms | None], asked: dict[int, AskedRows],
    routed: dict[int, RowRuns],
) -> list[RowPicks]:  # fmt: skip
    """Send the draws of each relation back to the ranks that asked; return those of the own rows, in the order of the frontiers.

    `rooms` are those of each relation, or None if the form is ragged.
    """
    sections, expected = list[Section](), np.zeros(comm.size, np.int64)
    for relation, picks, room in zip(form.relations, drawn, rooms, strict=True):
        sections += _answer(form, relation, picks, room, asked[relation.destination].rows)
        if room:
            expected += form.words_of_edge(relation) * run_sums(room.own, routed[relation.destination].rows)
    message, lengths = pack(sections)
    pending = comm.start_alltoall_rows(message, lengths, "topology", None if form.ragged else expected)
    message, lengths = pending.wait(), pending.counts
    at, out = row_pointers(lengths)[:-1], []
    for relation, room in zip(form.relations, rooms, strict=True):
        picks, at = _read(form, relation, message, at, routed[relation.destination], room)
        out.append(picks)
    _check_lengths(at, lengths, "answer")
    return out


def _answer(form: HopForm, relation: DrawnRelation, picks: RowPicks, room: Rooms | None, rows: np.ndarray) -> list[Section]:
    counts = np.diff(picks.pointers)
    columns = [picks.columns, *([picks.entries] if form.entries else []), *([picks.times] if relation.sends_times else [])]
    arrays = [column for column in columns if column is not None]
    if room:
        of_each = run_sums(room.asked, rows)
        return [Section(fill_rooms(room.asked, counts, array), of_each) for array in arrays]
    of_each = run_sums(counts, rows)
    return [Section(counts.astype(np.int32), rows), *(Section(array, of_each) for array in arrays)]


def _dtypes(form: HopForm, relation: DrawnRelation) -> list[type]:
    return [np.int32, *([np.int64] * form.entries), *([np.int64] * relation.sends_times)]


def _read(
    form: HopForm, relation: DrawnRelation, message: np.ndarray, at: np.ndarray, way: RowRuns, room: Rooms | None
) -> tuple[RowPicks, np.ndarray]:
    """Read the answers of a relation; return its draws, and where the next one begins."""
    if room:
        counts = room.own
    else:
        counts, at = unpack(message, at, way.rows), at + way.rows
    edges, arrays = run_sums(counts, way.rows), []
    for dtype in _dtypes(form, relation):
        arrays.append(unpack(message, at, edges, dtype))
        at = at + edges * (np.dtype(dtype).itemsize // 4)
    if room:
        counts, used = read_rooms(room.own, arrays[0])
        arrays = [array[used] for array in arrays]
    pointers, *own = in_request_order(way.order, RaggedRows(way.rows, counts, arrays))
    return RowPicks(pointers, own[0], own[1] if form.entries else None, own[-1] if relation.sends_times else None), at


def _check_lengths(at: np.ndarray, lengths: np.ndarray, what: str) -> None:
    wrong = np.flatnonzero(at != row_pointers(lengths)[1:])
    if len(wrong):
        raise PeerLost(f"rank {wrong[0]} sent a {what} of another length than its counts say")
