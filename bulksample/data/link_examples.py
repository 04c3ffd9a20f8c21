"""The pairs of vertices that training draws: the edges of a relation, each with a destination that its source has no edge to; or the rows
of a table, which have labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..graph import Graph, Key, Relation
from ..graph.links import NonNeighbors, link_times
from .edge_table import EdgeTable
from .held_out_links import EdgeEnds
from .random_words import scaled


class EdgeExamples(ABC):
    """The pairs to train on, between the types of a relation of a graph; `timed` says that time counts.

    `edges` are their positions in the adjacency or in a table: int64, ascending.
    """

    edges: np.ndarray

    def __init__(self, graph: Graph, relation: Relation, timed: bool) -> None:
        self.graph, self.relation, self.timed = graph, relation, timed

    @abstractmethod
    def ends(self, edges: np.ndarray) -> EdgeEnds:
        """Return the ends of pairs, given their positions."""


class LinkExamples(EdgeExamples):
    """The edges of a relation that are no loops, on a rank that holds the relation whole.

    If `timed`, see `link_times`, also for what is raised.
    """

    _others: NonNeighbors

    def __init__(self, graph: Graph, relation: Relation, timed: bool) -> None:
        super().__init__(graph, relation, timed)
        self.times, a = link_times(graph, relation) if timed else None, relation.adjacency
        self.edges = np.arange(a.nnz) if relation.source != relation.destination else np.flatnonzero(a.indices != a.row_of_entry())

    @staticmethod
    def of(graph: Graph) -> LinkExamples:
        """Return the edges of a graph with one relation, without times."""
        return LinkExamples(graph, graph.relations[0], timed=False)

    @property
    def rows(self) -> dict[Key, EdgeEnds] | None:
        """The edges that are here; None if all are."""
        return None

    def prepare(self) -> None:
        """Sort the pairs that edges join, before the first negative; collective if relations lie in block rows."""
        self._others = NonNeighbors(self.graph, self.relation)

    def ends(self, edges: np.ndarray) -> EdgeEnds:
        times = None if self.times is None else self.times[edges]
        return EdgeEnds(self.relation.adjacency.indices[edges].astype(np.int64), rows_of(self.relation, edges), times)

    def negatives(self, ends: EdgeEnds, words: np.ndarray) -> np.ndarray:
        """Draw a destination for each edge by a word of 32 bits: int64, shape (m,).

        It is uniform among those that existed at the time of the edge and that the source has no edge to, at any time; where there is
        none, among all that existed.
        """
        return drawn(self._others, ends.sources, self._others.existing(ends.sources, ends.times), words)


class LabelledPairs(EdgeExamples):
    """Rows of a table of labelled pairs, which every rank holds; pairs need not be edges of the relation between their types."""

    def __init__(self, graph: Graph, relation: Relation, timed: bool, table: EdgeTable, rows: np.ndarray) -> None:
        super().__init__(graph, relation, timed)
        self.table, self.edges = table, rows

    def ends(self, edges: np.ndarray) -> EdgeEnds:
        table, times = self.table, self.table.times
        return EdgeEnds(table.sources[edges], table.destinations[edges], times[edges] if self.timed and times is not None else None)


def drawn(others: NonNeighbors, sources: np.ndarray, existing: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Draw among the first `existing` destinations in the order of time; see `LinkExamples.negatives`."""
    eligible = others.eligible(sources, existing)
    some = np.flatnonzero(eligible)
    destinations = others.anyone(scaled(words, 32, existing))
    destinations[some] = others.at(sources[some], existing[some], scaled(words[some], 32, eligible[some]))
    return destinations


def rows_of(relation: Relation, edges: np.ndarray) -> np.ndarray:
    """Return the destination of each edge, given its position: int64."""
    return np.asarray(np.searchsorted(relation.adjacency.indptr, edges, side="right") - 1)
