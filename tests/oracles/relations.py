"""Predict what every rank of a process grid sends when it samples from relations in block rows.

One rank's draws are those of all ranks, so `HopRecorder` records the frontiers and the draws of each hop on one rank that holds the whole
graph. `predict_hops` predicts the messages of the policy `owner`, which `matrix.requests` describes, and `predict_counts` the
counts of rows that travel before (`matrix.reply_slots`). `predict_row_hops` predicts the messages of `rows` and `rows-oblivious`
(`matrix.spgemm15d`), and `predict_links` those of `matrix.relation_links`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from bulksample.adjacency import By
from bulksample.backends.base import Backend
from bulksample.backends.relation_draws import Frontier, draw_rows
from bulksample.backends.relation_hops import expand_hops
from bulksample.backends.relational import HeteroExpansion, RelationLaw, RowPicks, Trees
from bulksample.data.held_out_links import EdgeEnds
from bulksample.distributed.matrix.layout import Layout, StackedPlaces
from bulksample.distributed.matrix.reply_slots import count_drawable
from bulksample.distributed.matrix.requests import DrawnRelation, HopForm, HopRules, RelationFacts, route_rows
from bulksample.graph import Graph
from bulksample.local_adjacency import LocalAdjacency
from bulksample.sparse import CSR

from .collectives import ID, VALUE, CollectiveCosts, GridSent, nothing_sent, on_grid
from .staged_rows import StagedCosts


class RecordedHop(NamedTuple):
    """The rows that one rank's mini-batches expand in a hop, and what they draw."""

    form: HopForm  # of the policy owner
    row_form: HopForm  # of the policies that send rows
    frontiers: Sequence[Frontier]  # by type
    edges: Sequence[np.ndarray]  # of each relation of `form`, int64, shape (rows of its destination type,): the slots; drawn, if ragged


class HopRecorder(LocalAdjacency):
    """Whole relations that record in `hops` what each call of `expand_trees` would exchange."""

    def __init__(self, graph: Graph, backend: Backend) -> None:
        super().__init__(graph, backend)
        self.hops = list[RecordedHop]()

    def facts(self, by: By | None) -> list[RelationFacts]:
        """Return what ranks know of the relations."""
        return [
            RelationFacts(
                one.source, one.destination, one.matrix.shape[0], one.matrix.nnz, int(one.matrix.degrees.max(initial=0)),
                one.times is not None, one.matrix.values is not None,
            )
            for one in self.relations(by)
        ]  # fmt: skip

    def form(self, facts: Sequence[RelationFacts], laws: Sequence[RelationLaw], rules: HopRules) -> HopForm:
        """Return the form of the messages of a hop by the policy `owner`; another one shows what it would send."""
        return HopForm.of(facts, laws, rules)

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        facts, relations = self.facts(by), self.relations(by)
        rules = HopRules(by, trees.ends is not None, trees.starts is not None, trees.moving, entries is not False)

        def draw_hop(hop: int, frontiers: Sequence[Frontier]) -> list[RowPicks]:
            forms = self.form(facts, laws[hop], rules), HopForm.of(facts, laws[hop], rules)
            pairs = zip(relations, laws[hop], strict=True)
            drawn = [draw_rows(self.backend, one, frontiers[one.destination], law, trees.moving) for one, law in pairs]
            edges = [
                np.diff(drawn[one.place].pointers) if forms[0].ragged else _slots(one, relations[one.place].matrix, frontiers)
                for one in forms[0].relations
            ]
            self.hops.append(RecordedHop(*forms, frontiers, edges))
            return drawn

        return expand_hops(self.backend, draw_hop, [(fact.source, fact.destination) for fact in facts], trees, len(laws), only_new)


def _slots(one: DrawnRelation, matrix: CSR, frontiers: Sequence[Frontier]) -> np.ndarray:
    vertices = frontiers[one.destination].vertices
    return np.full(len(vertices), one.width) if one.padded else one.law.edges_drawn(count_drawable(matrix, one.by_weight)[vertices])


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
        # bytes that (i, j) sends to, and receives from, row k of its column
        asked, answered = (on_grid(each, c) for each in zip(*[_bytes_of(hop, layouts) for hop in together], strict=True))
        sent += costs.alltoall(asked) + costs.alltoall(answered.transpose(2, 1, 0), counts_known=not form.ragged)
    return sent


def predict_counts(hops: Sequence[RecordedHop], layouts: Sequence[Layout], replication: int) -> GridSent:
    """Predict what ranks send, once, in hops whose slots need counts of rows: those of its rows, from each to its process column."""
    rows, widths = layouts[0].blocks, dict[Hashable, int]()
    costs, sent = CollectiveCosts("column", rows, replication), nothing_sent(rows, replication)
    for hop in hops:
        sent += costs.counts(hop.form.counted(layouts), widths)
    return sent


def predict_row_hops(
    hops: Sequence[Sequence[RecordedHop]], graph: Graph, layouts: Sequence[Layout], replication: int, oblivious: bool = False
) -> GridSent:  # fmt: skip
    """Predict what every rank sends in the recorded hops of p ranks by the policy ``rows``, or ``rows-oblivious``; see `predict_hops`."""
    stacked, sent = StackedPlaces(layouts), nothing_sent(len(hops) // replication, replication)
    for together in zip(*hops, strict=True):
        form = together[0].row_form
        if form.relations:
            costs = StagedCosts(Layout(stacked.bounds), _words_of_rows(form, graph, stacked), replication, oblivious)
            named = [np.unique(np.concatenate([stacked.places(t, hop.frontiers[t].vertices) for t in form.types])) for hop in together]
            sent += costs.fetch(named)
    return sent


def _words_of_rows(form: HopForm, graph: Graph, stacked: StackedPlaces) -> np.ndarray:
    """Return the words of the row of each place: int64, shape (n,)."""
    words = np.zeros(graph.n, np.int64)
    for relation in form.relations:
        degrees = graph.relations[relation.place].adjacency.degrees
        each = 1 + 2 * relation.by_weight + 2 * relation.edge_times
        words[stacked.places(relation.destination, np.arange(len(degrees)))] += 1 + 2 * form.rules.entries + each * degrees
    return words


def _bytes_of(hop: RecordedHop, layouts: Sequence[Layout]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes that a rank sends to each owner, and that each owner answers: int64, shape (owners,)."""
    form, owners = hop.form, layouts[0].blocks
    asked, answered, rows = np.zeros(owners, np.int64), np.zeros(owners, np.int64), np.zeros(owners, np.int64)
    for t in form.types:
        runs = route_rows(hop.frontiers[t], layouts[t]).runs
        asked += runs.counts * (2 + 2 * form.rules.ends + 2 * form.rules.starts) + runs.rows * (2 if form.rules.moving else 1)
        rows += runs.rows
    asked += np.where(rows > 0, 2 * len(form.types), 0)
    for relation, edges in zip(form.relations, hop.edges, strict=True):
        owner = layouts[relation.destination].blocks_of(hop.frontiers[relation.destination].vertices)
        answered += np.bincount(owner, edges, owners).astype(np.int64) * (1 + 2 * form.rules.entries + 2 * relation.sends_times)
        if form.ragged:
            answered += np.bincount(owner, minlength=owners)
    return ID * asked, ID * answered


def predict_links(
    bulks: Sequence[Sequence[EdgeEnds]], of_source: Layout, of_destination: Layout, edge_times: bool, replication: int
) -> GridSent:  # fmt: skip
    """Predict what every rank sends for the ends and the negatives of its edges.

    Parameters
    ----------
    bulks : the ends of the edges of each bulk of each rank; all ranks make equally many. Rank i c + j stands at (i, j) of the grid.
    of_source, of_destination : Layout
        The block rows of the types of both ends.
    edge_times : bool
        Edges have times, and these count.
    replication : c
    """
    rows, c = of_source.blocks, replication
    costs, sent = CollectiveCosts("column", rows, c), nothing_sent(rows, c)
    for together in zip(*bulks, strict=True):
        ends = on_grid([np.bincount(of_destination.blocks_of(one.destinations), minlength=rows) for one in together], c)
        negatives = on_grid([np.bincount(of_source.blocks_of(one.sources), minlength=rows) for one in together], c)
        for items, asked, told in ((ends, VALUE, 2 * VALUE if edge_times else ID), (negatives, 3 * ID, ID)):
            sent += costs.alltoall(asked * items) + costs.alltoall(told * items.transpose(2, 1, 0), counts_known=True)
    return sent
