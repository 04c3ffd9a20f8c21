"""The columns of a mini-batch, as numpy arrays: features, labels and edges, each read when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

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
    """Features and labels of a vertex type in this process, for the parts of mini-batches in that type; None for what it lacks.

    `threads` gather dense features, into memory that is reused once no batch refers to it. A vertex that is none of the loader's `seeds`,
    as GraphSAINT adds some to those of a mini-batch, has no label.
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

        packed = self.rows.packed()
        made: NDArray[np.float32] = csr_array((packed.weights, packed.indices, packed.indptr), shape=packed.shape).toarray()
        return made

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
    of the edges of a mini-batch: `EdgesByEntry`, or of a plain graph those of `MiniBatch.edge_ends`.
    """

    def __init__(
        self, minibatch: MiniBatch, name: str, tables: Mapping[str, TableRows | Fetched],
        edges: Callable[[MiniBatch], EdgesByEntry | EdgeRows],
    ) -> None:  # fmt: skip
        self.minibatch, self.name, self._tables, self._edges_of = minibatch, name, tables, edges

    def __getstate__(self) -> dict[str, Any]:
        values = {column: getattr(self, column) for column in ("x", "y", "e_id", "edge_attr")}
        here = self.minibatch if self.minibatch.by_type else self.minibatch.on_host()
        return {"minibatch": here, "name": self.name, **values}  # found there before they are computed

    @read_once
    def x(self) -> Any:
        return self._of_types({name: self._tables[name].x(part) for name, part in self.minibatch.rows.items()})

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
