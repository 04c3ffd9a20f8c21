"""The graph of a run of model averaging: the server opens it whole and partitions it, each trainer opens its part.

The vertices of a heterogeneous graph are those of all types, in one numbering. They are partitioned by the union of all relations, so a
part holds vertices of every type, and the edges of every relation among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from ...config.train import TrainOptions
from ...data.link_examples import LinkExamples
from ...distributed.comm.threads import SerialComm
from ...graph import NODE, Graph, VertexType
from ...graph.induced import by_type, induced
from ...local_adjacency import LocalAdjacency, union_of
from ...sparse import CSR
from ...training.edge_task import link_rule
from ...training.link_batches import without_labels
from ...training.setup import check_labels, check_seeds, whole_type_view
from ...training.source import ViewRequest, load_graph, seed_times_of, target_of_run
from ...views.local import local_graph, part_of
from ...views.plain_view import whole_view
from ...views.type_view import LinkTargets, TypeTargets, schema_of
from ...views.view import View, as_weighed
from ..part_method import check_learned


class DividedGraph(ABC):
    """The graph of a run, of which a process opens the whole or a part.

    `load`, which the server calls, sets `adjacency`, of all n vertices, and where vertices are predicted `split`, the name of the training
    split, and `labels`, shape (n, ...), if they are classes.
    """

    adjacency: CSR
    labels: np.ndarray | None = None
    split = "all"
    _graph: Graph

    def __init__(self, config: TrainOptions, request: ViewRequest) -> None:
        self._config, self._request, self._links = config, request, request.links

    @abstractmethod
    def load(self) -> None:
        """Open the whole graph, as the server does.

        Raises `UsageError` if there are no labels or seeds to train on, and `DataError` if the graph is malformed.
        """

    @abstractmethod
    def count_examples(self, vertices: np.ndarray) -> int:
        """Return the number of seeds or, for link prediction, of edges in a part, given its vertices."""

    @abstractmethod
    def _part(self, vertices: np.ndarray) -> Graph:
        """Return the subgraph induced by some vertices, ascending."""

    @abstractmethod
    def _view(self, graph: Graph, split: str) -> View:
        """Return a view of the graph or of a part of it, which trains on a split."""

    @abstractmethod
    def _origin(self, vertices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the vertices of a part by type, ascending."""

    def whole_view(self) -> View:
        """Return a view of the whole graph, which `load` has opened."""
        return self._view(self._graph, self.split)

    def part_view(self, vertices: np.ndarray, split: str) -> View:
        """Return a view of the subgraph induced by some vertices, ascending, which trains on a split of them."""
        view = self._view(self._part(vertices), split)
        view.origin = self._origin(vertices)
        return view


def divided_graph(config: TrainOptions, request: ViewRequest) -> DividedGraph:
    """Return the graph of a run; nothing is read yet."""
    return (_Relations if config.is_relational else _OneType)(config, request)


class _OneType(DividedGraph):
    """A graph with vertices of one type."""

    def load(self) -> None:
        config = self._config
        graph = as_weighed(load_graph(self._request.source, config.label, config.target), self._request.weighted)
        if self._links:
            self._links.check_absent(Graph(graph.adjacency))
        else:
            check_labels(graph.name, graph.labels, graph.num_classes)
            self.split = config.seeds or graph.default_split(training=True)
        seeds = graph.seeds(self.split)
        check_seeds(graph.name, seeds, None if self._links or graph.labels is None else graph.labels[seeds])
        self._graph, self.adjacency, self.labels = graph, graph.adjacency, graph.labels

    def count_examples(self, vertices: np.ndarray) -> int:
        if self._links:
            return len(LinkExamples.of(Graph(local_graph(vertices, self.adjacency.take(vertices), 0)[1])).edges)
        return len(np.intersect1d(self._graph.seeds(self.split), vertices))

    def _origin(self, vertices: np.ndarray) -> dict[str, np.ndarray]:
        return {NODE: vertices}

    def _part(self, vertices: np.ndarray) -> Graph:
        return part_of(self._request.source, vertices, self._config.label, self._config.target)

    def _view(self, graph: Graph, split: str) -> View:
        config, request = self._config, self._request
        graph = without_labels(graph) if self._links else graph
        return whole_view(graph, SerialComm(), request.backend, request.fingerprint, split, config.feature_norm, request.weighted)


class _Relations(DividedGraph):
    """A heterogeneous graph, whose columns are opened already; a part copies its own rows, and has no link to a vertex of another part."""

    _link_target: str | None

    def __init__(self, config: TrainOptions, request: ViewRequest) -> None:
        super().__init__(config, request)
        graph = request.source
        assert isinstance(graph, Graph)
        if self._links:
            self._graph, self._rule = graph, link_rule(config, graph, self._links)
            self._target, _, self._link_target = self._links.relation
        else:
            kind = target_of_run(graph, config.target_type, config.label).with_label(config.label, config.target)
            types = tuple(kind if one.name == kind.name else one for one in graph.types)
            self._graph, self._target, self._link_target = replace(graph, types=types), kind.name, None

    def load(self) -> None:
        graph, request = self._graph, self._request
        if not self._links:
            self._load_labels(graph.type(self._target))
        schema = schema_of(graph, self._target)._replace(link_target=self._link_target)
        check_learned(self._config, graph.name, schema, "trainers average equal shapes of weights")
        request.sampler.check(LocalAdjacency(graph, request.backend, by_type=True))  # a part may not show what does not fit
        self.adjacency = union_of(graph)

    def _load_labels(self, kind: VertexType) -> None:
        check_labels(f"type {kind.name!r}", kind.labels, kind.num_classes)
        self.split = self._config.seeds or kind.default_split(training=True)
        seeds = kind.seeds(self.split)
        assert kind.labels is not None
        check_seeds(f"type {kind.name!r}", seeds, kind.labels[seeds])
        first = int(self._graph.offsets[self._graph.place(kind.name)])
        self._seeds = first + seeds
        if kind.labels.dtype.kind != "f":
            self.labels = np.full((self._graph.n, *kind.labels.shape[1:]), -1, kind.labels.dtype)
            self.labels[first : first + kind.count] = kind.labels

    def count_examples(self, vertices: np.ndarray) -> int:
        if self._links:
            part = self._part(vertices)
            return len(LinkExamples(part, part.relation(self._links.relation), self._rule is not None).edges)
        return len(np.intersect1d(self._seeds, vertices))

    def _origin(self, vertices: np.ndarray) -> dict[str, np.ndarray]:
        return by_type(self._graph, vertices)

    def _part(self, vertices: np.ndarray) -> Graph:
        return induced(self._graph, vertices)

    def _view(self, graph: Graph, split: str) -> View:
        config, request, kind = self._config, self._request, graph.type(self._target)
        targets = (
            LinkTargets(graph, self._links.relation, self._rule, self._links.reverses)
            if self._links
            else TypeTargets(graph, kind, split, seed_times_of(config, graph, kind), request.weighted)
        )
        return whole_type_view(config, targets, request.backend, request.fingerprint)
