"""A view of a heterogeneous graph: its relations and its features, each whole or in block rows, and what is predicted.

That is the vertices of one type, or the links of one relation, each at its own time if the graph has times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..adjacency import Adjacency
from ..data.edge_table import EdgeTable
from ..data.link_examples import EdgeExamples, LabelledPairs, LinkExamples
from ..distributed.comm.base import Comm
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..distributed.matrix.relation_links import PartitionedLinks
from ..graph import Graph, Key, VertexType
from ..graph.minibatch import MiniBatch, to_host
from ..graph.seed_list import SeedList
from ..loading.loader import BulkLoader
from ..local_adjacency import LocalAdjacency
from ..nn.relational import Schema
from ..samplers import Full, LayerWise, NodeWise, Sampler
from ..samplers.time_rule import TimeRule
from ..sparse import frozen
from .inference_share import ScoredRows
from .seed_times import SeedTimes, rule_for
from .type_features import TypeFeatures
from .view import Targets, View, mean_weights, memory


class TypeTargets(Targets):
    """The vertices of one type of a graph, each at its time if the graph has times: then nothing later is drawn.

    They are those of a split, by default of the training split, which must hold some. With `weighted`, exact means are by edge weight, in
    the relations that have weights.
    """

    def __init__(
        self, graph: Graph, kind: VertexType, split: str | None = None, times: SeedTimes | None = None, weighted: bool = False
    ) -> None:  # fmt: skip
        assert kind.labels is not None
        seeds = kind.seeds(split) if split else kind.default_seeds(training=True)
        super().__init__(seeds, kind.labels[seeds], kind.num_classes)
        self.graph, self.kind, self.times = graph, kind, times
        self.weighted = weighted and any(relation.adjacency.values is not None for relation in graph.relations)
        self.relations_of_row = max(Counter(relation.destination for relation in graph.relations).values(), default=1)

    @property
    def schema(self) -> Schema:
        return schema_of(self.graph, self.kind.name)

    def seed_list(self, vertices: np.ndarray, times: np.ndarray | None) -> SeedList:
        """Return seeds, in the numbering of all vertices, each at its time if there are times."""
        places, stamps = frozen(np.arange(len(vertices)), np.int64), None if times is None else frozen(times, np.int64)
        return SeedList(frozen(vertices, np.int32), places, stamps, None, self.graph.n)

    def loader(self, adjacency: Adjacency, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of vertices of the type, each at its time."""
        times = self.times
        rule = None if times is None else rule_for(times.rule, sampler)
        first = int(self.graph.offsets[self.graph.place(self.kind.name)])
        seeds = self.seed_list(first + vertices.astype(np.int64), None if times is None else times.of_vertex[vertices])
        if isinstance(sampler, LayerWise):
            return BulkLoader(adjacency, replace(sampler, means=True), seeds, seed_types=(self.kind.name,), **options)
        weigh = self.weighted and isinstance(sampler, Full)
        law = replace(cast(NodeWise, sampler), time=rule, entries=weigh)
        if weigh:
            then = options.get("transform", list)
            options["transform"] = lambda bulk: then([weighed(minibatch, self.graph) for minibatch in bulk])
        return BulkLoader(adjacency, law, seeds, seed_types=(self.kind.name,), **options)


class LinkTargets(TypeTargets):
    """The edges of one relation, which are the examples; collective if the relations lie in block rows, which are then given.

    Nothing later than each link is drawn if there is a rule of time. `reverses` are the relations that hold the edges turned around. With
    `labelled`, a table and the positions of rows in it, these rows are the examples, and nothing is collective.

    Attributes
    ----------
    links : EdgeExamples
        The edges to train on, and their negatives; or the labelled pairs.
    """

    def __init__(
        self, graph: Graph, relation: Key, rule: TimeRule | None, reverses: tuple[Key, ...], relations: PartitionedRelations | None = None,
        labelled: tuple[EdgeTable, np.ndarray] | None = None,
    ) -> None:  # fmt: skip
        source, outputs = graph.type(relation[0]), 0 if labelled is None else labelled[0].num_classes
        super().__init__(graph, replace(source, labels=np.full(source.count, -1), num_classes=outputs, masks={}), "all")
        self.relation, self.rule, self.reverses = graph.relation(relation), rule, reverses
        first, other = (int(graph.offsets[graph.place(name)]) for name in (self.relation.source, self.relation.destination))
        self.first_of_ends = first, other
        timed = rule is not None
        if labelled is not None:
            self.links: EdgeExamples = LabelledPairs(graph, self.relation, timed, *labelled)
        elif relations is not None:
            self.links = PartitionedLinks(relations, self.relation, timed)
        else:
            self.links = LinkExamples(graph, self.relation, timed)

    @property
    def schema(self) -> Schema:
        return super().schema._replace(link_target=self.relation.destination)

    def law(self, sampler: Sampler, seeds: int, entries: bool = False) -> NodeWise:
        """Return the sampler on relations for mini-batches of at most so many seeds; see `NodeWise` for `entries`."""
        rule = None if self.rule is None else rule_for(self.rule, sampler)
        return replace(cast(NodeWise, sampler), time=rule, entries=entries, stride=0 if rule is None else seeds)

    def ends_loader(
        self, relations: Adjacency, sampler: Sampler, vertices: np.ndarray, times: np.ndarray | None, **options: Any
    ) -> BulkLoader:
        """Return a loader of ends of links, in the numbering of all vertices: int64, shape (m,), each at its time."""
        law = self.law(sampler, options["batch_size"])
        return BulkLoader(relations, law, self.seed_list(vertices, times), seed_types=self.schema.targets, **options)


def type_view(
    targets: TypeTargets, relations: LocalAdjacency | PartitionedRelations, features: TypeFeatures, comm: Comm, fingerprint: str
) -> View:  # fmt: skip
    """Return the view of a rank that scores an even share of the vertices of the type, among the ranks of a communicator."""
    kind, blocks = targets.kind, features.blocks
    assert kind.labels is not None
    scored = np.array_split(np.arange(kind.count, dtype=np.int32), comm.size)[comm.rank]
    share = ScoredRows(scored, kind.labels[scored], {split: mask[scored] for split, mask in kind.masks.items()})
    made = View(targets.graph.name, fingerprint, relations, features, targets, share)
    made.memory = memory(relations.held_bytes, features, targets.nbytes + (0 if blocks is None else blocks.nbytes()))
    if isinstance(relations, PartitionedRelations):
        made.sampling, blocks = relations.grid.comm, blocks or relations.blocks
    if blocks is not None:
        made.part_order = blocks.of[kind.name].part_order
    return made


def type_targets(view: View) -> TypeTargets:
    """Return the targets of a view of a heterogeneous graph."""
    assert isinstance(view.targets, TypeTargets)
    return view.targets


def link_targets(view: View) -> LinkTargets:
    """Return the targets of a view whose links are predicted."""
    assert isinstance(view.targets, LinkTargets)
    return view.targets


def weighed(minibatch: MiniBatch, graph: Graph) -> MiniBatch:
    """Return a mini-batch of whole rows whose blocks take means by edge weight, where relations have weights."""
    assert minibatch.entries is not None
    blocks = []
    for of_layer, entries in zip(minibatch.layers, minibatch.entries, strict=True):
        made = dict(of_layer)
        for relation in graph.relations:
            if relation.adjacency.values is not None:
                block = of_layer[relation.key]
                values = relation.adjacency.values[to_host(entries[relation.key])]
                weights = mean_weights(to_host(block.indptr), values, 1.0, True)[1]
                made[relation.key] = replace(block, weights=weights)
        blocks.append(made)
    return replace(minibatch, layers=tuple(blocks))


def schema_of(graph: Graph, target: str) -> Schema:
    """Return the types and relations of a graph, and the type to predict."""
    counts, widths = ({kind.name: getattr(kind, of) for kind in graph.types} for of in ("count", "num_features"))
    return Schema(counts, widths, tuple(relation.key for relation in graph.relations), target)
