"""A heterogeneous graph that every rank holds whole. Vertices of one type are predicted, each at its own time if the graph has times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..loader import BulkLoader
from ..nn.layers import Input
from ..nn.relational import Schema
from ..relations.adjacency import RelationAdjacency
from ..relations.graph import HeteroGraph, VertexType
from ..relations.one_type import OneTypeLoader
from ..relations.rule import TimeRule
from ..relations.sampler import RelationSampler
from ..relations.seeds import SeedList
from ..samplers import Full, NodeWise, Sampler
from ..sparse import frozen
from .features import Features, Fetching, StoredFeatures
from .view import View, as_index


@dataclass(frozen=True, eq=False)
class SeedTimes:
    """When each vertex of the target type is asked about, and what may be drawn for it.

    Parameters
    ----------
    of_vertex : int64, shape (n,)
    rule : TimeRule
    """

    of_vertex: np.ndarray
    rule: TimeRule


class TypeFeatures:
    """Fetches the features of the vertices of each type; of a type without features, their ids.

    Parameters
    ----------
    graph : HeteroGraph
    norm, storage, threads
        See `Features`.
    """

    is_sparse = False

    def __init__(self, graph: HeteroGraph, norm: str = "none", storage: str = "given", threads: int = 0) -> None:
        self.types = [kind.name for kind in graph.types]
        self.held = {
            kind.name: Features(StoredFeatures(kind.name, kind.num_features, kind.features), norm, storage, threads)
            for kind in graph.types
            if kind.num_features
        }
        self.width = sum(features.width for features in self.held.values())

    def start(self, vertices: Mapping[str, np.ndarray] | np.ndarray) -> Fetching:
        """Start to fetch the rows of the vertices of each type, int32; anything but a dict stands for no vertices at all."""
        asked = vertices if isinstance(vertices, Mapping) else dict.fromkeys(self.types, np.empty(0, np.int32))
        under_way = {name: self.held[name].start(ids) for name, ids in asked.items() if name in self.held}

        def finish() -> dict[str, Input]:
            return {name: under_way[name].wait() if name in under_way else as_index(ids) for name, ids in asked.items()}

        return Fetching(cast(Any, finish))

    def nbytes(self) -> int:
        """Return the bytes of features that this rank holds."""
        return sum(features.nbytes() for features in self.held.values())


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
    """A view of a whole heterogeneous graph.

    Parameters
    ----------
    graph : HeteroGraph
    kind : VertexType
        The type to predict, with labels.
    comm : Comm
        The ranks that divide the vertices to score.
    fingerprint : str
    split : str, optional
        The vertices to train on; by default the training split, which must hold some.
    norm, storage, gathering
        `norm`, `storage` and `threads` of `Features`.
    times : SeedTimes, optional
        Draw nothing later than each seed.
    """

    all_degrees = None

    def __init__(
        self, graph: HeteroGraph, kind: VertexType, comm: Comm, backend: Backend, fingerprint: str, split: str | None = None,
        norm: str = "none", storage: str = "given", gathering: int = 0, times: SeedTimes | None = None,
    ) -> None:  # fmt: skip
        assert kind.labels is not None
        self.graph, self.kind, self.times, self.fingerprint = graph, kind, times, fingerprint
        self.name, self.num_classes = graph.name, kind.num_classes
        fetched = TypeFeatures(graph, norm, storage, gathering)
        self.num_features, self.features = fetched.width, cast(Any, fetched)
        self.relations = RelationAdjacency(graph, backend)
        self.adjacency = self.relations
        self.seeds = kind.seeds(split) if split else kind.default_seeds(training=True)
        self.labels = kind.labels[self.seeds]
        own = np.array_split(np.arange(kind.count, dtype=np.int32), comm.size)[comm.rank]
        rows = ScoredRows(own, kind.labels[own], {split: mask[own] for split, mask in kind.masks.items()})
        self.share = cast(Any, rows)
        self.memory = {
            "adjacency": sum(relation.adjacency.nbytes() for relation in graph.relations),
            "features": fetched.nbytes(),
            "replicated": self.seeds.nbytes + self.labels.nbytes,
        }

    @property
    def schema(self) -> Schema:
        """The types and relations, as a model sees them."""
        graph = self.graph
        counts, widths = ({kind.name: getattr(kind, of) for kind in graph.types} for of in ("count", "num_features"))
        return Schema(counts, widths, tuple(relation.key for relation in graph.relations), self.kind.name)

    def loader(self, sampler: Sampler, vertices: np.ndarray, **options: Any) -> BulkLoader:
        """Return a loader of vertices of the target type, each at its time."""
        times = self.times
        rule = None if times is None else rule_for(times.rule, sampler)
        first = int(self.graph.offsets[self.graph.place(self.kind.name)])
        stamps = None if times is None else frozen(times.of_vertex[vertices], np.int64)
        places = frozen(np.arange(len(vertices)), np.int64)
        seeds = SeedList(frozen(first + vertices.astype(np.int64), np.int32), places, stamps, None, self.graph.n)
        law = RelationSampler(cast(NodeWise, sampler), time=rule, entries=False)
        return OneTypeLoader(self.kind.name, self.relations, law, seeds, **options)


def rule_for(rule: TimeRule, sampler: Sampler) -> TimeRule:
    """Return the rule of time for a sampler: of all neighbors, the newest are all of them too."""
    return TimeRule(rule.by, strict=rule.strict) if isinstance(sampler, Full) else rule
