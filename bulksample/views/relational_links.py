"""A relation of a heterogeneous graph whose links are predicted, each at its own time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..adjacency import Adjacency
from ..data.link_examples import LinkExamples
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..distributed.matrix.relation_links import PartitionedLinks
from ..graph import Graph, Key
from ..graph.seed_list import SeedList
from ..loading.loader import BulkLoader
from ..nn.relational import Schema
from ..samplers import NodeWise, Sampler
from ..samplers.time_rule import TimeRule
from ..sparse import frozen
from .seed_times import rule_for
from .type_view import TypeTargets
from .view import View


class LinkTargets(TypeTargets):
    """The edges of one relation, which are the examples; collective if the relations lie in block rows, which are then given.

    Nothing later than each link is drawn if there is a rule of time. `reverses` are the relations that hold the edges turned around.

    Attributes
    ----------
    links : LinkExamples
        The edges to train on, and their negatives.
    """

    def __init__(
        self, graph: Graph, relation: Key, rule: TimeRule | None, reverses: tuple[Key, ...], relations: PartitionedRelations | None = None
    ) -> None:  # fmt: skip
        source = graph.type(relation[0])
        super().__init__(graph, replace(source, labels=np.full(source.count, -1), num_classes=0, masks={}), "all")
        self.relation, self.rule, self.reverses = graph.relation(relation), rule, reverses
        timed = rule is not None
        self.links = LinkExamples(graph, self.relation, timed) if relations is None else PartitionedLinks(relations, self.relation, timed)

    @property
    def schema(self) -> Schema:
        return super().schema._replace(link_target=self.relation.destination)

    @property
    def first_of_ends(self) -> tuple[int, int]:
        """The numbers of the first source and of the first destination in the numbering of all vertices."""
        places = (self.graph.place(name) for name in (self.relation.source, self.relation.destination))
        first, other = (int(self.graph.offsets[place]) for place in places)
        return first, other

    def law(self, sampler: Sampler, seeds: int, entries: bool = False) -> NodeWise:
        """Return the sampler on relations for mini-batches of at most so many seeds; see `NodeWise` for `entries`."""
        rule = None if self.rule is None else rule_for(self.rule, sampler)
        return replace(cast(NodeWise, sampler), time=rule, entries=entries, stride=0 if rule is None else seeds)

    def ends_loader(
        self, relations: Adjacency, sampler: Sampler, vertices: np.ndarray, times: np.ndarray | None, **options: Any
    ) -> BulkLoader:
        """Return a loader of ends of links, in the numbering of all vertices: int64, shape (m,), each at its time."""
        places = frozen(np.arange(len(vertices)), np.int64)
        seeds = SeedList(frozen(vertices, np.int32), places, None if times is None else frozen(times, np.int64), None, self.graph.n)
        return BulkLoader(relations, self.law(sampler, options["batch_size"]), seeds, seed_types=self.schema.targets, **options)


def link_targets(view: View) -> LinkTargets:
    """Return the targets of a view whose links are predicted."""
    assert isinstance(view.targets, LinkTargets)
    return view.targets
