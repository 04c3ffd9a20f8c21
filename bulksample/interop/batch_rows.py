"""Features, labels and edges of mini-batches: gathered from a graph, or from one of its vertex types, when they are first read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..backends import on_host
from ..errors import UsageError
from ..graph import Graph
from ..labels import as_numbers, without_label
from ..minibatch import MiniBatch
from ..nn.gather import RowPool, gather_rows
from ..profiling import Profile, profiled
from ..sparse import CSR
from ..vertex_table import VertexTable
from ..views.edges import EdgeRows, EdgeSource


class BatchRows(Protocol):
    """Features, labels and edges of mini-batches: gathered when first read (`GraphRows`), fetched in advance (`FetchedRows`) or held."""

    def x(self, minibatch: MiniBatch) -> NDArray[np.float32]: ...

    def y(self, minibatch: MiniBatch) -> NDArray[np.int64] | NDArray[np.float32]: ...

    def edges(self, minibatch: MiniBatch) -> EdgeRows: ...

    @property
    def name(self) -> str: ...

    @property
    def has_features(self) -> bool: ...

    @property
    def has_labels(self) -> bool: ...


class VerticesAndSeeds(Protocol):
    """A mini-batch, or the part of one that lies in a vertex type."""

    @property
    def vertices(self) -> np.ndarray: ...

    @property
    def seeds(self) -> np.ndarray: ...


class TypeColumns(Protocol):
    """Features and labels of the parts of mini-batches that lie in one vertex type."""

    def x(self, minibatch: VerticesAndSeeds) -> NDArray[np.float32]: ...

    def y(self, minibatch: VerticesAndSeeds) -> NDArray[np.int64] | NDArray[np.float32]: ...

    @property
    def has_features(self) -> bool: ...

    @property
    def has_labels(self) -> bool: ...


class TableRows:
    """The columns of a graph, or of one vertex type, in this process.

    Gathered features lie in memory that is reused once no batch refers to it.

    Parameters
    ----------
    table : Graph or VertexType
    threads : int
        Threads that gather dense features.
    seeds : integers, shape (m,)
        The seeds of the loader. A vertex that a sampler adds to the seeds of a mini-batch, as GraphSAINT does, has no label.
    profile : callable, optional
        See `bulksample.Loader`.
    """

    def __init__(self, table: VertexTable, threads: int, seeds: np.ndarray, profile: Profile | None = None) -> None:
        table.check_rows()
        self._table, self._pool, self._engine = table, RowPool(), on_host(threads)
        self._is_seed = np.zeros(table.n, bool)
        self._is_seed[seeds] = True
        self._profile = profile

    def x(self, minibatch: VerticesAndSeeds) -> NDArray[np.float32]:
        features = self._table.features
        if features is None:
            raise no_features(self._table.name)
        with self.phase("fetch"):
            if isinstance(features, CSR):
                dense: NDArray[np.float32] = features.take(minibatch.vertices).to_scipy().toarray()
                return dense
            return gather_rows(features, minibatch.vertices, pool=self._pool, backend=self._engine)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context that names a phase for profilers."""
        return profiled(name, self._profile)

    def y(self, minibatch: VerticesAndSeeds) -> NDArray[np.int64] | NDArray[np.float32]:
        if self._table.labels is None:
            raise no_labels(self._table.name)
        labels = np.asarray(self._table.labels)[minibatch.seeds]
        return as_numbers(without_label(labels, ~self._is_seed[minibatch.seeds]))

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def has_features(self) -> bool:
        return self._table.features is not None

    @property
    def has_labels(self) -> bool:
        return self._table.labels is not None


class GraphRows(TableRows):
    """The columns and edges of a graph in this process."""

    def __init__(self, graph: Graph, threads: int, seeds: np.ndarray, profile: Profile | None = None) -> None:
        super().__init__(graph, threads, seeds, profile)
        self._graph = graph

    def edges(self, minibatch: MiniBatch) -> EdgeRows:
        return EdgeSource(self._graph.adjacency, self._graph.edge_features).start(*minibatch.edge_ends())()


@dataclass(frozen=True)
class HeldRows:
    """The features, labels and edges of one mini-batch, which a pickle of the batch holds; None for what the graph `name` lacks."""

    name: str
    features: NDArray[np.float32] | None
    labels: NDArray[np.int64] | NDArray[np.float32] | None
    edge_rows: EdgeRows

    def x(self, minibatch: MiniBatch) -> NDArray[np.float32]:
        if self.features is None:
            raise no_features(self.name)
        return self.features

    def y(self, minibatch: MiniBatch) -> NDArray[np.int64] | NDArray[np.float32]:
        if self.labels is None:
            raise no_labels(self.name)
        return self.labels

    def edges(self, minibatch: MiniBatch) -> EdgeRows:
        return self.edge_rows

    @property
    def has_features(self) -> bool:
        return self.features is not None

    @property
    def has_labels(self) -> bool:
        return self.labels is not None


def no_features(name: str) -> UsageError:
    """Return the error for features that are not there."""
    return UsageError(f"graph {name!r} has no features; give x to from_edges, or import with `bulksample data import --features`")


def no_labels(name: str) -> UsageError:
    """Return the error for labels that are not there."""
    return UsageError(f"graph {name!r} has no labels; give y to from_edges, or import with `bulksample data import --labels`")
