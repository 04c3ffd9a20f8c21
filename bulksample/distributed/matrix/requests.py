"""Requests for rows of an adjacency: one message to each rank that owns rows. `messages` holds the replies. All are of kind "topology".

Of a plain graph, a request to one rank is, in words of 4 bytes, with k mini-batches of which it is for R rows:

    k | ids of the mini-batches | rows of each | the rows (| their names) (| columns of each | the columns)

Of a hop over several relations, let D run over the types in which relations end that draw in this hop:

    runs and rows of each D | of each D:  tree of each run | rows of each run (| ends) (| starts) | rows (| their names)

A run is rows of one tree and one window of time; an end or a start takes two words. The runs of a plain graph are its mini-batches, also
those without a row. A request that names no row is empty. Replies hold the rows of each relation that draws, in slots or ragged; all ranks
choose alike (`HopForm.of`). An entry or a time takes 2 words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...adjacency import By
from ...backends.relation_draws import Frontier
from ...backends.relational import RelationLaw
from ...errors import PeerLost
from ...graph.selection import Selection
from ...sparse import row_pointers
from ..comm.base import Comm
from .layout import Layout
from .messages import MessageReader, Section, pack, run_sums
from .reply_slots import Counted, RowLaw, is_padded


class Runs(NamedTuple):
    """Rows of one type for each rank, or from each, cut into runs of one mini-batch or tree and one window of time."""

    counts: np.ndarray  # int64, shape (size,): runs
    rows: np.ndarray  # int64, shape (size,)
    ids: np.ndarray  # int64, shape (all runs,): the mini-batch or the tree
    lengths: np.ndarray  # int32, shape (all runs,): rows of each
    windows: Sequence[np.ndarray]  # int64, shape (all runs,) each: the ends and the starts, as far as there are any
    vertices: np.ndarray  # int32, shape (R,)
    names: np.ndarray | None = None  # int32, shape (R,)

    def sections(self) -> list[Section]:
        """Return the sections of messages in which they travel."""
        ids, names = self.ids.astype(np.uint32).view(np.int32), [] if self.names is None else [self.names]
        of_runs = [Section(column, self.counts) for column in (ids, self.lengths, *self.windows)]
        return of_runs + [Section(column, self.rows) for column in (self.vertices, *names)]


class RoutedRows(NamedTuple):
    """The rows of a selection or a frontier, grouped by owner."""

    order: np.ndarray  # int64, shape (R,): rows of the selection sorted by owner, stable
    runs: Runs


class RequestedRows(NamedTuple):
    """Rows of one type that all ranks request, in rank order."""

    frontier: Frontier
    rows: np.ndarray  # int64, shape (size,): from each rank


class Requests(NamedTuple):
    """The requests of all ranks, stacked in rank order."""

    rows: Selection
    counts: np.ndarray  # int64, shape (size,): rows from each rank
    minibatches: np.ndarray  # int64, shape (size,): mini-batches from each rank
    columns: Selection | None = None


def route(q: Selection, layout: Layout) -> RoutedRows:
    """Group the rows of a selection by owner: a counting sort."""
    owner = layout.blocks_of(q.vertices)
    sizes = np.bincount(owner * len(q) + q.minibatch_of_row(), minlength=layout.blocks * len(q))
    small = owner.astype(np.uint16) if layout.blocks < 2**16 else owner  # numpy sorts short integers by counting
    return _routed(q, np.argsort(small, kind="stable"), sizes.reshape(layout.blocks, len(q)))


def _routed(q: Selection, order: np.ndarray, sizes: np.ndarray) -> RoutedRows:
    """Return rows in the order of their owners, of which owner r has ``sizes[r, j]`` of mini-batch j."""
    rows = np.asarray(sizes.sum(axis=1))
    used, names = rows > 0, None if q.own_names is None else q.own_names[order]
    ids = np.tile(q.minibatches, np.count_nonzero(used))
    return RoutedRows(order, Runs(used * len(q), rows, ids, sizes[used].astype(np.int32).reshape(-1), (), q.vertices[order], names))


def request_rows(comm: Comm, q: Selection, routed: RoutedRows, columns: Selection | None = None) -> Requests:
    """Send each row to its owner, with `columns` of the same mini-batches; return what came. Rows have names on all ranks or on none."""
    runs, more = routed.runs, list[Section]()
    if columns is not None:
        used = runs.rows > 0
        copies = np.count_nonzero(used)
        more.append(Section(np.tile(columns.sizes.astype(np.int32), copies), runs.counts))
        more.append(Section(np.tile(columns.vertices, copies), used * len(columns.vertices)))
    reader, _, (got,) = _exchange(comm, [runs], runs.counts[:, None], more)
    selected = None
    if columns is not None:
        of_each = reader.take(got.counts)
        selected = Selection(got.ids, row_pointers(of_each), reader.take(run_sums(of_each, got.counts)), q.n)
    reader.finish("a request of another length than its sizes say")
    return Requests(Selection(got.ids, row_pointers(got.lengths), got.vertices, q.n, got.names), got.rows, got.counts, selected)


def request_from_all(comm: Comm, q: Selection) -> Requests:
    """Send the whole selection to every rank; return what was received."""
    order = np.tile(np.arange(len(q.vertices)), comm.size)
    return request_rows(comm, q, _routed(q, order, np.broadcast_to(q.sizes, (comm.size, len(q)))))


def _exchange(
    comm: Comm, sent: Sequence[Runs], heads: np.ndarray, more: Sequence[Section] = ()
) -> tuple[MessageReader, np.ndarray, list[Runs]]:
    """Send the runs of each type to the ranks that are asked for a row, behind `heads` (integers, shape (size, words)).

    A word of `heads` holds the runs of each type, and words may follow it. Returns a reader of what follows the runs of others, their heads
    and their runs.
    """
    used, width = np.any([runs.rows for runs in sent], axis=0), heads.shape[1]
    head = Section(heads[used].astype(np.int32).reshape(-1), used * width)
    pending = comm.start_alltoall_rows(*pack([head, *(part for runs in sent for part in runs.sections()), *more]), "topology")
    reader, all_heads = MessageReader(pending.wait(), pending.counts), np.zeros((comm.size, width), np.int64)
    all_heads[pending.counts > 0] = reader.take((pending.counts > 0) * width).reshape(-1, width)
    received = []
    for runs, counts in zip(sent, all_heads[:, :: width // len(sent)].T, strict=True):
        ids, lengths = reader.take(counts, np.uint32).astype(np.int64), reader.take(counts)
        windows, rows = [reader.take(counts, np.int64) for _ in runs.windows], run_sums(lengths, counts)
        vertices = reader.take(rows)
        received.append(Runs(counts, rows, ids, lengths, windows, vertices, None if runs.names is None else reader.take(rows)))
    return reader, all_heads, received


def to_places(q: Selection, layout: Layout, first: int = 0) -> Selection:
    """Replace the vertices of a selection by their places in the layout, minus `first`. Names stay."""
    return Selection(q.minibatches, q.pointers, layout.places(q.vertices) - np.int32(first), q.n, q.names)


class RelationFacts(NamedTuple):
    """A relation as all ranks know it."""

    source: int  # the place of its source type
    destination: int
    rows: int  # of the whole adjacency
    edges: int
    longest: int  # edges of the longest row
    timed: bool  # its edges have times that count
    weighted: bool


class HopRules(NamedTuple):
    """The rules of a draw that hold in all hops of a bulk, the same on every rank."""

    by: By | None
    ends: bool  # windows of time have ends
    starts: bool
    moving: bool  # the end of a window moves with the walk
    entries: bool  # positions of edges in their adjacencies are asked for


class DrawnRelation(NamedTuple):
    """A relation that draws in a hop."""

    place: int
    destination: int
    law: RowLaw
    longest: int  # edges of its longest row
    by_weight: bool  # edges of weight zero are not drawn
    padded: bool  # all rows have one slot
    sends_times: bool  # with what it draws
    edge_times: bool  # its edges have times of their own, and these count

    @property
    def width(self) -> int:
        """The most edges that a row draws."""
        return self.law.most_drawn(self.longest)

    @property
    def table(self) -> tuple[int, bool]:
        """The name of the counts of its rows."""
        return self.place, self.by_weight


class HopForm(NamedTuple):
    """The form of the messages of a hop, the same on every rank: of requests and replies, or of the rows that travel."""

    types: tuple[int, ...]  # types whose rows are requested
    relations: tuple[DrawnRelation, ...]
    ragged: bool
    rules: HopRules

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
            times = rules.moving and fact.timed, rules.by == "edges" and fact.timed
            drawn.append(DrawnRelation(place, fact.destination, law, fact.longest, by_weight, padded, *times))
        types = tuple(sorted({one.destination for one in drawn}))
        return HopForm(types, tuple(drawn), ragged, rules)

    def into(self, kind: int) -> list[DrawnRelation]:
        """Return the relations that end in a type."""
        return [relation for relation in self.relations if relation.destination == kind]

    def counted(self, layouts: Sequence[Layout]) -> list[Counted]:
        """Return the counts that slots need, given the block rows of each type."""
        if self.ragged:
            return []
        return [
            Counted(one.table, layouts[one.destination], one.law.width_of_counts(one.longest)) for one in self.relations if not one.padded
        ]


def route_rows(frontier: Frontier, layout: Layout, named: bool = False) -> RoutedRows:
    """Order the rows of a frontier by owner and tree, and where windows move by window too."""
    owner = layout.blocks_of(frontier.vertices)
    windows = [column for column in (frontier.starts, frontier.ends) if column is not None]
    order = np.lexsort((*windows, frontier.minibatches, owner))
    new = np.ones(len(order), bool)
    keys = [column[order] for column in (owner, frontier.minibatches, *windows)]
    new[1:] = np.any([column[1:] != column[:-1] for column in keys], axis=0)
    firsts = np.flatnonzero(new)
    rows, runs = (np.bincount(some, minlength=layout.blocks) for some in (owner, keys[0][firsts]))
    lengths, names = np.diff(firsts, append=len(order)).astype(np.int32), frontier.names[order] if named else None
    ids, *windows = (column[firsts] for column in (keys[1], *reversed(keys[2:])))
    return RoutedRows(order, Runs(runs, rows, ids, lengths, windows, frontier.vertices[order], names))


def request_hop(comm: Comm, form: HopForm, routed: dict[int, RoutedRows]) -> dict[int, RequestedRows]:
    """Send the rows of each type to their owners, and return what was requested of this rank, by type."""
    sent = [routed[t].runs for t in form.types]
    reader, heads, received = _exchange(comm, sent, np.stack([column for runs in sent for column in (runs.counts, runs.rows)], axis=1))
    reader.finish("a request of another length than its counts say")
    if wrong := np.flatnonzero((heads[:, 1::2] != np.stack([runs.rows for runs in received], axis=1)).any(axis=1)).tolist():
        raise PeerLost(f"rank {wrong[0]} sent a request of other rows than its counts say")
    out = {}
    for t, runs in zip(form.types, received, strict=True):
        windows = [np.repeat(column, runs.lengths) for column in runs.windows]
        ends, starts = windows.pop(0) if form.rules.ends else None, windows.pop(0) if form.rules.starts else None
        names = runs.vertices if runs.names is None else runs.names
        out[t] = RequestedRows(Frontier(runs.vertices, names, np.repeat(runs.ids, runs.lengths), starts, ends), runs.rows)
    return out
