"""The columns of a mini-batch, as numpy arrays: features, labels and edges, each read when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..backends import on_host
from ..graph import Key, Relation
from ..graph.labels import as_numbers, without_label
from ..graph.minibatch import MiniBatch
from ..graph.vertex_table import VertexTable
from ..nn.gather import RowPool, gather_rows
from ..profiling import Profile, profiled
from ..sparse import CSR
from ..views.edges import EdgeRows

T = TypeVar("T")


class read_once(cached_property[T]):
    """A cached property without the lock that Python 3.11 shares among all instances; the cost of small mini-batches counts."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value


class TableRows:
    """Features and labels of a vertex type in this process, for mini-batches or their parts of that type; None for what it lacks.

    Gathered features lie in memory that is reused once no batch refers to it.

    Parameters
    ----------
    table : VertexType
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

    def x(self, part: Any) -> NDArray[np.float32] | None:
        features = self._table.features
        if features is None:
            return None
        with profiled("fetch", self._profile):
            if isinstance(features, CSR):
                dense: NDArray[np.float32] = features.take(part.vertices).to_scipy().toarray()
                return dense
            return gather_rows(features, part.vertices, pool=self._pool, backend=self._engine)

    def y(self, part: Any) -> NDArray[np.int64] | NDArray[np.float32] | None:
        if self._table.labels is None:
            return None
        labels = np.asarray(self._table.labels)[part.seeds]
        return as_numbers(without_label(labels, ~self._is_seed[part.seeds]))


class Fetched(NamedTuple):
    """Features of a type that were fetched from the ranks that hold them, and what reads its labels; None for what the type lacks."""

    rows: Any
    labels: Callable[[Any], Any] | None

    def x(self, part: Any) -> NDArray[np.float32] | None:
        from ..nn.aggregate import SparseRows

        if not isinstance(self.rows, SparseRows):
            return None if self.rows is None else self.rows.numpy()
        from scipy.sparse import csr_array

        own = self.rows.packed()
        made: NDArray[np.float32] = csr_array((own.weights, own.indices, own.indptr), shape=own.shape).toarray()
        return made

    def y(self, part: Any) -> Any:
        return None if self.labels is None else self.labels(part)


class Columns:
    """The values of one mini-batch; None for what the graph `name` lacks. A pickle or a copy holds them all, and not the graph."""

    by_type: ClassVar[bool]
    minibatch: Any
    name: str

    def __getstate__(self) -> dict[str, Any]:
        values = {column: getattr(self, column) for column in ("x", "y", "e_id", "edge_attr")}
        here = self.minibatch if self.by_type else self.minibatch.on_host()
        return {"minibatch": here, "name": self.name, **values}  # found there before they are computed


class PlainColumns(Columns):
    """The values of a mini-batch of a plain graph, one array each, or one of each block.

    Parameters
    ----------
    table : TableRows or Fetched
    edges : callable
        Returns the positions and the features of the edges of `MiniBatch.edge_ends`.
    """

    by_type = False

    def __init__(self, minibatch: MiniBatch, name: str, table: TableRows | Fetched, edges: Callable[[MiniBatch], EdgeRows]) -> None:
        self.minibatch, self.name, self._table, self._edges_of = minibatch, name, table, edges

    @read_once
    def x(self) -> NDArray[np.float32] | None:
        return self._table.x(self.minibatch)

    @read_once
    def y(self) -> NDArray[Any] | None:
        return self._table.y(self.minibatch)

    @read_once
    def e_id(self) -> tuple[NDArray[np.int64], ...] | None:
        return self._by_block(self._edges.numbers)

    @read_once
    def edge_attr(self) -> tuple[NDArray[np.float32], ...] | None:
        return self._by_block(self._edges.features)

    @read_once
    def _edges(self) -> EdgeRows:
        return self._edges_of(self.minibatch)

    def _by_block(self, rows: NDArray[Any] | None) -> tuple[NDArray[Any], ...] | None:
        """Split the rows of all edges by block; nested blocks are prefixes of the same rows."""
        sizes = [block.num_edges for block in self.minibatch.blocks]
        if rows is None:
            return None
        return tuple(rows[:size] for size in sizes) if self.minibatch.nested else tuple(np.split(rows, np.cumsum(sizes)[:-1]))


class ColumnsByType(Columns):
    """The values of a mini-batch by type, and one dict by relation of each layer.

    Parameters
    ----------
    tables : dict of TableRows or Fetched by type
    relations : sequence of Relation
    """

    by_type = True

    def __init__(self, minibatch: MiniBatch, name: str, tables: Mapping[str, TableRows | Fetched], relations: Iterable[Relation]) -> None:
        self.minibatch, self.name, self._tables, self._relations = minibatch, name, tables, relations

    @read_once
    def x(self) -> dict[str, NDArray[np.float32]]:
        rows = {name: self._tables[name].x(part) for name, part in self.minibatch.rows.items()}
        return {name: x for name, x in rows.items() if x is not None}

    @read_once
    def y(self) -> dict[str, NDArray[Any]]:
        rows = {name: self._tables[name].y(part) for name, part in self.minibatch.rows.items() if len(part.seeds)}
        return {name: y for name, y in rows.items() if y is not None}

    @read_once
    def e_id(self) -> tuple[dict[Key, np.ndarray], ...] | None:
        return self._by_layer({relation.key: relation.ids_of for relation in self._relations})

    @read_once
    def edge_attr(self) -> tuple[dict[Key, np.ndarray], ...] | None:
        columns = {relation.key: relation.features for relation in self._relations if relation.features is not None}
        return self._by_layer({key: column.__getitem__ for key, column in columns.items()})

    def _by_layer(self, columns: Mapping[Key, Callable[[np.ndarray], np.ndarray]]) -> tuple[dict[Key, np.ndarray], ...] | None:
        """Return columns of the sampled edges, given what reads them by entry; nested layers are prefixes of the first.

        None of a sampler that makes no entries.
        """
        entries = self.minibatch.entries
        if entries is None:
            return None
        layers = entries[:1] if self.minibatch.nested else entries
        read = [{key: np.asarray(column(layer[key])) for key, column in columns.items()} for layer in layers]
        if self.minibatch.nested:
            read = [{key: rows[: layer[key].num_edges] for key, rows in read[0].items()} for layer in self.minibatch.blocks]
        return tuple(read)
