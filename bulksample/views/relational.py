"""A heterogeneous graph as one rank sees it: its relations and its features, each whole or in block rows.

Vertices of one type are predicted, each at its own time if the graph has times.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.relation_blocks import PartitionedRelations
from ..graph import Graph, VertexType
from ..loader import BulkLoader
from ..minibatch import to_host
from ..nn.relational import Schema
from ..relations.adjacency import RelationAdjacency
from ..relations.layers import UnionSampler
from ..relations.minibatch import HeteroMiniBatch
from ..relations.one_type import OneTypeLoader
from ..relations.sampler import RelationSampler
from ..relations.seeds import SeedList
from ..samplers import Full, LayerWise, NodeWise, Sampler
from ..sparse import frozen
from .seed_times import SeedTimes, rule_for
from .type_features import TypeFeatures
from .view import View, mean_weights


@dataclass(eq=False)
class ScoredRows:
    """This rank's even share of the vertices of the target type, with what scores need of them; see `InferenceShare`."""

    vertices: np.ndarray
    labels: np.ndarray
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    streamed: bool = False

    @property
    def rows(self) -> int:
        return len(self.vertices)


class RelationalView(View):
    """A view of a heterogeneous graph; `take_features` completes it.

    Parameters
    ----------
    graph : Graph
    kind : VertexType
        The type to predict, with labels.
    comm : Comm
        The ranks that divide the vertices to score.
    fingerprint : str
    split : str, optional
        The vertices to train on; by default the training split, which must hold some.
    times : SeedTimes, optional
        Draw nothing later than each seed.
    relations : RelationAdjacency, optional
        Those of the graph, if they lie in block rows; by default they are whole.
    weighted : bool
        Exact means are by edge weight, in the relations that have weights.

    Attributes
    ----------
    blocks : TypeLayouts, optional
        The block rows of features and of learned rows; None if every rank holds them whole.
    """

    all_degrees = None

    def __init__(
        self, graph: Graph, kind: VertexType, comm: Comm, backend: Backend, fingerprint: str, split: str | None = None,
        times: SeedTimes | None = None, relations: PartitionedRelations | None = None, weighted: bool = False,
    ) -> None:  # fmt: skip
        assert kind.labels is not None
        self.weighted = weighted and any(relation.adjacency.values is not None for relation in graph.relations)
        self.graph, self.kind, self.times, self.fingerprint = graph, kind, times, fingerprint
        self.name, self.num_classes = graph.name, kind.num_classes
        self.relations_of_row = max(Counter(relation.destination for relation in graph.relations).values(), default=1)
        self.relations = relations or RelationAdjacency(graph, backend)
        self.adjacency = self.relations
        self.sampling = relations.grid.comm if relations else None
        self.seeds = kind.seeds(split) if split else kind.default_seeds(training=True)
        self.labels = kind.labels[self.seeds]
        own = np.array_split(np.arange(kind.count, dtype=np.int32), comm.size)[comm.rank]
        rows = ScoredRows(own, kind.labels[own], {split: mask[own] for split, mask in kind.masks.items()})
        self.share = cast(Any, rows)
        self.blocks: TypeLayouts | None = None

    def take_features(self, features: TypeFeatures, blocks: TypeLayouts | None = None) -> None:
        """Fetch features from here from now on; `blocks` are their block rows, if they lie in some."""
        self.features, self.num_features, self.blocks = cast(Any, features), features.width, blocks
        self.memory = {
            "adjacency": self.relations.held_bytes,
            "features": features.nbytes(),
            "replicated": self.seeds.nbytes + self.labels.nbytes + (0 if blocks is None else blocks.nbytes()),
        }

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        blocks = self.relations.blocks if self.blocks is None and isinstance(self.relations, PartitionedRelations) else self.blocks
        return vertices if blocks is None else blocks.of[self.kind.name].part_order(vertices)

    @property
    def schema(self) -> Schema:
        """The types and relations, as a model sees them."""
        return schema_of(self.graph, self.kind.name)

    def loader(self, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of vertices of the target type, each at its time."""
        times = self.times
        rule = None if times is None else rule_for(times.rule, sampler)
        first = int(self.graph.offsets[self.graph.place(self.kind.name)])
        stamps = None if times is None else frozen(times.of_vertex[vertices], np.int64)
        places = frozen(np.arange(len(vertices)), np.int64)
        seeds = SeedList(frozen(first + vertices.astype(np.int64), np.int32), places, stamps, None, self.graph.n)
        if isinstance(sampler, LayerWise):
            return OneTypeLoader(self.kind.name, self.relations, UnionSampler(sampler, means=True), seeds, **options)
        weigh = self.weighted and isinstance(sampler, Full)
        law = RelationSampler(cast(NodeWise, sampler), time=rule, entries=weigh)
        if weigh:
            then = options.get("transform", list)
            options["transform"] = lambda bulk: then([weighed(minibatch, self.graph) for minibatch in bulk])
        return OneTypeLoader(self.kind.name, self.relations, law, seeds, **options)


def weighed(minibatch: HeteroMiniBatch, graph: Graph) -> HeteroMiniBatch:
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
    return replace(minibatch, blocks=tuple(blocks))


def schema_of(graph: Graph, target: str) -> Schema:
    """Return the types and relations of a graph, and the type to predict."""
    counts, widths = ({kind.name: getattr(kind, of) for kind in graph.types} for of in ("count", "num_features"))
    return Schema(counts, widths, tuple(relation.key for relation in graph.relations), target)
