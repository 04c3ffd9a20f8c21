"""Edges as the examples of a run, held out or labelled: the rule of time, and what their relations and options must keep."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..config.train import TrainOptions
from ..data.edge_table import EdgeTable
from ..data.held_out_links import HeldOutLinks
from ..data.link_examples import LabelledPairs
from ..data.link_split import reverses_of
from ..errors import UsageError
from ..graph import Graph, Key
from ..samplers.time_rule import TimeRule
from ..views.seed_times import rule_of


class EdgeTask(NamedTuple):
    """Labelled pairs of vertices to learn from."""

    table: EdgeTable
    relation: Key  # whose ends the pairs are
    rows: np.ndarray  # int64, shape (m,), ascending: those of the table to train on

    @property
    def num_features(self) -> int:
        """Number of features of a pair."""
        return width_of(self.table)

    @property
    def examples(self) -> tuple[EdgeTable, np.ndarray]:
        """The table and its rows to train on."""
        return self.table, self.rows

    def pairs(self, graph: Graph) -> LabelledPairs:
        """Return the examples of a graph of one relation, without times."""
        return LabelledPairs(graph, graph.relations[0], False, self.table, self.rows)

    def rule(self, config: TrainOptions, graph: Graph) -> TimeRule | None:
        """Return the rule of time of a graph of relations; raises `UsageError` if pairs have no times and the graph has, or reversely."""
        check_unweighted_ends(config, graph)
        rule, table = rule_of(config, graph), self.table
        if rule is not None and table.times is None:
            found = f"{table.name} has no column 'time', so it is unknown when a pair was asked about"
            raise UsageError(f"graph {graph.name!r} has times, but {found}; give the time of each pair")
        if rule is None:
            check_timeless(table, graph.name)
        return rule

    def reverses(self, config: TrainOptions, graph: Graph) -> tuple[Key, ...]:
        """Return the relations whose edges are left out beside those of the relation, if reverses are; raises `UsageError` without any."""
        if config.exclude_targets != "both":
            return ()
        found = reverses_of(graph, graph.relation(self.relation))
        if not found:
            raise UsageError(f"exclude_targets: got both, and no relation is the reverse of {graph.relation(self.relation)}; use self")
        return found


def width_of(table: EdgeTable) -> int:
    """Return the number of features of a pair."""
    return 0 if table.features is None else int(table.features.shape[1])


def check_timeless(table: EdgeTable, name: str) -> None:
    """Raise `UsageError` for pairs with times if those of the graph do not count, or it has none."""
    if table.times is not None:
        raise UsageError(f"{table.name}: has a column 'time', and graph {name!r} has no times that count; leave the column out")


def check_unweighted_ends(config: TrainOptions, graph: Graph) -> None:
    """Raise `UsageError` if draws are by weight, since exact rows of the ends of edges are not."""
    if (weighted := weighted_relations(graph)) and config.sampler == "labor":
        raise UsageError(f"exact ranks take means without weights, and labor draws by them; {weighted[0]} has weights: use sage")


def link_rule(config: TrainOptions, graph: Graph, held_out: HeldOutLinks) -> TimeRule | None:
    """Return the rule of time of a graph whose links are predicted; raises `UsageError` if they do not suit the options."""
    check_unweighted_ends(config, graph)
    rule = rule_of(config, graph)
    if rule is not None and held_out.times is None:
        found = f"{graph.relation(held_out.relation)} and its ends have none, so it is unknown when a link was asked about"
        raise UsageError(f"graph {graph.name!r} has times, but {found}; use a relation with times, or a graph without any")
    return rule


def weighted_relations(graph: Graph) -> list[str]:
    """Return the relations with weights."""
    return [str(relation) for relation in graph.relations if relation.adjacency.values is not None]
