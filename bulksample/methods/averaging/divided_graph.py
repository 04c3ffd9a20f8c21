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
from ...data.link_split import LinkGraph
from ...distributed.comm.threads import SerialComm
from ...graph import Graph, VertexType
from ...graph.induced import induced
from ...local_adjacency import LocalAdjacency, union_of
from ...sparse import CSR
from ...training.link_batches import without_labels
from ...training.setup import check_labels, check_seeds, whole_type_view
from ...training.source import ViewRequest, link_rule, load_graph, seed_times_of, target_of_run
from ...views.local import local_graph, part_of
from ...views.plain_view import whole_view
from ...views.type_view import LinkTargets, TypeTargets, schema_of
from ...views.view import View, as_weighed
from ..part_method import check_learned

_SHAPES = "trainers average equal shapes of weights"


class DividedGraph(ABC):
    """The graph of a run, of which a process opens the whole or a part.

    Attributes
    ----------
    adjacency : CSR, shape (n, n)
        Of all vertices; `load` sets it, like `labels` and `split`.
    labels : array of shape (n, ...), optional
        A vertex that is not to be predicted has none.
    split : str
        The name of the training split.
    """

    adjacency: CSR
    labels: np.ndarray | None
    split: str

    @abstractmethod
    def load(self) -> None:
        """Open the whole graph, as the server does.

        Raises `UsageError` if there are no labels or seeds to train on, and `DataError` if the graph is malformed.
        """

    @abstractmethod
    def count_examples(self, vertices: np.ndarray) -> int:
        """Return the number of seeds or, for link prediction, of edges in a part, given its vertices."""

    @abstractmethod
    def whole_view(self) -> View:
        """Return a view of the whole graph, which `load` has opened."""

    @abstractmethod
    def part_view(self, vertices: np.ndarray, split: str) -> View:
        """Return a view of the subgraph induced by some vertices, ascending, which trains on a split of them."""


def divided_graph(config: TrainOptions, request: ViewRequest) -> DividedGraph:
    """Return the graph of a run; nothing is read yet."""
    if config.is_relational:
        assert isinstance(request.source, Graph)
        if config.task == "links":
            assert isinstance(request.source, LinkGraph)
            return _RelationLinks(config, request, request.source)
        return _Relations(config, request, request.source)
    return _OneType(config, request)


class _OneType(DividedGraph):
    """A graph with vertices of one type."""

    def __init__(self, config: TrainOptions, request: ViewRequest) -> None:
        self._config, self._request, self._links = config, request, config.task == "links"

    def load(self) -> None:
        config = self._config
        graph = as_weighed(load_graph(self._request.source, config.label, config.target), self._request.weighted)
        if not self._links:
            check_labels(graph.name, graph.labels, graph.num_classes)
        self.split = "all" if self._links else config.seeds or graph.default_split(training=True)
        seeds = graph.seeds(self.split)
        check_seeds(graph.name, seeds, None if self._links or graph.labels is None else graph.labels[seeds])
        self._graph, self.adjacency, self.labels = graph, graph.adjacency, graph.labels

    def count_examples(self, vertices: np.ndarray) -> int:
        if self._links:
            return len(LinkExamples.of(Graph(local_graph(vertices, self.adjacency.take(vertices), 0)[1])).edges)
        return len(np.intersect1d(self._graph.seeds(self.split), vertices))

    def whole_view(self) -> View:
        return self._view(self._graph, self.split)

    def part_view(self, vertices: np.ndarray, split: str) -> View:
        return self._view(part_of(self._request.source, vertices, self._config.label, self._config.target), split)

    def _view(self, graph: Graph, split: str) -> View:
        config, request = self._config, self._request
        graph = without_labels(graph) if self._links else graph
        return whole_view(graph, SerialComm(), request.backend, request.fingerprint, split, config.feature_norm, request.weighted)


class _Relations(DividedGraph):
    """A heterogeneous graph, whose columns are opened already; a part copies its own rows of them."""

    def __init__(self, config: TrainOptions, request: ViewRequest, graph: Graph) -> None:
        self._config, self._request = config, request
        kind = target_of_run(graph, config.target_type, config.label).with_label(config.label, config.target)
        types = tuple(kind if one.name == kind.name else one for one in graph.types)
        self._graph, self._target = replace(graph, types=types), kind.name

    @property
    def _kind(self) -> VertexType:
        return self._graph.type(self._target)

    def load(self) -> None:
        kind, graph = self._kind, self._graph
        check_labels(f"type {kind.name!r}", kind.labels, kind.num_classes)
        self.split = self._config.seeds or kind.default_split(training=True)
        seeds = kind.seeds(self.split)
        assert kind.labels is not None
        check_seeds(f"type {kind.name!r}", seeds, kind.labels[seeds])
        self._first = int(graph.offsets[graph.place(kind.name)])
        check_learned(self._config, graph.name, schema_of(graph, kind.name), _SHAPES)
        self._request.sampler.check(LocalAdjacency(graph, self._request.backend, by_type=True))  # a part may not show what does not fit
        self.adjacency = union_of(graph)
        self.labels = None
        if kind.labels.dtype.kind != "f":
            self.labels = np.full((graph.n, *kind.labels.shape[1:]), -1, kind.labels.dtype)
            self.labels[self._first : self._first + kind.count] = kind.labels

    def count_examples(self, vertices: np.ndarray) -> int:
        return len(np.intersect1d(self._first + self._kind.seeds(self.split), vertices))

    def whole_view(self) -> View:
        return self._view(self._graph, self.split)

    def part_view(self, vertices: np.ndarray, split: str) -> View:
        return self._view(induced(self._graph, vertices), split)

    def _view(self, graph: Graph, split: str) -> View:
        request, kind = self._request, graph.type(self._target)
        targets = TypeTargets(graph, kind, split, seed_times_of(self._config, graph, kind), request.weighted)
        return whole_type_view(self._config, targets, request.backend, request.fingerprint)


class _RelationLinks(DividedGraph):
    """A graph of which links of a relation are predicted; a part has those between its own vertices, and none of another part."""

    split = "all"
    labels = None

    def __init__(self, config: TrainOptions, request: ViewRequest, graph: LinkGraph) -> None:
        self._config, self._request, self._graph = config, request, graph

    def load(self) -> None:
        graph = self._graph
        self._held, self._rule = link_rule(self._config, graph)
        source, _, destination = self._held.relation
        check_learned(self._config, graph.name, schema_of(graph, source)._replace(link_target=destination), _SHAPES)
        self._request.sampler.check(LocalAdjacency(graph, self._request.backend, by_type=True))
        self.adjacency = union_of(graph)

    def count_examples(self, vertices: np.ndarray) -> int:
        part = induced(self._graph, vertices)
        return len(LinkExamples(part, part.relation(self._held.relation), self._rule is not None).edges)

    def whole_view(self) -> View:
        return self._view(self._graph)

    def part_view(self, vertices: np.ndarray, split: str) -> View:
        return self._view(induced(self._graph, vertices))

    def _view(self, graph: Graph) -> View:
        held, rule = link_rule(self._config, self._graph)
        targets = LinkTargets(graph, held.relation, rule, held.reverses)
        return whole_type_view(self._config, targets, self._request.backend, self._request.fingerprint)
