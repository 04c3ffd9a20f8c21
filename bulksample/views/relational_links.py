"""A heterogeneous graph of which the links of one relation are predicted, each at its own time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..backends.base import Backend
from ..data.link_examples import LinkExamples
from ..distributed.comm.base import Comm
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..distributed.matrix.relation_links import PartitionedLinks
from ..graph import Graph, Key
from ..nn.relational import Schema
from ..relations.one_type import LinkEndsLoader
from ..relations.rule import TimeRule
from ..relations.sampler import RelationSampler
from ..relations.seeds import SeedList
from ..samplers import NodeWise, Sampler
from ..sparse import frozen
from .relational import RelationalView
from .seed_times import rule_for


class RelationalLinkView(RelationalView):
    """A view of a heterogeneous graph whose examples are the edges of one relation; `take_features` completes it.

    Parameters
    ----------
    graph : Graph
    relation : (source, name, destination)
    rule : TimeRule, optional
        Draw nothing later than each link.
    reverses : tuple of (source, name, destination)
        The relations that hold the edges of `relation` turned around.
    comm, backend, fingerprint, relations
        See `RelationalView`; collective if relations are given.

    Attributes
    ----------
    links : LinkExamples
        The edges to train on, and their negatives.
    """

    def __init__(
        self, graph: Graph, relation: Key, rule: TimeRule | None, reverses: tuple[Key, ...], comm: Comm, backend: Backend,
        fingerprint: str, relations: PartitionedRelations | None = None,
    ) -> None:  # fmt: skip
        source = graph.type(relation[0])
        unlabelled = replace(source, labels=np.full(source.count, -1), num_classes=0, masks={})
        super().__init__(graph, unlabelled, comm, backend, fingerprint, "all", None, relations)
        self.relation, self.rule, self.reverses = graph.relation(relation), rule, reverses
        timed = rule is not None
        self.links = LinkExamples(graph, self.relation, timed) if relations is None else PartitionedLinks(relations, self.relation, timed)

    @property
    def schema(self) -> Schema:
        """The types and relations, as a model sees them."""
        return super().schema._replace(link_target=self.relation.destination)

    @property
    def first_of_ends(self) -> tuple[int, int]:
        """The numbers of the first source and of the first destination in the numbering of all vertices."""
        places = (self.graph.place(name) for name in (self.relation.source, self.relation.destination))
        first, other = (int(self.graph.offsets[place]) for place in places)
        return first, other

    def law(self, sampler: Sampler, seeds: int, entries: bool = False) -> RelationSampler:
        """Return the sampler on relations for mini-batches of at most so many seeds; see `RelationSampler` for `entries`."""
        rule = None if self.rule is None else rule_for(self.rule, sampler)
        return RelationSampler(cast(NodeWise, sampler), time=rule, entries=entries, stride=0 if rule is None else seeds)

    def ends_loader(self, sampler: Sampler, vertices: np.ndarray, times: np.ndarray | None, **options: Any) -> LinkEndsLoader:
        """Return a loader of ends of links, in the numbering of all vertices: int64, shape (m,), each at its time."""
        places = frozen(np.arange(len(vertices)), np.int64)
        seeds = SeedList(frozen(vertices, np.int32), places, None if times is None else frozen(times, np.int64), None, self.graph.n)
        return LinkEndsLoader(self.schema.targets, self.relations, self.law(sampler, options["batch_size"]), seeds, **options)
