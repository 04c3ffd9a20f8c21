"""Features on a device: all rows if they fit, else the most frequent ones, with the others read from host memory.

X_batch = D Q X        the kernels of csrc/features.cu gather; they read rows in pinned host memory over the bus
    mean = A Q D X        csrc/spmm.cu averages rows where they lie, if all are on the device

`DeviceTypeFeatures` are those of a graph of several types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ...backends.base import Backend
from ...backends.cuda.products import NO_CACHE, Cache, aggregate, gather
from ...distributed.matrix.relation_blocks import PartitionedRelations
from ...graph.minibatch import InputHop
from ...local_adjacency import LocalAdjacency
from ...nn.aggregate import SparseRows
from ...nn.gather import OwnAndMean
from ...sparse import CSR
from ...views.features import Features, FeatureSource, Fetching
from ...views.type_features import TypeFeatures, access_count
from ...views.view import as_index
from .cuda_context import CudaContext
from .device_rows import DeviceRows, rows_on_device

T = TypeVar("T")
FEATURE_SHARE = 0.75  # share of the free device memory for the graph and the features together
_TIMED_ENTRY = 16  # bytes of an edge in the order of time
_TYPES = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16", np.dtype(np.uint16): "bfloat16"}


class RowPlacement(NamedTuple):
    """The number of rows, of n, that are on the device, and their bytes there."""

    rows: int
    n: int
    nbytes: int

    @property
    def whole(self) -> bool:
        """True if all rows are on the device."""
        return self.rows == self.n

    def __str__(self) -> str:
        return "device" if self.whole else "pinned memory" + (f", {self.rows} of {self.n} rows on the device" if self.rows else "")


def fit_rows(n: int, row_bytes: int, free: int) -> RowPlacement:
    """Place all rows on the device if they fit; else as many as fit beside an int32 slot number for every vertex."""
    if n * row_bytes <= free:
        return RowPlacement(n, n, n * row_bytes)
    rows = max(0, (free - 4 * n) // max(1, row_bytes))
    return RowPlacement(rows, n, rows * row_bytes + 4 * n) if rows else RowPlacement(0, n, 0)


class CachedRows:
    """A dense matrix with the most frequent rows on a device, and the others in pinned host memory that kernels read.

    `x` has n rows of float32, float16, or uint16 for bfloat16; `access_count` says how often each is expected to be read, and `free` how
    many bytes of the device they may take. If it is `shared`, rows that do not fit are read from `x` itself, whose memory other processes
    map as well: it is pinned where it lies, not copied. Raises `RuntimeError` if the driver cannot pin it.
    """

    def __init__(self, cuda: CudaContext, x: np.ndarray, access_count: np.ndarray, free: int, shared: bool = False) -> None:
        device, self._cache = cuda.kernels, NO_CACHE
        self._cuda, self._width, self._type = cuda, x.shape[1], _TYPES[x.dtype]
        self.held = fit_rows(len(x), x.itemsize * self._width, free)
        if self.held.whole:
            self._x = device.put(x).reshape(-1)
            return
        self._x = (device.arrays.registered(x) if shared else device.arrays.pinned(np.ascontiguousarray(x))).reshape(-1)
        if self.held.rows:
            hot, slots = np.argsort(-access_count.astype(np.int64), kind="stable")[: self.held.rows], np.full(len(x), -1, np.int32)
            slots[hot] = np.arange(len(hot), dtype=np.int32)
            self._cache = Cache(device.put(x[hot]).reshape(-1), device.put(slots))

    def take(self, rows: torch.Tensor, dtype: str = "float32") -> torch.Tensor:
        """Gather rows as numbers of `dtype`: shape (len(rows), f)."""
        ids = self._cuda.array(rows.int())
        taken = self._cuda.tensor(gather(self._cuda.kernels, self._x, self._width, ids, self._type, dtype, self._cache))
        gathered: torch.Tensor = taken.view(getattr(torch, dtype))
        return gathered.reshape(len(rows), self._width)

    def averaged(self, block: DeviceRows, scale: torch.Tensor | None) -> torch.Tensor:
        """Average the rows that the entries of each row of a block name, where they lie: float32, shape (D, f) from a block of D x n.

        `scale` has the factor of each of the n rows. A block with weights is summed with these.
        """
        factors, mean = None if scale is None else self._cuda.array(scale), block.weights is None
        made = aggregate(self._cuda.kernels, block.csr, self._x, self._width, mean, self._type, factors, self._cache)
        means: torch.Tensor = self._cuda.tensor(made.reshape(block.shape[0], self._width))
        return means


class DeviceFeatures(FeatureSource):
    """Dense features that this rank holds whole, gathered by the device; rows that are not there cross the bus. See `CachedRows`."""

    def __init__(self, cuda: CudaContext, features: Features, access_count: np.ndarray, free: int) -> None:
        x, scale = features.stored()
        assert isinstance(x, np.ndarray)
        self._cuda, self.width = cuda, features.width
        self._scale = None if scale is None else cuda.put(scale)
        self.rows = CachedRows(cuda, x, access_count, free, features.shared)
        self.held = self.rows.held
        self.can_average = self.held.whole  # rows cross the bus once if they are gathered, and once for each edge if not

    def start(self, vertices: np.ndarray | torch.Tensor) -> Fetching:
        return self._started(partial(self._gathered, vertices))

    def start_own_and_mean(self, destinations: np.ndarray | torch.Tensor, hop: InputHop) -> Callable[[], OwnAndMean]:
        return self._started(partial(self._own_and_mean, destinations, hop))

    def scaled(self, factors: torch.Tensor) -> DeviceFeatures:
        made, streams = copy(self), self._cuda.streams
        made._scale = factors if self._scale is None else self._scale * factors
        streams.fetch.wait(streams.train.record())
        return made

    def _started(self, make: Callable[[], T]) -> Callable[[], T]:
        """Queue work on the stream that fetches; return what lets the stream that trains wait for its result."""
        streams = self._cuda.streams
        with streams.fetch.on("fetch"):
            made, event = make(), streams.fetch.record()

        def finish() -> T:
            streams.train.wait(event)
            return made

        return finish

    def now(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Gather rows on the stream that trains."""
        with self._cuda.streams.train.on("fetch"):
            return self._gathered(vertices)

    def nbytes(self) -> int:
        return self.held.nbytes

    def _gathered(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        ids = self._cuda.put(vertices)
        x = self.rows.take(ids)
        return x if self._scale is None else x.mul_(self._scale[ids.long()][:, None])

    def _own_and_mean(self, destinations: np.ndarray | torch.Tensor, hop: InputHop) -> OwnAndMean:
        put, weights = self._cuda.put, None if hop.weights is None else self._cuda.put(hop.weights)
        named = DeviceRows(self._cuda, put(hop.pointers), put(hop.vertices), weights, self.held.n)
        return OwnAndMean(self._gathered(destinations), self.rows.averaged(named, self._scale))


class HostFetchedFeatures(FeatureSource):
    """Features that the host fetches, from other ranks or from a sparse matrix, and copies to the device."""

    def __init__(self, cuda: CudaContext, source: FeatureSource) -> None:
        self._cuda, self._source = cuda, source
        self.width, self.is_sparse = source.width, source.is_sparse

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetching]]:
        return [partial(self._started, begin) for begin in self._source.ask([on_host(vertices) for vertices in fetches])]

    def _started(self, begin: Callable[[], Fetching]) -> Fetching:
        fetching = begin()
        return lambda: rows_on_device(self._cuda, fetching())

    def now(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor | SparseRows:
        return rows_on_device(self._cuda, self._source.fetch(on_host(vertices)))

    def nbytes(self) -> int:
        return self._source.nbytes()


def on_host(vertices: np.ndarray | torch.Tensor) -> np.ndarray:
    """Return vertices as an array of the host, which waits for those on a device."""
    return vertices.cpu().numpy() if isinstance(vertices, torch.Tensor) else vertices


def access_counts(adjacency: CSR) -> np.ndarray:
    """Count the edges out of each vertex into the rows at hand, in proportion to which its features are read: int64, shape (n,)."""
    return np.bincount(adjacency.indices, minlength=adjacency.shape[1])


def room_for_features(free: int, graph: int) -> int:
    """Return the device bytes left for features, after those of the graph if `backends.cuda.device.CudaDevice` would put it there."""
    return max(0, int(free * FEATURE_SHARE) - (graph if graph <= free // 2 else 0))


class DeviceTypeFeatures(TypeFeatures):
    """Features by type, gathered by the device where this rank holds them dense and whole; others are fetched by the host and copied.

    Learned rows that ranks divide are asked for by the host. Types share the memory that the graph leaves: those with most edges to a
    vertex come first, since their rows are read most often.
    """

    def __init__(self, cuda: CudaContext, source: TypeFeatures, relations: LocalAdjacency) -> None:
        self._cuda, graph = cuda, relations.graph
        counted = relations.references if isinstance(relations, PartitionedRelations) else partial(access_count, graph)
        dense = {name: features for name, features in source.held.items() if isinstance(features, Features) and not features.is_sparse}
        reads = {name: counted(name) for name in dense}
        free, placed = room_for_features(cuda.kernels.free_bytes, _graph_bytes(relations, cuda.engine)), dict[str, DeviceFeatures]()
        for name in sorted(reads, key=lambda name: -reads[name].mean() if len(reads[name]) else 0.0):
            placed[name] = DeviceFeatures(cuda, dense[name], reads[name], free)
            free -= placed[name].held.nbytes
        self._placed = placed
        by_type = {name: placed.get(name) or HostFetchedFeatures(cuda, features) for name, features in source.held.items()}
        super().__init__(source.needed, by_type, source.width, source.blocks, source.learned)

    def _named(self, name: str, lists: Sequence[Any]) -> Sequence[Any]:
        return super()._named(name, lists if not self.learned else [on_host(vertices) for vertices in lists])

    def ids(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        return as_index(self._cuda.put(vertices))

    def describe(self) -> dict[str, Any]:
        """Return where the features of each type are, for the report."""
        places = {name: str(self._placed[name].held) if name in self._placed else "host" for name in self.held}
        alike = len(set(places.values())) < 2
        shown = next(iter(places.values()), "none") if alike else "; ".join(f"{name}: {where}" for name, where in places.items())
        return {"features_on": shown, "features_device_bytes": sum(features.held.nbytes for features in self._placed.values())}


def _graph_bytes(relations: LocalAdjacency, engine: Backend) -> int:
    """Return the device bytes of the relations, with the times of their edges; 0 if they stay on the host."""
    if relations.collective or relations.backend is not engine:
        return 0
    graph = relations.graph
    timed = [one for one in graph.relations if one.times is not None or graph.type(one.source).times is not None]
    return relations.held_bytes + sum(_TIMED_ENTRY * relation.edges for relation in timed)
