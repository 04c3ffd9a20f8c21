"""Input features by vertex: dense or sparse, normalized, from this rank's memory.

    X_batch = Q D X        Q selects the vertices of a mini-batch, D scales each row to unit norm

Sparse features stay sparse; the first layer multiplies with them. `start` begins a fetch and `wait` ends it, so that rows travel
while the rank computes. `views.remote_features` fetches features that other ranks hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from ..backends import on_host
from ..distributed.comm.base import Comm
from ..distributed.comm.machines import shared_array
from ..distributed.matrix.codec import CODECS
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..graph import Graph
from ..mapped import forget
from ..nn.aggregate import SparseRows
from ..nn.gather import RowPool, gather_rows
from ..prefetch import Prefetcher
from ..sparse import CSR

NORMS = ("none", "l1", "l2")
_CHUNK_NUMBERS = 2**24  # read at once, since features may be larger than memory


class Fetching:
    """A fetch under way, which `finish` completes."""

    def __init__(self, finish: Callable[[], torch.Tensor | SparseRows]) -> None:
        self._finish = finish

    def wait(self) -> torch.Tensor | SparseRows:
        """Return the rows in the requested order: float32, shape (N, f); sparse if the features are."""
        return self._finish()


class FeatureSource(ABC):
    """Fetches the features of vertices.

    Attributes
    ----------
    width : int
        f, the number of features.
    is_sparse : bool
    """

    width: int
    is_sparse: bool

    @abstractmethod
    def start(self, vertices: np.ndarray) -> Fetching:
        """Start to fetch the rows of vertices, int32, shape (N,); collective if rows are spread over ranks."""

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetching]]:
        """Return a function for each of several fetches that starts it; collective, as are these functions, if rows are spread over ranks.

        A source that requests rows from other ranks sends their ids here, for all fetches at once; the rows of a fetch travel once it is
        started. All ranks start the same fetches of a list, in its order; the last ones may be left out.
        """
        return [partial(self.start, vertices) for vertices in fetches]

    @abstractmethod
    def nbytes(self) -> int:
        """Return the bytes of features that this rank holds."""

    def fetch(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """Start a fetch and wait for it."""
        return self.start(vertices).wait()

    def now(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """Fetch rows that the caller computes with at once."""
        return self.fetch(vertices)


class NoFeatures(FeatureSource):
    """The features of a graph that has none: matrices without columns."""

    width, is_sparse = 0, False

    def start(self, vertices: np.ndarray) -> Fetching:
        return Fetching(lambda: torch.empty(len(vertices), 0))

    def nbytes(self) -> int:
        return 0


class Features(FeatureSource):
    """The features of a graph that this rank holds whole, in memory or mapped from a file. Rows are scaled as they are fetched.

    Parameters
    ----------
    graph : Graph, or RankGraph with replicated features
    norm : {"none", "l1", "l2"}
        Divide each row by its l1 or l2 norm; rows of zeros stay.
    storage : {"given", "fp16", "bf16"}
        Storage dtype of dense features. Half precision halves the memory and the bytes that a gather reads.
    threads : int
        0 gathers in `wait`, with as many threads as torch has. Otherwise this many extra threads gather in the background.
    shared_by : Comm, optional
        All ranks, if those of a machine are to share one copy of what is converted, norms included. Collective. What is not converted
        is mapped from the store, and shared anyway.

    Attributes
    ----------
    shared : bool
        True if the ranks of a machine share one copy, which devices are not to copy to other memory of the host.

    Raises
    ------
    UsageError
        If the graph has no features, or the norm is unknown.
    DataError
        If a feature is too large for the storage dtype.
    """

    def __init__(
        self, graph: Graph | RankGraph | StoredFeatures, norm: str = "none", storage: str = "given", threads: int = 0,
        shared_by: Comm | None = None,
    ) -> None:  # fmt: skip
        x = checked_features(graph.features, norm, graph.name)
        self._x = _stored_as(x, storage, shared_by) if isinstance(x, np.ndarray) and storage != "given" else x
        self.width = graph.num_features
        self.is_sparse = isinstance(self._x, CSR)
        self._scale = None if norm == "none" else _scales(x, norm, shared_by)
        self.shared = shared_by is not None
        self._pool, self._threads = RowPool(), threads
        self._thread = Prefetcher(1, "gather") if threads else None

    def start(self, vertices: np.ndarray) -> Fetching:
        if self._thread is None or isinstance(self._x, CSR):
            return Fetching(partial(self.now, vertices))
        return Fetching(self._thread.submit(self._fetch_dense, vertices, self._threads))

    def nbytes(self) -> int:
        return feature_bytes(self._x)

    def stored(self) -> tuple[np.ndarray | CSR, np.ndarray | None]:
        """Return the features in their storage dtype, and the factor of each row."""
        return self._x, self._scale

    def now(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        return self._fetch_sparse(vertices) if isinstance(self._x, CSR) else self._fetch_dense(vertices, torch.get_num_threads())

    def _fetch_dense(self, vertices: np.ndarray, threads: int) -> torch.Tensor:
        assert isinstance(self._x, np.ndarray)
        return torch.from_numpy(gather_rows(self._x, vertices, self._scale, self._pool, on_host(threads)))

    def _fetch_sparse(self, vertices: np.ndarray) -> SparseRows:
        assert isinstance(self._x, CSR)
        rows = self._x.take(vertices)
        values = rows.entries()
        if self._scale is not None:
            values = values * np.repeat(self._scale[vertices], rows.degrees)
        return SparseRows(rows.indptr, rows.indices, values, self.width)


class StoredFeatures(NamedTuple):
    """The features of a store without its other arrays."""

    name: str
    num_features: int
    features: np.ndarray | CSR | None


def _stored_as(x: np.ndarray, storage: str, shared_by: Comm | None) -> np.ndarray:
    """Return dense features in another dtype, in the memory of this rank or of its machine."""
    codec = CODECS[storage]
    if shared_by is None:
        return codec.encode(x)

    def fill(a: int, b: int) -> np.ndarray:
        encoded = codec.encode(x[a:b])
        forget(x[a:b])
        return encoded

    made = shared_array(shared_by, (len(x), codec.columns(x.shape[1])), codec.dtype, fill, f"features as {storage}")
    forget(x)  # the system maps pages around those that are read
    return made


def _scales(x: np.ndarray | CSR, norm: str, shared_by: Comm | None) -> np.ndarray:
    """Return one over the norm of each row, in the memory of this rank or of its machine."""
    if shared_by is None:
        return _inverse_norms(x, norm)

    def fill(a: int, b: int) -> np.ndarray:
        if isinstance(x, CSR):
            return _inverse_norms(x.take(np.arange(a, b)), norm)
        scales = _inverse_norms(x[a:b], norm)
        forget(x[a:b])
        return scales

    made = shared_array(shared_by, (x.shape[0],), np.dtype(np.float32), fill, "norms of features")
    if isinstance(x, np.ndarray):
        forget(x)
    return made


def feature_bytes(x: np.ndarray | CSR) -> int:
    """Return the bytes of dense or sparse features."""
    return x.nbytes() if isinstance(x, CSR) else x.nbytes


def checked_features(x: np.ndarray | CSR | None, norm: str, name: str) -> np.ndarray | CSR:
    """Return the features of a graph; raise `UsageError` if it has none, or the norm is unknown."""
    if x is None:
        raise UsageError(f"training needs features, and graph {name!r} has no features; import them with the graph")
    if norm not in NORMS:
        raise UsageError(f"there is no feature norm {norm!r}; use one of {', '.join(NORMS)}")
    return x


def normalized(x: np.ndarray | CSR, norm: str) -> np.ndarray | CSR:
    """Divide each row by its norm."""
    if norm == "none":
        return x
    scale = _inverse_norms(x, norm)
    if isinstance(x, CSR):
        return x.with_values(x.entries() * np.repeat(scale, x.degrees))
    rows: np.ndarray = x.astype(np.float32) * scale[:, None]
    return rows


def _inverse_norms(x: np.ndarray | CSR, norm: str) -> np.ndarray:
    """Compute one over the norm of each row, 1 where the row is zero: float32, shape (n,)."""
    power = {"l1": np.abs, "l2": np.square}[norm]
    if isinstance(x, CSR):
        assert x.values is not None
        totals = np.bincount(x.row_of_entry(), power(x.values.astype(np.float64)), minlength=x.shape[0])
    else:
        step = max(1, _CHUNK_NUMBERS // max(1, x.shape[1]))
        parts = [power(x[first : first + step].astype(np.float64)).sum(1) for first in range(0, len(x), step)]
        totals = np.concatenate([np.empty(0), *parts])
    norms = np.sqrt(totals) if norm == "l2" else totals
    return np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0).astype(np.float32)
