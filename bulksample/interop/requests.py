"""Requests of loaders, for plain mini-batches or for those by type and relation: sampler, seeds, bulks and columns."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .. import samplers
from ..adjacency import Adjacency
from ..backends.base import Backend
from ..config import DEFAULT_FANOUTS
from ..config.options import drawn_fanouts
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..graph import Graph
from ..graph.minibatch import MiniBatch
from ..graph.seed_list import SeedList
from ..graph.selection import seed_ids
from ..loading.loader import BulkLoader
from ..loading.seed_groups import SeedGroups
from ..local_adjacency import LocalAdjacency
from ..profiling import Profile
from ..samplers import AnySampler, LayerWise, NodeWise, Sampler
from ..samplers.hgt import HGSampler
from ..samplers.time_rule import TimeRule
from ..views.edges import EdgeRows, EdgeSource
from .columns import ColumnsByType, Fetched, PlainColumns, TableRows

if TYPE_CHECKING:
    from ..training.batches import StepBatch
    from ..views.view import View


Fanouts = Sequence[int] | Mapping[Any, Sequence[int]]
Reader = Callable[..., PlainColumns | ColumnsByType]


class Request(ABC):
    """The sampler and the seeds that a loader was asked for, and how it draws and reads mini-batches of them.

    Attributes
    ----------
    law : Sampler or HGSampler
    seeds : integers, or SeedList
    """

    law: Any
    seeds: Any

    def loader(self, adjacency: Adjacency, rank: int, ranks: int, seed_locality: int | None, **options: Any) -> BulkLoader:
        """Return the loader of bulks of mini-batches."""
        groups = None if seed_locality is None else SeedGroups(seed_locality, self.part_order())
        return BulkLoader(adjacency, self.law, self.seeds, rank=rank, ranks=ranks, even=True, groups=groups, **options)

    @abstractmethod
    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings that ranks must share, and the hashes of what is too long to show."""

    @abstractmethod
    def part_order(self) -> np.ndarray:
        """Return the place of each seed in the order of block rows."""

    @abstractmethod
    def adjacency(self, engine: Backend) -> Adjacency:
        """Return the adjacency of a graph in this process."""

    @abstractmethod
    def view(self, engine: Backend, edge_ids: bool) -> View:
        """Return the view of a graph that ranks share; collective."""

    @abstractmethod
    def reader(self, cores: int, profile: Profile | None, view: View | None = None) -> Reader:
        """Return what makes the columns of a mini-batch, of a step of a shared graph; `cores` threads gather dense features."""


class PlainRequest(Request):
    """The mini-batches of a plain graph. Raises `UsageError` for an argument of `bulksample.Loader` that does not suit it."""

    def __init__(
        self, graph: Graph | RankGraph, sampler: Any, fanouts: Fanouts | None, options: dict[str, Any], seeds: Any
    ) -> None:  # fmt: skip
        self._graph, self._given = graph, seeds
        self._named = seeds is None or isinstance(seeds, str)
        self.law = _plain_sampler(sampler, fanouts, options)
        drawn_fanouts(self.law.fanouts)
        if isinstance(graph, Graph) or not self._named:
            self.seeds = self._chosen()

    def _chosen(self) -> NDArray[np.int32]:
        """Return the ids of the seeds; collective if they are those of a split of a graph that ranks share."""
        graph = self._graph
        if self._named:
            chosen = graph.default_seeds() if self._given is None else graph.seeds(self._given)
        else:
            chosen = seed_ids(self._given, graph.n)
        if not len(chosen):
            raise UsageError(f"seeds choose none of the {graph.n} vertices of graph {graph.name!r}; use seeds='all' or ids")
        chosen.flags.writeable = False  # a loader takes it without a copy
        return chosen

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        settings = {**self.law.settings, "seeds": self._given if self._named else "a list of vertices"}
        return settings, {"seeds": None if self._named else _hash(self.seeds)}

    def part_order(self) -> np.ndarray:
        order: np.ndarray = self._graph.part_order(self.seeds) if isinstance(self._graph, RankGraph) else self.seeds
        return order

    def adjacency(self, engine: Backend) -> Adjacency:
        assert isinstance(self._graph, Graph)
        self._graph.check_structure()
        return LocalAdjacency(self._graph.adjacency, engine)

    def view(self, engine: Backend, edge_ids: bool) -> View:
        from ..views.loading import loading_view

        if self._named:
            self.seeds = self._chosen()
        assert isinstance(self._graph, RankGraph)
        return loading_view(self._graph, engine, self.seeds, edge_ids)

    def reader(self, cores: int, profile: Profile | None, view: View | None = None) -> Reader:
        graph, shared = self._graph, cast(Any, view)
        if isinstance(graph, Graph):
            return _Plain(graph, cores, self.seeds, profile)
        labels = (lambda part: shared.truth(part.seeds)) if graph.has_labels else None

        def columns(minibatch: MiniBatch, step: StepBatch) -> PlainColumns:
            whole = shared.adjacency.whole_matrix  # where edges are found, if this rank has it and the step brought none
            source = EdgeSource(whole, None) if step.edges is None and whole is not None else None
            table = Fetched(step.x if graph.num_features else None, labels)
            held = step.edges or EdgeRows(None, None)
            return PlainColumns(minibatch, graph.name, table, lambda own: source.start(*own.edge_ends())() if source else held)

        return columns


class RelationalRequest(Request):
    """The mini-batches of any graph by type and relation. Raises `UsageError` or `DataError` for an argument that does not suit it."""

    def __init__(
        self, graph: Graph | RankGraph, sampler: Any, fanouts: Fanouts | None, options: dict[str, Any], seeds: Any,
        times: Any, starts: Any, time_unit: str | None, time: TimeRule | None, disjoint: bool | None,
    ) -> None:  # fmt: skip
        self._share = graph if isinstance(graph, RankGraph) else None
        self._graph = whole = graph.graph if isinstance(graph, RankGraph) else graph
        self.seeds = SeedList.of(whole, seeds, times, starts, time_unit)
        if not len(self.seeds.vertices):
            raise UsageError(f"seeds choose none of the {whole.n} vertices of graph {whole.name!r}; choose at least one")
        timed = times is not None
        brought = isinstance(sampler, AnySampler) and (sampler.by_relation or isinstance(sampler, HGSampler))
        rule = TimeRule() if time is None and timed and not brought else time
        self.law = relation_sampler(whole, sampler, fanouts, rule, disjoint, options)
        drawn_fanouts(self.law.most_drawn([relation.key for relation in whole.relations]))
        if timed and getattr(self.law, "time", None) is None:
            raise UsageError(
                f"got times, but no time counts in this {type(self.law).__name__}; use sage, labor or full with time=TimeRule()"
            )

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        assert self._share is not None
        seeds = self.seeds
        columns = {"seeds": (seeds.vertices, seeds.places), "times": (seeds.times, seeds.starts)}
        return self.law.settings, {name: [None if one is None else _hash(one) for one in own] for name, own in columns.items()}

    def part_order(self) -> np.ndarray:
        share = self._share
        place = None if share is None else lambda name, vertices: share.part_order(vertices, name)
        order: np.ndarray = self.seeds.part_order(self._graph, place)
        return order

    def adjacency(self, engine: Backend) -> Adjacency:
        return LocalAdjacency(self._graph, engine, by_type=True)

    def view(self, engine: Backend, edge_ids: bool) -> View:
        from ..views.loading import relation_loading_view

        assert self._share is not None
        return relation_loading_view(self._share, engine)

    def reader(self, cores: int, profile: Profile | None, view: View | None = None) -> Reader:
        bounds, vertices = self._graph.offsets, self.seeds.vertices
        own = [vertices[(vertices >= first) & (vertices < last)] - first for first, last in pairwise(bounds)]
        kinds = zip(self._graph.types, own, strict=True)
        return _ByTypeReader(self._graph, {kind.name: TableRows(kind, cores, seeds, profile) for kind, seeds in kinds})


class _Plain:
    """Makes the columns of mini-batches of a plain graph in this process."""

    def __init__(self, graph: Graph, cores: int, seeds: np.ndarray, profile: Profile | None) -> None:
        self._graph, self._table = graph, TableRows(graph.types[0], cores, seeds, profile)

    def __call__(self, minibatch: MiniBatch, step: StepBatch | None = None) -> PlainColumns:
        return PlainColumns(minibatch, self._graph.name, self._table, self._edges)

    def _edges(self, minibatch: MiniBatch) -> EdgeRows:
        return EdgeSource(self._graph.adjacency, self._graph.edge_features).start(*minibatch.edge_ends())()


class _ByTypeReader:
    """Makes the columns of mini-batches by type and relation; features that were fetched for a step take the place of the graph's."""

    def __init__(self, graph: Graph, tables: dict[str, TableRows]) -> None:
        self._graph, self._tables = graph, tables

    def __call__(self, minibatch: Any, step: StepBatch | None = None) -> ColumnsByType:
        tables: Mapping[str, TableRows | Fetched] = self._tables
        if step is not None:
            x: Any = step.x
            tables = {name: Fetched(x.get(name), own.y) for name, own in self._tables.items()}
        return ColumnsByType(minibatch, self._graph.name, tables, self._graph.relations)


def _hash(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _plain_sampler(sampler: str | Sampler, fanouts: Any, options: dict[str, Any]) -> Sampler:
    """Make the sampler of that name; a sampler is returned as it is."""
    if not isinstance(sampler, Sampler):
        return samplers.make(sampler, DEFAULT_FANOUTS if fanouts is None else fanouts, **options)
    if fanouts is not None or options:
        raise UsageError(f"got a sampler object, and fanouts or options besides; use the name {sampler.name!r} to give them here")
    return sampler


def relation_sampler(
    graph: Graph, sampler: str | Sampler | HGSampler, fanouts: Fanouts | None, time: TimeRule | None, disjoint: bool | None,
    options: dict[str, Any],
) -> Sampler | HGSampler:  # fmt: skip
    """Make the sampler of that name on a graph; a sampler object takes the rule of time and the trees, unless it brings its own."""
    if isinstance(sampler, HGSampler) and (fanouts is not None or options or time is not None or disjoint is not None):
        raise UsageError("got an HGSampler, and fanouts, time, disjoint or options besides; leave them out")
    if isinstance(sampler, HGSampler):
        return sampler
    of_relations = None
    if isinstance(fanouts, Mapping) and not isinstance(sampler, Sampler):
        of_relations = {graph.relation(key).key: samplers.whole_fanouts(given) for key, given in fanouts.items() if key != "default"}
        missing = [":".join(relation.key) for relation in graph.relations if relation.key not in of_relations]
        if missing and "default" not in fanouts:
            raise UsageError(f"fanouts name no relation {missing[0]}; name every relation, or give a 'default'")
        default = fanouts["default"] if "default" in fanouts else next(iter(of_relations.values()))
        made = samplers.make(sampler, default, **options)
    else:
        made = _plain_sampler(sampler, fanouts, options)
    own = {"of_relations": of_relations, "time": time, "disjoint": disjoint}
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    if isinstance(made, NodeWise) and made.draws_by_row:
        if given and made.by_relation:
            raise UsageError(f"got a sampler object with options of its own, and {', '.join(given)} besides; give them to the sampler")
        return replace(made, **given)
    if not isinstance(made, LayerWise):
        raise UsageError(f"sampler {made.name!r} works on one relation; by type and relation use sage, labor, full, ladies or fastgcn")
    if of_relations is not None or time is not None or disjoint:
        raise UsageError(f"sampler {made.name!r} draws from all relations together; leave out fanouts by relation, times and disjoint")
    return made
