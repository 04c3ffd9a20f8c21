"""The input rows of a heterogeneous mini-batch: features by type, from this rank's memory or from the ranks that hold them.

Only types that the model reads are fetched. Of a type without features a mini-batch gets the ids of its vertices, from which a model
looks up learned rows. If ranks divide these, their owners are asked here, and the model looks them up when it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.learned_rows import ask_for_rows
from ..errors import UsageError
from ..graph import Graph, VertexType
from ..sparse import CSR
from .features import Features, FeatureSource, Fetching, StoredFeatures, checked_features
from .remote_features import RemoteFeatures
from .view import as_index


class TypeFeatures:
    """Fetches the features of the vertices of each type; of a type without features, their ids, or what asks for their learned rows.

    Parameters
    ----------
    needed : collection of str
        The types that the model reads, in their order; the others are left out.
    held : dict of FeatureSource by type
        The needed types that have features. If one of them is `RemoteFeatures`, every fetch is collective.
    width : int
        The features of all types together, needed or not.
    learned : TypeLayouts, optional
        The block rows of the learned rows of needed types without features; every fetch then asks for them, and is collective.
    """

    is_sparse = False

    def __init__(
        self, needed: Collection[str], held: Mapping[str, FeatureSource], width: int, learned: TypeLayouts | None = None
    ) -> None:  # fmt: skip
        self.needed, self.held, self.width, self.learned = tuple(needed), dict(held), width, learned

    def start(self, vertices: Mapping[str, np.ndarray] | np.ndarray) -> Fetching:
        """Start to fetch the rows of the vertices of each type, int32; anything but a dict stands for no vertices at all."""
        return self.ask([vertices])[0]()

    def ask(self, fetches: Sequence[Mapping[str, np.ndarray] | np.ndarray]) -> list[Callable[[], Fetching]]:
        """Return a function for each of several fetches that starts it; see `FeatureSource.ask`."""
        none = dict.fromkeys(self.needed, np.empty(0, np.int32))
        named = [vertices if isinstance(vertices, Mapping) else none for vertices in fetches]
        begins = {name: source.ask([vertices[name] for vertices in named]) for name, source in self.held.items()}
        featureless: dict[str, Sequence[Any]] = {
            name: self._named(name, [vertices[name] for vertices in named]) for name in self.needed if name not in self.held
        }
        return [
            partial(self._started, {name: own[i] for name, own in begins.items()}, {name: own[i] for name, own in featureless.items()})
            for i in range(len(named))
        ]

    def _named(self, name: str, lists: Sequence[np.ndarray]) -> Sequence[Any]:
        """Return the vertices of a type without features for each fetch, or what their owners have been asked for."""
        return lists if self.learned is None else ask_for_rows(self.learned.grid, self.learned.of[name], lists)

    def _started(self, begin: Mapping[str, Callable[[], Fetching]], featureless: Mapping[str, Any]) -> Fetching:
        under_way = {name: own() for name, own in begin.items()}

        def of(name: str) -> Any:
            if name in under_way:
                return under_way[name].wait()
            return self.ids(featureless[name]) if self.learned is None else featureless[name]

        return Fetching(cast(Any, lambda: {name: of(name) for name in self.needed}))

    def ids(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return the ids of vertices of a type without features, int64, where the model computes."""
        return as_index(vertices)

    def nbytes(self) -> int:
        """Return the bytes of features that this rank holds."""
        return sum(features.nbytes() for features in self.held.values())


def whole_features(
    graph: Graph, needed: Collection[str], norm: str = "none", storage: str = "given", threads: int = 0, shared_by: Comm | None = None
) -> TypeFeatures:  # fmt: skip
    """Return the features of a graph that this rank, or its machine, holds whole; see `Features` for the options."""
    held: dict[str, FeatureSource] = {
        kind.name: Features(StoredFeatures(kind.name, kind.num_features, kind.features), norm, storage, threads, shared_by)
        for kind in _with_features(graph, needed)
    }
    return TypeFeatures(needed, held, _width(graph))


def block_features(
    graph: Graph, needed: Collection[str], blocks: TypeLayouts, norm: str = "none", codec: str = "fp32", cache_bytes: int = 0,
    counted: Callable[[str], np.ndarray] | None = None, learned: bool = False,
) -> TypeFeatures:  # fmt: skip
    """Take this rank's block row of the features of each type, and fetch the others from their owners; collective.

    Parameters
    ----------
    blocks : TypeLayouts
    norm, codec
        See `RemoteFeatures`.
    cache_bytes : int
        Memory of each rank for the rows that most edges begin in. Types share it by the bytes of one row for each edge that begins in them.
    counted : callable, optional
        Returns `access_count` of a type by name, on all ranks together, if no rank holds the relations.
    learned : bool
        The types without features have learned rows, in the same block rows.

    Notes
    -----
    A fetch is one fetch of a `RowExchange` for each type, in the order of the types. Then the ids of learned rows travel.

    Raises
    ------
    UsageError
        If a codec or a cache is asked for and a type has sparse features.
    """
    kinds, counts = _with_features(graph, needed), counted or (lambda name: access_count(graph, name))
    caches = cache_shares(graph, [kind.name for kind in kinds], codec, cache_bytes)
    held: dict[str, FeatureSource] = {}
    for kind in kinds:
        members, column = blocks.members(kind.name), blocks.grid.column_comm
        if isinstance(kind.features, CSR) and (codec != "fp32" or cache_bytes):
            raise UsageError(f"features of type {kind.name!r} are sparse and travel without a codec or cache: use fp32 and 0")
        rows = blocks.take(kind.name, checked_features(kind.features, norm, kind.name))
        access = counts(kind.name)[members] if caches[kind.name] else None
        held[kind.name] = RemoteFeatures(column, blocks.of[kind.name], rows, norm, codec, caches[kind.name], access)
    return TypeFeatures(needed, held, _width(graph), blocks if learned else None)


def cache_shares(graph: Graph, names: Collection[str], codec: str, cache_bytes: int) -> dict[str, int]:
    """Return the bytes of each type's cache: in proportion to one row for each edge that begins in the type."""
    begin = {name: sum(relation.edges for relation in graph.relations if relation.source == name) for name in names}
    expected = {name: codec_named(codec).row_bytes(graph.type(name).num_features) * begin[name] for name in names}
    return {name: cache_bytes * size // max(1, sum(expected.values())) for name, size in expected.items()}


def access_count(graph: Graph, name: str) -> np.ndarray:
    """Return the number of edges of all relations that begin in each vertex of a type: int64, shape (n,)."""
    count = graph.type(name).count
    columns = [relation.adjacency.indices for relation in graph.relations if relation.source == name]
    return sum((np.bincount(own, minlength=count) for own in columns), np.zeros(count, np.int64))


def _with_features(graph: Graph, needed: Collection[str]) -> list[VertexType]:
    return [kind for kind in graph.types if kind.name in needed and kind.num_features]


def _width(graph: Graph) -> int:
    return sum(kind.num_features for kind in graph.types)
