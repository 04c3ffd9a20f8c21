"""The columns of a mini-batch, as numpy arrays: features, labels and edges, each read when it is first asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..backends import on_host
from ..backends.base import Backend
from ..backends.native import processors
from ..graph import Key, Relation
from ..graph.labels import as_numbers, without_label
from ..graph.minibatch import Block, InputHop, MiniBatch, to_host
from ..graph.vertex_table import VertexTable
from ..nn.gather import OwnAndMean, RowPool, gather_mean, gather_rows
from ..profiling import Profile, profiled
from ..sparse import CSR
from ..views.edges import EdgeRows

T = TypeVar("T")


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of a mini-batch with all of its parts changed, in the tuples and dicts that hold them; None stays."""
    if isinstance(value, Mapping):
        return {name: each(part, change) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(each(part, change) for part in value)
    return None if value is None else change(value)


class read_once(cached_property[T]):
    """A cached property without the lock that Python 3.11 shares among all instances; the cost of small mini-batches counts."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value


class Located(NamedTuple):
    """Dense features of the vertices of a type in a mini-batch, where they lie: those of vertex i are row ``ids[i]`` of `x`.

    `engine` reads them, and `pool` lends memory for what is returned.
    """

    x: np.ndarray
    ids: np.ndarray
    engine: Backend
    pool: RowPool | None = None

    @staticmethod
    def in_order(x: np.ndarray, engine: Backend) -> Located:
        """Return rows that were gathered already: those of all vertices in their order."""
        return Located(x, np.arange(len(x), dtype=np.int32), engine)

    def own(self, count: int) -> np.ndarray:
        """Return a copy of the first rows: float32, shape (count, f)."""
        return gather_rows(self.x, self.ids[:count], pool=self.pool, backend=self.engine)

    def mean(self, block: Block) -> np.ndarray:
        """Return the means, or the weighted sums, over the sources of each destination of a block: float32, shape (D, f)."""
        hop = InputHop(block.indptr, self.ids[block.indices], block.weights)
        return gather_mean(self.x, hop, pool=self.pool, backend=self.engine)


class TableRows:
    """Features and labels of a vertex type in this process, for the parts of mini-batches in that type; None for what it lacks.

    `threads` gather dense features, into memory that is reused once no batch refers to it. A vertex that is none of the loader's `seeds`,
    as GraphSAINT adds some to those of a mini-batch, has no label.
    """

    def __init__(self, table: VertexTable, threads: int, seeds: np.ndarray) -> None:
        table.check_rows()
        self._table, self._pool, self.engine = table, RowPool(), on_host(threads)
        self._is_seed = np.zeros(table.n, bool)
        self._is_seed[seeds] = True

    def x(self, part: Any) -> NDArray[np.float32] | None:
        features = self._table.features
        if features is None:
            return None
        if isinstance(features, CSR):
            dense: NDArray[np.float32] = features.take(part.vertices).to_scipy().toarray()
            return dense
        return gather_rows(features, part.vertices, pool=self._pool, backend=self.engine)

    def located(self, part: Any) -> Located | None:
        features = self._table.features
        if isinstance(features, np.ndarray) and features.flags.c_contiguous:
            return Located(features, part.vertices, self.engine, self._pool)
        x = self.x(part)
        return None if x is None else Located.in_order(x, self.engine)

    def y(self, part: Any) -> NDArray[np.int64] | NDArray[np.float32] | None:
        if self._table.labels is None:
            return None
        labels = np.asarray(self._table.labels)[part.seeds]
        return as_numbers(without_label(labels, ~self._is_seed[part.seeds]))


class Fetched(NamedTuple):
    """Features of a type that were fetched from the ranks that hold them, and what reads its labels; None for what the type lacks.

    `engine` computes with the features.
    """

    rows: Any
    labels: Callable[[Any], Any] | None
    engine: Backend

    def x(self, part: Any) -> NDArray[np.float32] | None:
        from ..nn.aggregate import SparseRows

        if not isinstance(self.rows, SparseRows):
            return None if self.rows is None else self.rows.numpy()
        from scipy.sparse import csr_array

        packed = self.rows.packed()
        made: NDArray[np.float32] = csr_array((packed.weights, packed.indices, packed.indptr), shape=packed.shape).toarray()
        return made

    def located(self, part: Any) -> Located | None:
        x = self.x(part)
        return None if x is None else Located.in_order(x, self.engine)

    def y(self, part: Any) -> Any:
        return None if self.labels is None else self.labels(part)


class EdgesByEntry(NamedTuple):
    """Columns of the sampled edges of a mini-batch, read by their entries: a dict by relation for each layer that is not nested in another.

    They are None of a sampler that makes no entries.
    """

    minibatch: MiniBatch
    relations: Sequence[Relation]

    @property
    def numbers(self) -> list[dict[Key, np.ndarray]] | None:
        return self._read({relation.key: relation.ids_of for relation in self.relations})

    @property
    def features(self) -> list[dict[Key, np.ndarray]] | None:
        columns = {relation.key: relation.features for relation in self.relations if relation.features is not None}
        return self._read({key: column.__getitem__ for key, column in columns.items()})

    def _read(self, columns: Mapping[Key, Callable[[np.ndarray], np.ndarray]]) -> list[dict[Key, np.ndarray]] | None:
        entries = self.minibatch.entries
        if entries is None:
            return None
        layers = entries[:1] if self.minibatch.nested else entries
        return [{key: np.asarray(read(layer[key])) for key, read in columns.items()} for layer in layers]


class Columns:
    """The values of one mini-batch: arrays by type, and for each layer by relation. A pickle or a copy holds them all, and not the graph.

    A mini-batch of a plain graph has one array in the place of a dict, or None for what the graph `name` lacks. `edges` returns the columns
    of the edges of a mini-batch: `EdgesByEntry`, or of a plain graph those of `MiniBatch.edge_ends`. `profile` hears of reads of features.
    """

    _tables: Mapping[str, TableRows | Fetched] = MappingProxyType({})  # a pickle has none, and holds x
    _profile: Profile | None = None

    def __init__(
        self, minibatch: MiniBatch, name: str, tables: Mapping[str, TableRows | Fetched],
        edges: Callable[[MiniBatch], EdgesByEntry | EdgeRows], profile: Profile | None = None,
    ) -> None:  # fmt: skip
        self.minibatch, self.name, self._tables, self._edges_of, self._profile = minibatch, name, tables, edges, profile

    def __getstate__(self) -> dict[str, Any]:
        values = {column: each(getattr(self, column), to_host) for column in ("x", "y", "e_id", "edge_attr")}
        here = self.minibatch if self.minibatch.by_type else self.minibatch.on_host()
        return {"minibatch": here, "name": self.name, **values}  # found there before they are computed

    def holding(self, **values: Any) -> Columns:
        """Return the columns with some values as tensors on the host; the others are read now, as for a pickle."""
        made = copy.copy(self)
        vars(made).update(values)
        return made

    @read_once
    def x(self) -> Any:
        with profiled("fetch", self._profile):
            return self._of_types({name: self._tables[name].x(part) for name, part in self.minibatch.rows.items()})

    @read_once
    def own_and_mean(self) -> OwnAndMean | None:
        """The features of the destinations of the input layer, and the means over their sources; None if a plain graph has no features.

        They are computed where the features lie: `x` is not made.
        """
        sampled = self.minibatch.on_host()
        with profiled("fetch", self._profile):
            located = {name: rows for name, part in sampled.rows.items() if (rows := self._located(name, part)) is not None}
            own = {name: rows.own(_destinations(sampled, name)) for name, rows in located.items()}
            mean = {key: located[key[0]].mean(block) for key, block in sampled.layers[0].items() if key[0] in located}
        if sampled.by_type:
            return OwnAndMean(own, mean)
        return OwnAndMean(*own.values(), *mean.values()) if located else None

    def _located(self, name: str, part: Any) -> Located | None:
        if name in self._tables:
            return self._tables[name].located(part)
        x = self.x.get(name) if self.minibatch.by_type else self.x
        return None if x is None else Located.in_order(to_host(x), on_host(processors()))

    @read_once
    def y(self) -> Any:
        sampled = self.minibatch
        return self._of_types(
            {name: self._tables[name].y(part) for name, part in sampled.rows.items() if len(part.seeds) or not sampled.by_type}
        )

    @read_once
    def e_id(self) -> tuple[Any, ...] | None:
        return self._by_layer(self._edges.numbers)

    @read_once
    def edge_attr(self) -> tuple[Any, ...] | None:
        return self._by_layer(self._edges.features)

    @read_once
    def _edges(self) -> EdgesByEntry | EdgeRows:
        return self._edges_of(self.minibatch)

    def _of_types(self, values: dict[str, Any]) -> Any:
        """Return the values of the types that have some; of a plain graph those of its only type."""
        if not self.minibatch.by_type:
            return next(iter(values.values()))
        return {name: value for name, value in values.items() if value is not None}

    def _by_layer(self, rows: Any) -> tuple[Any, ...] | None:
        """Return a column of the sampled edges layer by layer; nested layers are prefixes of the first."""
        if rows is None:
            return None
        sampled, by_type = self.minibatch, self.minibatch.by_type
        if not sampled.nested:
            return tuple(rows if by_type else np.split(rows, np.cumsum([block.num_edges for block in sampled.blocks])[:-1]))
        if not by_type:
            return tuple(rows[: block.num_edges] for block in sampled.blocks)
        return tuple({key: column[: layer[key].num_edges] for key, column in rows[0].items()} for layer in sampled.blocks)


def _destinations(minibatch: MiniBatch, name: str) -> int:
    """Return how many vertices of a type are destinations of the input layer; they are the first of its list."""
    part = minibatch.rows[name]
    return len(part.vertices) if minibatch.subgraph else int(part.sizes[-2])
