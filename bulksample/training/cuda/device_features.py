"""Features on a device: all of them where they fit, else those of the vertices that are named most, the others read from the host.

X_batch = D Q X        the kernels of csrc/features.cu gather; a row in pinned memory travels over the bus as it is read
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ...backends.cuda.features import NO_CACHE, Cache, gather
from ...nn.aggregate import SparseRows
from ...sparse import CSR
from ...views.features import Features, FeatureSource, Fetching
from .cuda_context import CudaContext
from .device_rows import rows_on_device

FEATURE_SHARE = 0.75  # of the memory that is free, for the graph and the features together
_TYPES = {np.dtype(np.float32): "float32", np.dtype(np.float16): "float16", np.dtype(np.uint16): "bfloat16"}


class Held(NamedTuple):
    """Where the features of n vertices lie."""

    rows: int  # on the device
    n: int
    nbytes: int  # on the device

    @property
    def whole(self) -> bool:
        return self.rows == self.n

    def __str__(self) -> str:
        return "device" if self.whole else "pinned memory" + (f", {self.rows} of {self.n} rows on the device" if self.rows else "")


def fitting(n: int, row_bytes: int, free: int) -> Held:
    """How many rows a device has room for: all, or hot ones with a number for every vertex that says where."""
    if n * row_bytes <= free:
        return Held(n, n, n * row_bytes)
    rows = max(0, (free - 4 * n) // max(1, row_bytes))
    return Held(rows, n, rows * row_bytes + 4 * n) if rows else Held(0, n, 0)


class HeldRows:
    """Rows of numbers on a device as far as they fit, the others in memory of the host that its kernels read.

    Parameters
    ----------
    cuda : CudaContext
    x : float32, float16, or uint16 for bfloat16, shape (n, f)
    heat : integers, shape (n,)
        How often each row is expected to be read.
    free : int
        Bytes of the device that they may take.
    """

    def __init__(self, cuda: CudaContext, x: np.ndarray, access_count: np.ndarray, free: int) -> None:
        self._cuda, self._width, self._type = cuda, x.shape[1], _TYPES[x.dtype]
        self.held = fitting(len(x), x.itemsize * self._width, free)
        self._x, self._cache = self._placed(x, access_count)

    def _placed(self, x: np.ndarray, access_count: np.ndarray) -> tuple[Any, Cache]:
        device = self._cuda.kernels
        if self.held.whole:
            return device.put(x).reshape(-1), NO_CACHE
        pinned = device.arrays.pinned(np.ascontiguousarray(x)).reshape(-1)
        if not self.held.rows:
            return pinned, NO_CACHE
        hot, slots = np.argsort(-access_count.astype(np.int64), kind="stable")[: self.held.rows], np.full(len(x), -1, np.int32)
        slots[hot] = np.arange(len(hot), dtype=np.int32)
        return pinned, Cache(device.put(x[hot]).reshape(-1), device.put(slots))

    def take(self, rows: torch.Tensor, wanted: str = "float32") -> torch.Tensor:
        """Some rows as ``wanted`` numbers: shape (len(rows), f)."""
        named = self._cuda.array(rows.int())
        taken = self._cuda.tensor(gather(self._cuda.kernels, self._x, self._width, named, self._type, wanted, self._cache))
        return taken.view(getattr(torch, wanted)).reshape(len(rows), self._width)


class DeviceFeatures(FeatureSource):
    """Dense features of a graph that lies whole on this rank, gathered by the device.

    Parameters
    ----------
    cuda : CudaContext
    features : Features
        As they lie on the host.
    heat, free
        See `HeldRows`.

    Notes
    -----
    A minibatch of N vertices reads and writes N rows; of those that are not on the device, the bytes cross the bus.
    """

    is_sparse = False

    def __init__(self, cuda: CudaContext, features: Features, access_count: np.ndarray, free: int) -> None:
        x, scale = features.stored()
        assert isinstance(x, np.ndarray)
        self._cuda, self.width = cuda, features.width
        self._scale = None if scale is None else cuda.put(scale)
        self.rows = HeldRows(cuda, x, access_count, free)
        self.held = self.rows.held

    def start(self, vertices: np.ndarray | torch.Tensor) -> Fetching:
        streams = self._cuda.streams
        with streams.fetch.on("fetch"):
            rows = self._gathered(vertices)
            return _Fetched(rows, streams.fetch.record(), streams.train)

    def now(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        """The rows of some vertices, on the stream that trains."""
        with self._cuda.streams.train.on("fetch"):
            return self._gathered(vertices)

    def nbytes(self) -> int:
        return self.held.nbytes

    def _gathered(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor:
        named = self._cuda.put(vertices)
        x = self.rows.take(named)
        return x if self._scale is None else x.mul_(self._scale[named.long()][:, None])


class _Fetched:
    """Rows that are gathered on a stream."""

    def __init__(self, rows: torch.Tensor, event: Any, train: Any) -> None:
        self._rows, self._event, self._train = rows, event, train

    def wait(self) -> torch.Tensor:
        self._train.wait(self._event)
        return self._rows


class HostFetchedFeatures(FeatureSource):
    """Features that are fetched on the host, from other ranks or sparse, and copied to the device."""

    def __init__(self, cuda: CudaContext, source: FeatureSource) -> None:
        self._cuda, self._source = cuda, source
        self.width, self.is_sparse = source.width, source.is_sparse

    def start(self, vertices: np.ndarray | torch.Tensor) -> Fetching:
        return _Moved(self._cuda, self._source.start(_on_host(vertices)))

    def now(self, vertices: np.ndarray | torch.Tensor) -> torch.Tensor | SparseRows:
        return rows_on_device(self._cuda, self._source.fetch(_on_host(vertices)))

    def nbytes(self) -> int:
        return self._source.nbytes()


class _Moved:
    def __init__(self, cuda: CudaContext, fetching: Fetching) -> None:
        self._cuda, self._fetching = cuda, fetching

    def wait(self) -> torch.Tensor | SparseRows:
        return rows_on_device(self._cuda, self._fetching.wait())


def _on_host(vertices: np.ndarray | torch.Tensor) -> np.ndarray:
    return vertices.cpu().numpy() if isinstance(vertices, torch.Tensor) else vertices


def access_counts(adjacency: CSR) -> np.ndarray:
    """How many rows name each vertex: int64, shape (n,)."""
    return np.bincount(adjacency.indices, minlength=adjacency.shape[0])


def room_for_features(free: int, adjacency: CSR) -> int:
    """Bytes of a device for features, the graph being there where it may be (`backends.gpu.device.Device`)."""
    graph = adjacency.nbytes()
    return max(0, int(free * FEATURE_SHARE) - (graph if graph <= free // 2 else 0))
