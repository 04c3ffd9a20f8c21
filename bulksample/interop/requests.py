"""The request of a loader: the sampler, the seeds, and how bulks of mini-batches and their columns are made of them.

A plain graph has one type and one relation. Unless a user asks for dictionaries, its seeds are one list of vertices, and ranks that share
it fetch labels and edges from their owners.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import samplers
from ..adjacency import Adjacency
from ..backends import on_host
from ..backends.base import Backend
from ..config import DEFAULT_FANOUTS
from ..config.options import drawn_fanouts
from ..data import store
from ..distributed.matrix.rank_graph import RankGraph
from ..distributed.matrix.relation_blocks import RelationBlock
from ..errors import UsageError
from ..graph import NODE, Graph
from ..graph.minibatch import MiniBatch
from ..graph.seed_list import SeedList
from ..graph.selection import seed_ids
from ..loading.division import SeedGroups
from ..loading.loader import BulkLoader
from ..loading.weighted_seeds import class_weights
from ..local_adjacency import LocalAdjacency
from ..profiling import Profile
from ..samplers import AnySampler, LayerWise, NodeWise, Sampler
from ..samplers.hgt import HGSampler
from ..samplers.time_rule import TimeRule
from ..views.edges import EdgeRows, EdgeSource
from .columns import Columns, EdgesByEntry, Fetched, TableRows

if TYPE_CHECKING:
    from ..training.batches import StepBatch
    from ..views.view import View


Fanouts = Sequence[int] | Mapping[Any, Sequence[int]]


class Request:
    """The sampler and the seeds that a loader was asked for, and how it draws and reads mini-batches of them.

    Mini-batches are by type and relation if `by_type`, else the graph is plain. The others are arguments of `bulksample.Loader`;
    `UsageError` or `DataError` is raised for one that does not suit the graph.
    """

    law: Any  # the sampler
    seeds: Any  # a SeedList; of plain mini-batches int32, shape (m,). Those of a split that ranks share are known once there is a `view`

    def __init__(
        self, graph: Graph | RankGraph, by_type: bool, sampler: Any, fanouts: Fanouts | None, options: dict[str, Any], seeds: Any,
        times: Any = None, starts: Any = None, time_unit: str | None = None, time: TimeRule | None = None, disjoint: bool | None = None,
    ) -> None:  # fmt: skip
        self.by_type, self._given, self._named = by_type, seeds, seeds is None or isinstance(seeds, str)
        self._graph = graph = share_by_type(graph) if by_type and isinstance(graph, RankGraph) and graph.plain else graph
        if not by_type:
            self.law = _made_sampler(sampler, fanouts, options)
            drawn_fanouts(self.law.fanouts)
            if isinstance(graph, Graph) or not self._named:
                self.seeds = self._chosen()
            return
        self.seeds = SeedList.of(self._whole, seeds, times, starts, time_unit)
        self._check_chosen(self.seeds.vertices)
        timed = times is not None
        brought = isinstance(sampler, AnySampler) and (sampler.by_relation or isinstance(sampler, HGSampler))
        rule = TimeRule() if time is None and timed and not brought else time
        self.law = relation_sampler(self._whole, sampler, fanouts, rule, disjoint, options)
        drawn_fanouts(self.law.most_drawn([relation.key for relation in self._whole.relations]))
        if timed and getattr(self.law, "time", None) is None:
            raise UsageError(
                f"got times, but no time counts in this {type(self.law).__name__}; use sage, labor or full with time=TimeRule()"
            )

    @property
    def _whole(self) -> Graph:
        """The graph of all ranks; mapped from its store if they share it."""
        return self._graph if isinstance(self._graph, Graph) else self._graph.graph

    def _chosen(self) -> NDArray[np.int32]:
        """Return the ids of the seeds of a plain graph; collective if they are those of a split and ranks share it."""
        graph = self._graph
        if self._named:
            chosen = graph.default_seeds() if self._given is None else graph.seeds(self._given)
        else:
            chosen = seed_ids(self._given, graph.n)
        self._check_chosen(chosen)
        chosen.flags.writeable = False  # a loader takes it without a copy
        return chosen

    def _check_chosen(self, vertices: np.ndarray) -> None:
        if not len(vertices):
            fits = "choose at least one" if self.by_type else "use seeds='all' or ids"
            raise UsageError(f"seeds choose none of the {self._graph.n} vertices of graph {self._graph.name!r}; {fits}")

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings that ranks must share, and the hashes of what is too long to show."""
        if not self.by_type:
            settings = {**self.law.settings, "seeds": self._given if self._named else "a list of vertices"}
            return settings, {"seeds": None if self._named else hash_of(self.seeds)}
        named, seeds = {"seeds": "those of as_dicts=True"} if isinstance(self._graph, _ShareByType) else {}, self.seeds
        columns = {"seeds": (seeds.vertices, seeds.places), "times": (seeds.times, seeds.starts)}
        return self.law.settings | named, {name: [None if one is None else hash_of(one) for one in two] for name, two in columns.items()}

    def loader(self, adjacency: Adjacency, rank: int, ranks: int, seed_locality: int | None, **options: Any) -> BulkLoader:
        """Return the loader of bulks of mini-batches; collective if seeds are weighed by labels that ranks share."""
        if isinstance(weights := options.get("sampling_weights"), str):
            if weights != "class":
                raise UsageError(f"sampling_weights: got {weights!r}; use 'class', or numbers, one for each seed")
            options["sampling_weights"] = class_weights(self._classes())
        groups = None if seed_locality is None else SeedGroups(seed_locality, self._part_order())
        return BulkLoader(adjacency, self.law, self.seeds, rank=rank, ranks=ranks, even=True, groups=groups, **options)

    def _classes(self) -> np.ndarray:
        """Return the class of each seed: integers, shape (m,), -1 where there is none; classes of two types differ."""
        if not self.by_type:
            graph, (distinct, at) = self._graph, np.unique(self.seeds, return_inverse=True)
            if isinstance(graph, RankGraph):
                labels = graph.labels_of(distinct) if graph.has_labels else None
            else:
                labels = None if graph.labels is None else graph.labels[distinct]
            if labels is None:
                raise UsageError(f"sampling_weights 'class' needs labels, and graph {graph.name!r} has none; give the weight of each seed")
            return np.asarray(labels)[at]
        whole, vertices = self._whole, self.seeds.vertices
        classes, before = np.full(len(vertices), -1, np.int64), 0
        kinds = np.searchsorted(whole.offsets, vertices, side="right") - 1
        for t in np.unique(kinds).tolist():
            kind, of_kind = whole.types[t], kinds == t
            if kind.labels is None or kind.labels.ndim != 1 or kind.labels.dtype.kind not in "iu":
                what = f"needs one class a vertex, and type {kind.name!r} has none"
                raise UsageError(f"sampling_weights 'class' {what}; give the weight of each seed")
            labels = np.asarray(kind.labels)[vertices[of_kind] - whole.offsets[t]].astype(np.int64)
            classes[of_kind] = np.where(labels >= 0, labels + before, -1)
            before += int(labels.max(initial=-1)) + 1
        return classes

    def _part_order(self) -> np.ndarray:
        """Return the place of each seed in the order of block rows."""
        share = self._graph if isinstance(self._graph, RankGraph) else None
        if not self.by_type:
            plain: np.ndarray = self.seeds if share is None else share.part_order(self.seeds)
            return plain
        place = None if share is None else lambda name, vertices: share.part_order(vertices, name)
        order: np.ndarray = self.seeds.part_order(self._whole, place)
        return order

    def adjacency(self, engine: Backend) -> Adjacency:
        """Return the adjacency of a graph in this process."""
        return LocalAdjacency(self._whole, engine, by_type=self.by_type)

    def view(self, engine: Backend, edge_ids: bool) -> View:
        """Return the view of a graph that ranks share; collective."""
        from ..views.loading import loading_view, relation_loading_view

        assert isinstance(self._graph, RankGraph)
        if self.by_type:
            return relation_loading_view(self._graph, engine)
        if self._named:
            self.seeds = self._chosen()
        return loading_view(self._graph, engine, self.seeds, edge_ids)

    def reader(self, cores: int, profile: Profile | None, view: View | None = None) -> Reader:
        """Return what makes the columns of a mini-batch, of a step of a shared graph; `cores` threads read features."""
        graph = self._graph
        if view is not None and not self.by_type:
            assert isinstance(graph, RankGraph)
            labels = (lambda part: view.truth(part.seeds)) if graph.has_labels else None
            whole_graph = graph.held if isinstance(graph.held, Graph) else None
            fetched = {NODE: Fetched(None, labels, on_host(cores))}
            return Reader(graph.name, fetched, partial(_edges_by_ends, whole_graph), profile, bool(graph.num_features))
        whole = self._whole
        seeds = [self.seeds]
        if self.by_type:
            vertices = self.seeds.vertices
            seeds = [vertices[(vertices >= first) & (vertices < last)] - first for first, last in pairwise(whole.offsets)]
        tables = {kind.name: TableRows(kind, cores, of_type) for kind, of_type in zip(whole.types, seeds, strict=True)}
        edges: Any = partial(EdgesByEntry, relations=whole.relations) if self.by_type else partial(_edges_by_ends, whole)
        return Reader(whole.name, tables, edges, profile)


class Reader:
    """Makes the columns of mini-batches; what was fetched for a step takes the place of the graph's own columns."""

    def __init__(
        self, name: str, tables: Mapping[str, TableRows | Fetched], edges: Callable[[MiniBatch], EdgesByEntry | EdgeRows],
        profile: Profile | None, has_features: bool = True,
    ) -> None:  # fmt: skip
        self._name, self._tables, self._edges, self._profile, self._has_features = name, tables, edges, profile, has_features

    def __call__(self, minibatch: Any, step: StepBatch | None = None) -> Columns:
        tables, edges = self._tables, self._edges
        if step is not None:
            x: Any = step.x if minibatch.by_type else {NODE: step.x} if self._has_features else {}
            tables = {name: Fetched(x.get(name), table.y, table.engine) for name, table in tables.items()}
            if (rows := step.edges) is not None:
                edges = lambda _: rows  # noqa: E731
        return Columns(minibatch, self._name, tables, edges, self._profile)


def _edges_by_ends(graph: Graph | None, minibatch: MiniBatch) -> EdgeRows:
    """Return the columns of the edges of a plain graph, found by their ends; none if this process lacks the graph."""
    if graph is None:
        return EdgeRows(None, None)
    return EdgeSource(graph.adjacency, graph.edge_features).start(*minibatch.edge_ends())()


class _ShareByType(RankGraph):
    """The share of a plain graph, which is read as any other graph is."""

    plain = False


def share_by_type(graph: RankGraph) -> RankGraph:
    """Return the share of a plain graph for mini-batches by type and relation; not collective.

    The whole graph is mapped from the store, so labels and edge features are read there; a folder of parts is read into memory. Block rows
    of the topology and of the features are those of the share.
    """
    how, relations = graph.opened, None
    whole = store.load(how.directory, check="none", structure=False).with_label(how.label, how.target)
    if graph.rows is not None:
        assert graph.edges is not None
        block = graph.edges.block
        relations = [RelationBlock(block, graph.edges.first_entries - block.indptr[:-1], None)]
    columns = {field.name: getattr(graph, field.name) for field in fields(graph)}
    return _ShareByType(**columns | {"held": whole, "relations": relations})


def hash_of(array: np.ndarray) -> str:
    """Return a hash of the values of an array, by which ranks compare what is too long to show."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _made_sampler(sampler: str | Sampler, fanouts: Any, options: dict[str, Any]) -> Sampler:
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
    if isinstance(sampler, HGSampler):
        if fanouts is not None or options or time is not None or disjoint is not None:
            raise UsageError("got an HGSampler, and fanouts, time, disjoint or options besides; leave them out")
        return sampler
    of_relations = None
    if isinstance(fanouts, Mapping) and not isinstance(sampler, Sampler):
        of_relations = {graph.relation(key).key: samplers.whole_fanouts(draws) for key, draws in fanouts.items() if key != "default"}
        missing = [":".join(relation.key) for relation in graph.relations if relation.key not in of_relations]
        if missing and "default" not in fanouts:
            raise UsageError(f"fanouts name no relation {missing[0]}; name every relation, or give a 'default'")
        default = fanouts["default"] if "default" in fanouts else next(iter(of_relations.values()))
        made = samplers.make(sampler, default, **options)
    else:
        made = _made_sampler(sampler, fanouts, options)
    named = {"of_relations": of_relations, "time": time, "disjoint": disjoint}
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if isinstance(made, NodeWise) and made.draws_by_row:
        if changes and made.by_relation:
            raise UsageError(f"got a sampler object with options of its own, and {', '.join(changes)} besides; give them to the sampler")
        return replace(made, **changes)
    if not isinstance(made, LayerWise):
        raise UsageError(f"sampler {made.name!r} works on one relation; by type and relation use sage, labor, full, ladies or fastgcn")
    if of_relations is not None or time is not None or disjoint:
        raise UsageError(f"sampler {made.name!r} draws from all relations together; leave out fanouts by relation, times and disjoint")
    return made
