"""The `owner` policy on relations: the owner of a row draws from it in all relations, and only picks travel.

The rows of a frontier travel to their owners in the process column as (tree, window, vertex), and the picks come back. A hop of all
relations is two collectives, and one that carries the lengths of requests. Those of answers are known, but where rows draw from windows of
time and are not padded: then they take a fourth (see `relation_requests`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

import numpy as np

from ...backends.base import Backend
from ...backends.relational import RelationLaw
from ...graph import Graph
from ...relations.draw import Frontier, RowPicks, draw_rows
from .answer_rooms import RowCounts, count_drawable
from .layout import TypeLayouts
from .relation_blocks import HopRules, PartitionedRelations, RelationBlock
from .relation_requests import AskedRows, DrawnRelation, HopForm, Rooms, RowRuns, exchange_answers, exchange_requests, route_rows


class OwnerRelations(PartitionedRelations):
    """Relations in block rows whose owners draw; `expand_trees` is collective in the process column."""

    def __init__(self, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]) -> None:
        super().__init__(graph, backend, blocks, held)
        self._counts = RowCounts(self.grid.column_comm)

    @property
    def gathered_bytes(self) -> int:
        return self._counts.nbytes

    def _draw(self, rules: HopRules, frontiers: Sequence[Frontier], laws: Sequence[RelationLaw]) -> Sequence[RowPicks | None]:
        form, out = HopForm.of(self.facts(rules.by), laws, rules), [None] * len(laws)
        if not form.relations:
            return out
        column, found = self.grid.column_comm, list[RowPicks | None](out)
        self._counts.gather(form.counted(self.layouts), self._count_own)
        routed = {t: route_rows(frontiers[t], self.layouts[t]) for t in form.types}
        asked = exchange_requests(column, form, frontiers, routed)
        drawn = [self._draw_asked(one.place, asked[one.destination], laws[one.place], rules, form) for one in form.relations]
        rooms = [self._rooms(form, one, frontiers, asked, routed) for one in form.relations]
        for one, picks in zip(form.relations, exchange_answers(column, form, drawn, rooms, asked, routed), strict=True):
            found[one.place] = picks
        return found

    def _count_own(self, name: Hashable) -> np.ndarray:
        """Count the edges that this rank's rows of a relation may draw, by the name of the table."""
        place, by_weight = cast(tuple[int, bool], name)
        return count_drawable(self.held[place].matrix, by_weight)

    def _rooms(
        self, form: HopForm, one: DrawnRelation, frontiers: Sequence[Frontier], asked: dict[int, AskedRows], routed: dict[int, RowRuns]
    ) -> Rooms | None:  # fmt: skip
        """Return the rooms of the rows that are asked of this rank, and of its own; None if answers are ragged."""
        if form.ragged:
            return None
        t = one.destination
        rows = asked[t].frontier.vertices, frontiers[t].vertices[routed[t].order]
        if one.padded:
            return Rooms(*(np.full(len(vertices), one.width) for vertices in rows))
        return Rooms(*(one.rooms(self._counts.of(one.table, self.layouts[t].places(vertices))) for vertices in rows))

    def _draw_asked(self, place: int, asked: AskedRows, law: RelationLaw, rules: HopRules, form: HopForm) -> RowPicks:
        """Draw from own rows that other ranks ask for; entries are positions in the whole adjacency."""
        relation, block = self.relations(rules.by)[place], self.held[place]
        layout, rows = self.layouts[relation.destination], asked.frontier
        first = int(layout.bounds[self.grid.row])
        local = rows._replace(vertices=(layout.places(rows.vertices) - first).astype(np.int32))
        picks = draw_rows(self.backend, relation, local, law, form.named)
        if not form.entries or picks.entries is None:
            return picks
        shift = block.shift if len(block.shift) == 1 else np.repeat(block.shift[local.vertices], np.diff(picks.pointers))
        return picks._replace(entries=picks.entries + shift)
