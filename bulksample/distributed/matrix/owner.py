"""The `owner` policy: the owner of a row draws from it, and the owner of a column range adds up its columns. Only picks travel.

Node-wise: requests for rows go to their owners in the process column, and at most s picks a row come back: three collectives, one of them
the lengths of the requests; those of replies are known (`reply_slots`). Layer-wise: every member of the column holds its own range of
columns over all rows, so its column sums are complete. The s + 1 smallest keys of each range contain the s + 1 smallest of all. Before and
after, each rank holds its block row, its column block (made in the first layer-wise call), a count of each row if replies are not padded,
and its own mini-batches.

Relations: the rows of a frontier travel as (tree, window, vertex), and the owner of a row draws from it in all relations. A hop of all
relations takes the three collectives. Replies of rows that draw from windows of time and are not padded have unknown lengths: they take a
fourth.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Literal, cast

import numpy as np

from ...adjacency import Entries, KeptEdges, race_weights
from ...backends.base import Backend, Picks, check_fanout
from ...backends.layer_draws import LayerPicks
from ...backends.relation_draws import Frontier, draw_rows
from ...backends.relational import RelationLaw, RowPicks
from ...graph import Graph
from ...graph.selection import Selection
from ...rng import Draw
from ...sparse import CSR, row_pointers
from ..comm.base import Comm
from .block_rows import BlockRowAdjacency
from .grid import ProcessGrid
from .layout import Layout, TypeLayouts
from .messages import Reply, ReplySlots, exchange_ragged_rows, exchange_replies, merge_columns
from .relation_blocks import PartitionedRelations, RelationBlock
from .reply_slots import Counted, RowCounts, RowLaw, count_drawable, is_padded
from .requests import (
    DrawnRelation,
    HopForm,
    RequestedRows,
    Requests,
    RoutedRows,
    request_from_all,
    request_hop,
    request_rows,
    route,
    route_rows,
    to_places,
)


class OwnerAdjacency(BlockRowAdjacency):
    """An adjacency in block rows that sends requests to the owners of rows."""

    def __init__(self, grid: ProcessGrid, block: CSR, backend: Backend, layout: Layout | None = None) -> None:
        super().__init__(grid, block, backend, layout)
        self._own = self.layout.members(grid.row)
        self._column_blocks: dict[Entries, CSR] = {}
        self._all_entries: int | None = None
        self._longest: int | None = None  # row
        self._counts = RowCounts(grid.column_comm)

    @property
    def gathered_bytes(self) -> int:
        return self._counts.nbytes + sum(block.nbytes() for block in self._column_blocks.values())

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        """Send each row to its owner (4 bytes, or 8 with names); receive 4 s bytes a row if replies are padded, or else 4 bytes a pick."""
        check_fanout(fanout)
        routed, law = route(q, self.layout), RowLaw(fanout, draw.law)
        expected = self.slots(routed.runs.vertices, law)
        requests = request_rows(self._column, q, routed)
        rows = to_places(requests.rows, self.layout, self.first)
        picks = self.backend.sample_rows(self.block, rows, fanout, draw)
        slots = ReplySlots(self.slots(requests.rows.vertices, law), expected)
        return Picks(*self._replies(requests, routed, picks.pointers, [picks.columns], slots))

    def _replies(
        self, requests: Requests, routed: RoutedRows, ends: np.ndarray, arrays: list[np.ndarray], slots: ReplySlots | None = None
    ) -> list[np.ndarray]:
        """Send rows back to the ranks that requested them; return row pointers and arrays in the order of the own rows."""
        return exchange_replies(self._column, [Reply(ends, arrays, requests.counts, routed.order, routed.runs.rows, slots)])[0]

    def slots(self, vertices: np.ndarray, law: RowLaw) -> np.ndarray:
        """Return the slot of the row of each vertex in a reply: int64, shape (R,).

        The first call is collective (see `padded`), and so is the first with a law that needs counts of rows: each rank of
        the process column sends those of its rows to all others, 1, 2 or 4 bytes each (`RowCounts.gather`), and once the length of its
        longest row, 8 bytes.
        """
        if self.padded(law.fanout):
            return np.full(len(vertices), law.fanout)
        return self._counts.slots(self._gather(law), law, self.layout.places(vertices))

    def padded(self, fanout: int) -> bool:
        """Return True if replies of this fanout are padded (`is_padded`), the same on every rank.

        The first call is collective: each rank of the process column sends its number of entries, 8 bytes, to all others.
        """
        if self._all_entries is None:
            self._all_entries = int(self._column.allgather(np.array([self.block.nnz]), "topology").sum())
        return is_padded(fanout, self._all_entries, self.n)

    def _gather(self, law: RowLaw) -> bool:
        """Gather the counts of rows that a draw needs; return the name of their table, True if edges of weight zero are not counted."""
        if self._longest is None:
            longest = int(self.block.degrees.max(initial=0))
            self._longest = int(self._column.allgather(np.array([longest]), "topology").max())
        by_weight = self.weighted and law.reads_weights
        wanted = Counted(by_weight, self.layout, law.width_of_counts(self._longest))
        self._counts.gather([wanted], lambda _: count_drawable(self.block, by_weight))
        return by_weight

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        """Send rows to their owners, with the columns of their mini-batches; receive 4 bytes a row, and 4 an edge, 12 with shares."""
        routed = route(rows, self.layout)
        requests = request_rows(self._column, rows, routed, columns)
        assert requests.columns is not None
        kept = self.local.restrict(to_places(requests.rows, self.layout, self.first), requests.columns, shares)
        entries = [kept.columns] if kept.shares is None else [kept.columns, kept.shares]
        ends, *kept_here = self._replies(requests, routed, kept.pointers, entries)
        return KeptEdges(ends, kept_here[0], kept_here[1] if shares else None)

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        """Compute Q A: send the frontier to all ranks of the process column; receive 12 bytes for each entry of the product."""
        requests, product = self._multiply_own_range(q, entries)
        ends, columns, values = self._merged(q, requests, product.indptr, [self._own[product.indices], product.entries()])
        return CSR(ends, columns, values, (len(q), self.n))

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        """Draw s vertices for each mini-batch, as `Adjacency.sample_layer` defines.

        Sends the frontier to all ranks of the process column. Each returns at most s + 1 candidates, those of
        its own columns with the smallest keys: 12 bytes a candidate.
        """
        check_fanout(fanout)
        requests, product = self._multiply_own_range(q, entries)
        columns, sums = self._own[product.indices], product.entries()
        ids, weights = requests.rows.minibatches, race_weights(sums, power)
        near = self.backend.smallest_keys(product.indptr, columns, weights, -1 if fanout < 0 else fanout + 1, ids, draw)
        row = np.repeat(np.arange(len(ids)), np.diff(near.pointers))
        place = np.searchsorted(product.row_of_entry() * self.n + columns, row * self.n + near.columns)
        ends, merged, values = self._merged(q, requests, near.pointers, [near.columns, sums[place]])
        return self.backend.smallest_keys(ends, merged, race_weights(values, power), fanout, q.minibatches, draw)

    @property
    def _column(self) -> Comm:
        return self.grid.column_comm

    def _multiply_own_range(self, q: Selection, entries: Entries) -> tuple[Requests, CSR]:
        """Return the selections of all members, and Q A[:, this rank's columns] for them, with columns numbered from 0."""
        requests = request_from_all(self._column, q)
        return requests, self.backend.spgemm(to_places(requests.rows, self.layout).per_minibatch(), self._columns_of(entries))

    def _merged(self, q: Selection, requests: Requests, ends: np.ndarray, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Send rows of all requested mini-batches back; return those of the own ones, merged from the pieces of all members."""
        expected = np.full(self._column.size, len(q) if len(q.vertices) else 0)
        return merge_columns(exchange_ragged_rows(self._column, requests.minibatches, ends, arrays, expected), len(q))

    def _columns_of(self, entries: Entries) -> CSR:
        """Return A[:, this rank's columns] with the given entries; the first call is collective and makes it."""
        if entries not in self._column_blocks:
            self._column_blocks[entries] = self._column_block(self.with_entries(entries))
        return self._column_blocks[entries]

    def _column_block(self, rows: CSR) -> CSR:
        """Collect this rank's column range of A from all block rows: 4 bytes for each row and range, 4 (12 with values) for each entry."""
        places = self.layout.places(rows.indices)
        target = np.searchsorted(self.bounds, places, side="right") - 1
        order = np.argsort(target, kind="stable")
        row = rows.row_of_entry()[order]
        cuts = np.searchsorted(target[order], np.arange(self._column.size + 1))
        columns = (places - self.bounds[target].astype(np.int32))[order]
        counts = [np.bincount(row[a:b], minlength=rows.shape[0]).astype(np.int32) for a, b in pairwise(cuts)]

        def move(array: np.ndarray) -> np.ndarray:
            return np.concatenate(self._column.alltoall([array[a:b] for a, b in pairwise(cuts)], "topology"))

        ends = row_pointers(np.concatenate(self._column.alltoall(counts, "topology")))
        values = None if rows.values is None else move(rows.values[order])
        width = int(self.bounds[self.grid.row + 1]) - self.first
        return CSR(ends, move(columns), values, (self.n, width))


class OwnerRelations(PartitionedRelations):
    """Relations in block rows whose owners draw; `expand_trees` is collective in the process column."""

    def __init__(self, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]) -> None:
        super().__init__(graph, backend, blocks, held)
        self._counts = RowCounts(self.grid.column_comm)

    @property
    def gathered_bytes(self) -> int:
        return self._counts.nbytes

    def _draw(self, form: HopForm, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw]) -> dict[int, RowPicks]:
        column, drawn = self.grid.column_comm, dict[int, RowPicks]()

        def count_own(name: Hashable) -> np.ndarray:
            place, by_weight = cast(tuple[int, bool], name)
            return count_drawable(self.held[place].matrix, by_weight)

        self._counts.gather(form.counted(self.layouts), count_own)
        routed = {t: route_rows(frontiers[t], self.layouts[t], form.rules.moving) for t in form.types}
        requested = request_hop(column, form, routed)
        replies = []
        for one in form.relations:
            t = one.destination
            picks = self._draw_requested(one.place, requested[t], laws[one.place], form)
            arrays = [picks.columns, *([picks.entries] if form.rules.entries else []), *([picks.times] if one.sends_times else [])]
            slots = None if form.ragged else self._slots(one, requested[t], routed[t])
            replies.append(
                Reply(picks.pointers, cast(list[np.ndarray], arrays), requested[t].rows, routed[t].order, routed[t].runs.rows, slots)
            )
        for one, (pointers, columns, *more) in zip(form.relations, exchange_replies(column, replies), strict=True):
            drawn[one.place] = RowPicks(pointers, columns, more[0] if form.rules.entries else None, more[-1] if one.sends_times else None)
        return drawn

    def _slots(self, one: DrawnRelation, requested: RequestedRows, routed: RoutedRows) -> ReplySlots:
        """Return the slots of the rows that are requested of this rank, and of its own."""
        rows, layout = (requested.frontier.vertices, routed.runs.vertices), self.layouts[one.destination]
        if one.padded:
            return ReplySlots(*(np.full(len(vertices), one.width) for vertices in rows))
        return ReplySlots(*(self._counts.slots(one.table, one.law, layout.places(vertices)) for vertices in rows))

    def _draw_requested(self, place: int, requested: RequestedRows, law: RelationLaw, form: HopForm) -> RowPicks:
        """Draw from own rows that other ranks request; entries are positions in the whole adjacency."""
        relation, block = self.relations(form.rules.by)[place], self.held[place]
        layout, rows = self.layouts[relation.destination], requested.frontier
        first = int(layout.bounds[self.grid.row])
        local = rows._replace(vertices=(layout.places(rows.vertices) - first).astype(np.int32))
        picks = draw_rows(self.backend, relation, local, law, form.rules.moving)
        if not form.rules.entries or picks.entries is None:
            return picks
        shift = block.shift if len(block.shift) == 1 else np.repeat(block.shift[local.vertices], np.diff(picks.pointers))
        return picks._replace(entries=picks.entries + shift)
