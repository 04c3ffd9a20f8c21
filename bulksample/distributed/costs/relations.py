"""Predict what every rank of a process grid sends when it samples from relations in block rows.

One rank's draws are those of all ranks, so `HopRecorder` records the frontiers and the draws of each hop on one rank that holds the whole
graph; `predict_hops` counts the messages that `matrix.relation_requests` describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.base import Backend
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...relations.adjacency import By, RelationAdjacency
from ...relations.draw import Frontier, RowPicks, draw_rows
from ...relations.expand import expand_hops
from ...relations.graph import HeteroGraph
from ..matrix.layout import Layout
from ..matrix.relation_requests import HopForm, RelationFacts, route_rows
from .collectives import ID, CollectiveCosts, GridSent, nothing_sent


class RecordedHop(NamedTuple):
    """The rows that one rank's mini-batches expand in a hop, and what they draw."""

    form: HopForm
    frontiers: Sequence[Frontier]  # by type
    counts: Sequence[np.ndarray]  # by relation, int64, shape (rows of its destination type,)


class HopRecorder(RelationAdjacency):
    """Whole relations that record in `hops` what each call of `expand_trees` would exchange."""

    def __init__(self, graph: HeteroGraph, backend: Backend) -> None:
        super().__init__(graph, backend)
        self.hops = list[RecordedHop]()

    def facts(self, by: By | None) -> list[RelationFacts]:
        """Return what ranks know of the relations."""
        return [
            RelationFacts(
                one.source, one.destination, one.matrix.shape[0], one.matrix.nnz, int(one.matrix.degrees.max(initial=0)),
                one.times is not None,
            )
            for one in self.relations(by)
        ]  # fmt: skip

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool = True
    ) -> list[HeteroExpansion]:
        facts, relations = self.facts(by), self.relations(by)

        def draw_hop(hop: int, frontiers: Sequence[Frontier]) -> list[RowPicks]:
            form = HopForm.of(facts, laws[hop], trees.ends is not None, trees.starts is not None, trees.moving, entries)
            pairs = zip(relations, laws[hop], strict=True)
            drawn = [draw_rows(self.backend, one, frontiers[one.destination], law, trees.moving) for one, law in pairs]
            self.hops.append(RecordedHop(form, frontiers, [np.diff(picks.pointers) for picks in drawn]))
            return drawn

        return expand_hops(self.backend, draw_hop, [(fact.source, fact.destination) for fact in facts], trees, len(laws), only_new)


def predict_opening(relations: int, rows: int, replication: int) -> GridSent:
    """Predict what ranks send when they open relations in block rows: 16 bytes for each relation to the others of the process column."""
    return CollectiveCosts("column", rows, replication).allgather(np.full((rows, replication), 16 * relations))


def predict_hops(hops: Sequence[Sequence[RecordedHop]], layouts: Sequence[Layout], replication: int) -> GridSent:
    """Predict what every rank sends in the recorded hops of p ranks.

    Parameters
    ----------
    hops : the hops of each rank; all ranks make equally many. Rank i c + j stands at (i, j) of the process grid.
    layouts : sequence of Layout
        The block rows of each type.
    replication : c
    """
    rows, c = len(hops) // replication, replication
    costs, sent = CollectiveCosts("column", rows, c), nothing_sent(rows, c)
    for together in zip(*hops, strict=True):
        form = together[0].form
        if not form.relations:
            continue
        asked, answered = np.zeros((2, rows, c, rows), np.int64)  # bytes that (i, j) sends to, and receives from, row k of its column
        for r, hop in enumerate(together):
            asked[divmod(r, c)], answered[divmod(r, c)] = _bytes_of(hop, layouts)
        sent += costs.alltoall(asked) + costs.alltoall(answered.transpose(2, 1, 0), counts_known=form.padded)
    return sent


def _bytes_of(hop: RecordedHop, layouts: Sequence[Layout]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes that a rank sends to each owner, and that each owner answers: int64, shape (owners,)."""
    form, owners = hop.form, layouts[0].blocks
    asked, answered, rows = np.zeros(owners, np.int64), np.zeros(owners, np.int64), np.zeros(owners, np.int64)
    for t in form.types:
        way = route_rows(hop.frontiers[t], layouts[t])
        asked += way.runs * form.words_of_run + way.rows * (2 if form.named else 1)
        rows += way.rows
    asked += np.where(rows > 0, 2 * len(form.types), 0)
    for relation in form.relations:
        owner = layouts[relation.destination].blocks_of(hop.frontiers[relation.destination].vertices)
        each = np.bincount(owner, minlength=owners)
        drawn = np.bincount(owner, hop.counts[relation.place], minlength=owners).astype(np.int64)
        if form.padded:
            answered += each * relation.width * form.words_of_edge(relation)
        else:
            answered += each + drawn * form.words_of_edge(relation)
    return ID * asked, ID * answered
