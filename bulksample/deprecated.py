"""Names of earlier versions, which warn and do what took their place; they go with 0.3."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .data.manifest import Manifest
from .distributed.comm.base import Comm
from .distributed.matrix.layout import TypeLayouts
from .distributed.matrix.placement import Placement
from .distributed.matrix.rank_graph import OpenedAs, RankGraph
from .distributed.matrix.relation_blocks import RelationBlock
from .errors import UsageError
from .graph import Graph, Key, Relation, VertexType
from .graph.times import as_times
from .interop.batch import Batch
from .interop.loader import Loader
from .samplers import LayerWise, NodeWise
from .samplers.time_rule import TimeRule


class _Instances(type):
    """Has as instances what `has` is true of."""

    has: Callable[[Any], bool]

    def __instancecheck__(cls, value: Any) -> bool:
        return cls.has(value)


class HeteroGraph(metaclass=_Instances):
    """`Graph.of`. Every graph that is not plain is an instance of it."""

    has = staticmethod(lambda graph: isinstance(graph, Graph) and not graph.plain)

    def __new__(cls, types: Iterable[VertexType], relations: Iterable[Relation] = (), name: str = "graph") -> Graph:  # type: ignore[misc]
        _warn("HeteroGraph(types, relations)", "Graph.of(types, relations)")
        return Graph.of(types, relations, name)

    @staticmethod
    def from_homogeneous(graph: Graph, times: Any = None, type_name: str = "node", relation_name: str = "to") -> Graph:
        """Return a plain graph with names of its own, and times of its vertices."""
        _warn("HeteroGraph.from_homogeneous(graph, times)", "Graph.of, with a VertexType and a Relation")
        stamps = None if times is None else as_times(f"times of type {type_name!r}", times, graph.n)
        kind = replace(graph.types[0], name=type_name, times=stamps)
        edges = replace(graph.relations[0], source=type_name, name=relation_name, destination=type_name, parallel=True)
        return Graph.of((kind,), (edges,), graph.name)


def HeteroLoader(*arguments: Any, **options: Any) -> Loader:
    """Return ``Loader(..., as_dicts=True, out="numpy")``."""
    _warn("HeteroLoader(...)", "Loader(..., as_dicts=True), with out='numpy' for arrays of numpy")
    return Loader(*arguments, **{"as_dicts": True, "out": "numpy", **options})


class HeteroBatch(metaclass=_Instances):
    """`Batch`. Every batch whose values are dicts is an instance of it."""

    has = staticmethod(lambda batch: isinstance(batch, Batch) and batch.by_type)


class RankHeteroGraph(metaclass=_Instances):
    """`RankGraph`. Every share of a graph that is not plain is an instance of it."""

    has = staticmethod(lambda share: isinstance(share, RankGraph) and not share.plain)

    def __new__(  # type: ignore[misc]
        cls, comm: Comm, graph: Graph, fingerprint: str, placement: Placement, relations: list[RelationBlock] | None,
        rows: TypeLayouts | None, features: Mapping[str, Any], blocks: TypeLayouts | None, leases: Any = (), opened: OpenedAs | None = None,
    ) -> RankGraph:  # fmt: skip
        _warn("RankHeteroGraph(comm, graph, ...)", "bulksample.load(path, world=comm)")
        stored = Manifest.of(graph, {}).model_copy(update={"digest": fingerprint})
        x = features if blocks else {kind.name: kind.features for kind in graph.types if kind.features is not None}
        lease, how = next(iter(leases), None), opened or OpenedAs("")
        return RankGraph(comm, stored, placement, graph, x, rows, blocks, relations, lease=lease, opened=how)


def RelationSampler(
    base: NodeWise, fanouts: Mapping[Key, Sequence[int]] | None = None, time: TimeRule | None = None, disjoint: bool | None = None,
    stride: int = 0, entries: bool | None = None,
) -> NodeWise:  # fmt: skip
    """Return the sampler with these options of relations, times and trees."""
    _warn("RelationSampler(base, ...)", "dataclasses.replace(base, of_relations=..., time=...), or these arguments of the sampler itself")
    if not isinstance(base, NodeWise) or not base.draws_by_row:
        raise UsageError(f"relations are sampled node by node; got {base!r}; use sage, labor or full")
    of_relations: Any = fanouts
    return replace(base, of_relations=of_relations, time=time, disjoint=disjoint, stride=stride, entries=entries)


def UnionSampler(base: LayerWise, means: bool = False) -> LayerWise:
    """Return the sampler, whose weights estimate the mean over each relation if asked for."""
    _warn("UnionSampler(base)", "the sampler itself, with means=True where it was given")
    if not isinstance(base, LayerWise):
        raise UsageError(f"the union of relations is sampled layer by layer; got {base!r}; use ladies or fastgcn")
    return replace(base, means=means)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} goes with version 0.3; use {new}", DeprecationWarning, stacklevel=3)
