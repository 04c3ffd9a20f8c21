"""Features that other ranks hold, and features by type.

`RemoteFeatures` stores the rows of a block and fetches the others from their owners. `TypeFeatures` has a source for each type, this one or
another. Only types that the model reads are fetched. Of a type without features a mini-batch gets the ids of its vertices, from which a
model looks up learned rows. If ranks divide these, their owners are asked here, and the model looks them up when it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ..distributed.comm.base import Comm, Pending
from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.feature_exchange import Fetch, RowExchange, SparseRowExchange
from ..distributed.matrix.layout import Layout, TypeLayouts
from ..distributed.matrix.learned_rows import ask_for_rows
from ..errors import UsageError
from ..graph import Graph, VertexType
from ..nn.aggregate import SparseRows
from ..sparse import CSR
from .features import Features, FeatureSource, Fetching, StoredFeatures, checked_features, consecutive, feature_bytes, normalized
from .view import as_index


class RemoteFeatures(FeatureSource):
    """Features in block rows over a process column, of which this rank holds `block`; every fetch is collective in the column.

    The options are those of `Features` and `RowExchange`. Sparse rows travel as they are: `UsageError` if a codec or a cache is asked for.
    """

    def __init__(
        self, column: Comm, layout: Layout, block: np.ndarray | CSR, norm: str = "none", codec: str = "fp32", cache_bytes: int = 0,
        access_count: np.ndarray | None = None, wanted: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.column, self.layout = column, layout
        self.width, self.is_sparse = int(block.shape[1]), isinstance(block, CSR)
        self.block = normalized(block, norm)
        self.exchange: RowExchange | SparseRowExchange
        if isinstance(self.block, CSR):
            if codec != "fp32" or cache_bytes:
                options = f"feature_codec {codec} and cache_bytes {cache_bytes}"
                raise UsageError(f"the features are sparse and travel without a codec or cache; got {options}: use fp32 and 0")
            self.exchange = SparseRowExchange(column, layout.bounds, self.block)
        else:
            names = layout.members(column.rank)
            self.exchange = RowExchange(column, layout.bounds, self.block, codec, cache_bytes, access_count, names=names, wanted=wanted)
        self.comm = self.exchange.comm

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetching]]:
        return [partial(_started, begin) for begin in self.exchange.ask([self.layout.places(vertices) for vertices in fetches])]

    def own_rows(self, first: int, last: int) -> torch.Tensor | SparseRows:
        """Return some rows of this rank's block; sends nothing."""
        return as_input(consecutive(self.block, first, last))

    def nbytes(self) -> int:
        cached = self.exchange.cache.rows.nbytes if isinstance(self.exchange, RowExchange) else 0
        return feature_bytes(self.block) + cached


def _started(begin: Callable[[], Fetch] | Callable[[], Pending[CSR]]) -> Fetching:
    under_way = begin()
    return lambda: as_input(under_way.wait())


def as_input(rows: np.ndarray | CSR) -> torch.Tensor | SparseRows:
    """Convert rows to an input of the first layer: a float32 tensor, or sparse rows."""
    if isinstance(rows, CSR):
        return SparseRows(rows.indptr, rows.indices, rows.entries(), rows.shape[1])
    writable = rows if rows.dtype == np.float32 and rows.flags.writeable else np.array(rows, np.float32)  # torch needs writable memory
    return torch.from_numpy(writable)


class TypeFeatures(FeatureSource):
    """Fetches the features of the vertices of each type; of a type without features, their ids, or what asks for their learned rows.

    `needed` are the types that the model reads, in their order, `held` the sources of those that have features; if one of them is
    `RemoteFeatures`, every fetch is collective. `width` counts the features of all types together, needed or not. `blocks` are the block
    rows of features and of learned rows, None if every rank holds them whole. With `learned`, ranks divide learned rows, every fetch asks
    for them, and is collective.
    """

    def __init__(
        self, needed: Collection[str], held: Mapping[str, FeatureSource], width: int, blocks: TypeLayouts | None = None,
        learned: bool = False,
    ) -> None:  # fmt: skip
        self.needed, self.held, self.width, self.blocks, self.learned = tuple(needed), dict(held), width, blocks, learned

    def joined(self, lists: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: super(TypeFeatures, self).joined([one[name] for one in lists]) for name in self.needed}

    def cut(self, rows: Mapping[str, Any], lists: Sequence[Mapping[str, Any] | None]) -> list[Any]:
        if len(lists) == 1:
            return [rows]
        parts = {name: super(TypeFeatures, self).cut(values, [one and one[name] for one in lists]) for name, values in rows.items()}
        return [{name: values[i] for name, values in parts.items()} for i in range(len(lists))]

    def ask(self, fetches: Sequence[Mapping[str, np.ndarray]]) -> list[Callable[[], Fetching]]:
        begins = {name: source.ask([vertices[name] for vertices in fetches]) for name, source in self.held.items()}
        for name in [name for name in self.needed if name not in self.held]:
            begins[name] = [partial(self._known, named) for named in self._named(name, [vertices[name] for vertices in fetches])]
        return [partial(self._started, {name: of_type[i] for name, of_type in begins.items()}) for i in range(len(fetches))]

    def _named(self, name: str, lists: Sequence[np.ndarray]) -> Sequence[Any]:
        """Return the vertices of a type without features for each fetch, or what their owners have been asked for."""
        return ask_for_rows(self.blocks.grid, self.blocks.of[name], lists) if self.learned and self.blocks else lists

    def _known(self, vertices: Any) -> Fetching:
        return lambda: vertices if self.learned else self.ids(vertices)

    def _started(self, begin: Mapping[str, Callable[[], Fetching]]) -> Fetching:
        under_way = {name: start() for name, start in begin.items()}
        return lambda: {name: under_way[name]() for name in self.needed}

    def ids(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return the ids of vertices of a type without features, int64, where the model computes."""
        return as_index(vertices)

    def nbytes(self) -> int:
        return sum(features.nbytes() for features in self.held.values())


def whole_features(
    graph: Graph, needed: Collection[str], norm: str = "none", storage: str = "given", threads: int = 0, shared_by: Comm | None = None
) -> TypeFeatures:  # fmt: skip
    """Return the features of a graph that this rank, or its machine, holds whole; see `Features` for the options."""
    sources: dict[str, FeatureSource] = {
        kind.name: Features(StoredFeatures(kind.name, kind.num_features, kind.features), norm, storage, threads, shared_by)
        for kind in _with_features(graph, needed)
    }
    return TypeFeatures(needed, sources, _width(graph))


def block_features(
    graph: Graph, needed: Collection[str], blocks: TypeLayouts, norm: str = "none", codec: str = "fp32", cache_bytes: int = 0,
    counted: Callable[[str], np.ndarray] | None = None, learned: bool = False,
) -> TypeFeatures:  # fmt: skip
    """Take this rank's block row of the features of each type, and fetch the others from their owners; collective.

    Types share the `cache_bytes` of a rank, for the rows that most edges begin in, by the bytes of one row for each edge that begins in
    them. `counted` returns `access_count` of a type by name, on all ranks together, if no rank holds the relations. With `learned`, types
    without features have learned rows in the same block rows. A fetch is one fetch of a `RowExchange` for each type, in the order of the
    types; then the ids of learned rows travel. Raises `UsageError` if a codec or a cache is asked for and a type has sparse features.
    """
    kinds, counts = _with_features(graph, needed), counted or (lambda name: access_count(graph, name))
    caches = cache_shares(graph, [kind.name for kind in kinds], codec, cache_bytes)
    sources: dict[str, FeatureSource] = {}
    for kind in kinds:
        members, column = blocks.members(kind.name), blocks.grid.column_comm
        if isinstance(kind.features, CSR) and (codec != "fp32" or cache_bytes):
            raise UsageError(f"features of type {kind.name!r} are sparse and travel without a codec or cache: use fp32 and 0")
        rows = blocks.take(kind.name, checked_features(kind.features, norm, kind.name))
        access = counts(kind.name)[members] if caches[kind.name] else None
        sources[kind.name] = RemoteFeatures(column, blocks.of[kind.name], rows, norm, codec, caches[kind.name], access)
    return TypeFeatures(needed, sources, _width(graph), blocks, learned)


def cache_shares(graph: Graph, names: Collection[str], codec: str, cache_bytes: int) -> dict[str, int]:
    """Return the bytes of each type's cache: in proportion to one row for each edge that begins in the type."""
    begin = {name: sum(relation.edges for relation in graph.relations if relation.source == name) for name in names}
    expected = {name: codec_named(codec).row_bytes(graph.type(name).num_features) * begin[name] for name in names}
    return {name: cache_bytes * size // max(1, sum(expected.values())) for name, size in expected.items()}


def access_count(graph: Graph, name: str) -> np.ndarray:
    """Return the number of edges of all relations that begin in each vertex of a type: int64, shape (n,)."""
    count = graph.type(name).count
    columns = [relation.adjacency.indices for relation in graph.relations if relation.source == name]
    return sum((np.bincount(indices, minlength=count) for indices in columns), np.zeros(count, np.int64))


def _with_features(graph: Graph, needed: Collection[str]) -> list[VertexType]:
    return [kind for kind in graph.types if kind.name in needed and kind.num_features]


def _width(graph: Graph) -> int:
    return sum(kind.num_features for kind in graph.types)
