"""A view of a heterogeneous graph: its relations and its features, each whole or in block rows, and the type to predict.

Vertices of one type are predicted, each at its own time if the graph has times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..adjacency import Adjacency
from ..distributed.comm.base import Comm
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..graph import Graph, VertexType
from ..graph.minibatch import MiniBatch, to_host
from ..graph.seed_list import SeedList
from ..loading.loader import BulkLoader
from ..local_adjacency import LocalAdjacency
from ..nn.relational import Schema
from ..samplers import Full, LayerWise, NodeWise, Sampler
from ..sparse import frozen
from .inference_share import ScoredRows
from .seed_times import SeedTimes, rule_for
from .type_features import TypeFeatures
from .view import Targets, View, mean_weights


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

    def loader(self, adjacency: Adjacency, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of vertices of the type, each at its time."""
        times = self.times
        rule = None if times is None else rule_for(times.rule, sampler)
        first = int(self.graph.offsets[self.graph.place(self.kind.name)])
        stamps = None if times is None else frozen(times.of_vertex[vertices], np.int64)
        places = frozen(np.arange(len(vertices)), np.int64)
        seeds = SeedList(frozen(first + vertices.astype(np.int64), np.int32), places, stamps, None, self.graph.n)
        if isinstance(sampler, LayerWise):
            return BulkLoader(adjacency, replace(sampler, means=True), seeds, seed_types=(self.kind.name,), **options)
        weigh = self.weighted and isinstance(sampler, Full)
        law = replace(cast(NodeWise, sampler), time=rule, entries=weigh)
        if weigh:
            then = options.get("transform", list)
            options["transform"] = lambda bulk: then([weighed(minibatch, self.graph) for minibatch in bulk])
        return BulkLoader(adjacency, law, seeds, seed_types=(self.kind.name,), **options)


def type_view(
    targets: TypeTargets, relations: LocalAdjacency | PartitionedRelations, features: TypeFeatures, comm: Comm, fingerprint: str
) -> View:  # fmt: skip
    """Return the view of a rank that scores an even share of the vertices of the type, among the ranks of a communicator."""
    kind, blocks = targets.kind, features.blocks
    assert kind.labels is not None
    own = np.array_split(np.arange(kind.count, dtype=np.int32), comm.size)[comm.rank]
    share = ScoredRows(own, kind.labels[own], {split: mask[own] for split, mask in kind.masks.items()})
    made = View(targets.graph.name, fingerprint, relations, features, targets, share)
    made.memory = {
        "adjacency": relations.held_bytes,
        "features": features.nbytes(),
        "replicated": targets.nbytes + (0 if blocks is None else blocks.nbytes()),
    }
    if isinstance(relations, PartitionedRelations):
        made.sampling, blocks = relations.grid.comm, blocks or relations.blocks
    if blocks is not None:
        made.part_order = blocks.of[kind.name].part_order
    return made


def type_targets(view: View) -> TypeTargets:
    """Return the targets of a view of a heterogeneous graph."""
    assert isinstance(view.targets, TypeTargets)
    return view.targets


def weighed(minibatch: MiniBatch, graph: Graph) -> MiniBatch:
    """Return a mini-batch of whole rows whose blocks take means by edge weight, where relations have weights."""
    assert minibatch.entries is not None
    blocks = []
    for of_layer, entries in zip(minibatch.blocks, minibatch.entries, strict=True):
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
