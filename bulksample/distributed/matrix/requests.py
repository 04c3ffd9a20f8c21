"""Requests for rows of an adjacency: one message to each rank that owns rows. `messages` holds the replies. All are of kind "topology".

Of a plain graph, a request to one rank is, in words of 4 bytes, with k mini-batches of which it is for R rows:

    k | ids of the mini-batches | rows of each | the rows (| their names) (| columns of each | the columns)

Of a hop over several relations, let D run over the types in which relations end that draw in this hop:

    runs and rows of each D | of each D:  tree of each run | rows of each run (| ends) (| starts) | rows (| their names)

A run is rows of one tree and one window of time; an end or a start takes two words. A request that names no row is empty. Replies hold the
rows of each relation that draws, in slots or ragged; all ranks choose alike (`HopForm.of`). An entry or a time takes 2 words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.relation_draws import Frontier
from ...backends.relational import RelationLaw
from ...graph.selection import Selection
from ...sparse import row_pointers
from ..comm.base import Comm
from .layout import Layout
from .messages import MessageReader, Section, pack, run_sums
from .relation_blocks import HopRules, RelationFacts
from .reply_slots import Counted, RowLaw, is_padded


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
    owners, often = np.count_nonzero(used), used * k
    sections = [
        Section(np.full(owners, k, np.int32), used.astype(np.int64)),
        Section(np.tile(_words(q.minibatches), owners), often),
        Section(sizes[used].astype(np.int32).reshape(-1), often),
        Section(vertices, rows),
    ]
    if names is not None:
        sections.append(Section(names, rows))
    if columns is not None:
        sections.append(Section(np.tile(columns.sizes.astype(np.int32), owners), often))
        sections.append(Section(np.tile(columns.vertices, owners), used * len(columns.vertices)))
    reader, lengths = _sent(comm, sections)
    k_of = np.zeros(len(lengths), np.int64)
    k_of[lengths > 0] = reader.take((lengths > 0).astype(np.int64))
    ids, sizes_of = reader.take(k_of, np.uint32).astype(np.int64), reader.take(k_of)
    requested = run_sums(sizes_of, k_of)
    vertices, names = reader.take(requested), None if names is None else reader.take(requested)
    selected = None
    if columns is not None:
        of_each = reader.take(k_of)
        selected = Selection(ids, row_pointers(of_each), reader.take(run_sums(of_each, k_of)), q.n)
    reader.finish("a request of another length than its sizes say")
    return Requests(Selection(ids, row_pointers(sizes_of), vertices, q.n, names), requested, k_of, selected)


def _sent(comm: Comm, sections: list[Section]) -> tuple[MessageReader, np.ndarray]:
    """Send requests; return a reader of those received, and their lengths."""
    pending = comm.start_alltoall_rows(*pack(sections), "topology")
    return MessageReader(pending.wait(), pending.counts), pending.counts


def _words(minibatches: np.ndarray) -> np.ndarray:
    return minibatches.astype(np.uint32).view(np.int32)


def to_places(q: Selection, layout: Layout, first: int = 0) -> Selection:
    """Replace the vertices of a selection by their places in the layout, minus `first`. Names stay."""
    return Selection(q.minibatches, q.pointers, layout.places(q.vertices) - np.int32(first), q.n, q.names)


class DrawnRelation(NamedTuple):
    """A relation that draws in a hop."""

    place: int
    destination: int
    law: RowLaw
    longest: int  # edges of its longest row
    by_weight: bool  # edges of weight zero are not drawn
    padded: bool  # all rows have one slot
    sends_times: bool

    @property
    def width(self) -> int:
        """The most edges that a row draws."""
        return self.law.most_drawn(self.longest)

    @property
    def table(self) -> tuple[int, bool]:
        """The name of the counts of its rows."""
        return self.place, self.by_weight

    def slots(self, counts: np.ndarray) -> np.ndarray:
        """Return the slots of rows that may draw `counts` edges: int64."""
        return np.asarray(self.law.edges_drawn(counts), np.int64)


class HopForm(NamedTuple):
    """The form of the messages of a hop, the same on every rank."""

    types: tuple[int, ...]  # types whose rows are requested
    relations: tuple[DrawnRelation, ...]
    ragged: bool
    ends: bool
    starts: bool
    named: bool
    entries: bool

    @staticmethod
    def of(facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], rules: HopRules) -> HopForm:
        """Choose the form: ragged if rows draw from windows of time and are not padded, since a window may leave most of a slot empty.

        Else slots are padded to the longest row, or as long as each row draws: see `is_padded`.
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
        """Return the counts that slots need, given the block rows of each type."""
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


class RequestedRows(NamedTuple):
    """Rows of one type that all ranks request, in rank order."""

    frontier: Frontier
    rows: np.ndarray  # int64, shape (size,): from each rank


def request_hop(comm: Comm, form: HopForm, frontiers: Sequence[Frontier], routed: dict[int, RowRuns]) -> dict[int, RequestedRows]:
    """Send the rows of each type to their owners, and return what was requested of this rank, by type."""
    counts = np.stack([column for t in form.types for column in (routed[t].runs, routed[t].rows)], axis=1)
    used, width = counts.any(axis=1), counts.shape[1]
    sections = [Section(counts[used].astype(np.int32).reshape(-1), used * width)]
    for t in form.types:
        frontier, way = frontiers[t], routed[t]
        of_runs = way.order[way.firsts]
        sections.append(Section(_words(frontier.minibatches[of_runs]), way.runs))
        sections.append(Section(way.lengths, way.runs))
        sections += [Section(column[of_runs], way.runs) for column in (frontier.ends, frontier.starts) if column is not None]
        sections.append(Section(frontier.vertices[way.order], way.rows))
        if form.named:
            sections.append(Section(frontier.names[way.order], way.rows))
    reader, lengths = _sent(comm, sections)
    counts = np.zeros((len(lengths), width), np.int64)
    counts[lengths > 0] = reader.take((lengths > 0) * width).reshape(-1, width)
    out = {}
    for t, runs, rows in zip(form.types, counts[:, ::2].T, counts[:, 1::2].T, strict=True):
        words, each = reader.take(runs, np.uint32).astype(np.int64), reader.take(runs)
        ends, starts = (np.repeat(reader.take(runs, np.int64), each) if there else None for there in (form.ends, form.starts))
        vertices = reader.take(rows)
        names = reader.take(rows) if form.named else vertices
        out[t] = RequestedRows(Frontier(vertices, names, np.repeat(words, each), starts, ends), rows)
    reader.finish("a request of another length than its counts say")
    return out
