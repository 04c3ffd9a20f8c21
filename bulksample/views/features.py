"""Input features by vertex: dense or sparse, normalised, whole on this rank or in block rows over many.

    X_batch = Q D X        Q selects the vertices of a minibatch, D scales each row to unit norm

Sparse features stay sparse; the first layer multiplies with them. A fetch is begun with `start` and ended with `wait`,
so that rows which travel do so while something else is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.codec import CODECS
from ..distributed.matrix.feature_exchange import RowExchange
from ..distributed.matrix.layout import Layout
from ..distributed.matrix.sparse_feature_exchange import SparseRowExchange
from ..errors import UsageError
from ..graph import Graph
from ..nn.aggregate import SparseRows
from ..nn.gather import RowPool, gather_rows
from ..sparse import CSR

NORMS = ("none", "l1", "l2")
_CHUNK = 2**24  # numbers looked at together, where features may be larger than memory


class Fetching(Protocol):
    """Rows on their way."""

    def wait(self) -> torch.Tensor | SparseRows:
        """The rows in the order asked for: float32, shape (N, f); sparse where the features are."""


class FeatureSource(ABC):
    """Where the features of vertices come from."""

    width: int
    is_sparse: bool

    @abstractmethod
    def start(self, vertices: np.ndarray) -> Fetching:
        """Begin to fetch the rows of some vertices, int32, shape (N,); collective where rows are spread over ranks."""

    @abstractmethod
    def nbytes(self) -> int:
        """What this rank holds of them."""

    def fetch(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """`start` and `wait` in one."""
        return self.start(vertices).wait()

    def now(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """`fetch` for whoever computes with the rows at once."""
        return self.fetch(vertices)


class Features(FeatureSource):
    """The features of a graph that lies whole on this rank, in memory or mapped from a file; scaled as they are fetched.

    Parameters
    ----------
    graph : Graph
    norm : {"none", "l1", "l2"}
        Divide each row by its l1 or l2 norm; rows of zeros stay.
    storage : {"given", "fp16", "bf16"}
        As what dense features are held: half of the memory and of what a gather reads.
    threads : int
        0 gathers when the rows are waited for, on as many threads as torch has; otherwise on so many threads of its own, meanwhile.

    Raises
    ------
    UsageError
        If the graph has no features, or the norm is unknown.
    DataError
        If a feature does not fit the storage.
    """

    def __init__(self, graph: Graph, norm: str = "none", storage: str = "given", threads: int = 0) -> None:
        x = checked_features(graph.features, norm, graph.name)
        self._x = CODECS[storage].encode(x) if isinstance(x, np.ndarray) and storage != "given" else x
        self.width = graph.num_features
        self.is_sparse = isinstance(self._x, CSR)
        self._scale = None if norm == "none" else _inverse_norms(x, norm)
        self._pool, self._threads = RowPool(), threads
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gather") if threads else None

    def start(self, vertices: np.ndarray) -> Fetching:
        if self._thread is None or isinstance(self._x, CSR):
            return _AtHand(self, vertices)
        return _Ahead(self._thread.submit(self._fetch_dense, vertices, self._threads))

    def nbytes(self) -> int:
        return _nbytes(self._x)

    def stored(self) -> tuple[np.ndarray | CSR, np.ndarray | None]:
        """The features as they are held, and what each row is multiplied by."""
        return self._x, self._scale

    def now(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        """The rows of some vertices, in their order."""
        return self._fetch_sparse(vertices) if isinstance(self._x, CSR) else self._fetch_dense(vertices, torch.get_num_threads())

    def _fetch_dense(self, vertices: np.ndarray, threads: int) -> torch.Tensor:
        assert isinstance(self._x, np.ndarray)
        return torch.from_numpy(gather_rows(self._x, vertices, self._scale, self._pool, threads))

    def _fetch_sparse(self, vertices: np.ndarray) -> SparseRows:
        assert isinstance(self._x, CSR)
        rows = self._x.take(vertices)
        values = rows.entries()
        if self._scale is not None:
            values = values * np.repeat(self._scale[vertices], rows.degrees)
        return SparseRows(rows.indptr, rows.indices, values, self.width)


class _AtHand:
    """Rows that need no fetching: gathered when they are waited for."""

    def __init__(self, features: Features, vertices: np.ndarray) -> None:
        self._features, self._vertices = features, vertices

    def wait(self) -> torch.Tensor | SparseRows:
        return self._features.now(self._vertices)


class _Ahead:
    """Rows that another thread gathers."""

    def __init__(self, gathered: Future[torch.Tensor]) -> None:
        self._gathered = gathered

    def wait(self) -> torch.Tensor | SparseRows:
        return self._gathered.result()


class ExchangedFeatures(FeatureSource):
    """Features in block rows over a process column; every fetch is collective in it.

    Parameters
    ----------
    column : Comm
    layout : Layout
    block : float32 or float16 of shape (m, f), or a float32 CSR of that shape
        The rows of the vertices of this rank's block row.
    norm, codec, cache_bytes, heat
        See `Features` and `RowExchange`. Sparse rows travel as they are: no codec, no cache.

    Raises
    ------
    UsageError
        If a codec or a cache is asked for with sparse features.
    """

    def __init__(
        self, column: Comm, layout: Layout, block: np.ndarray | CSR, norm: str = "none", codec: str = "fp32", cache_bytes: int = 0,
        access_count: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.width, self.is_sparse, self.layout = int(block.shape[1]), isinstance(block, CSR), layout
        self.block = normalised(block, norm)
        self.exchange: RowExchange | SparseRowExchange
        if isinstance(self.block, CSR):
            if codec != "fp32" or cache_bytes:
                raise UsageError("the features are sparse; they travel as they are, so feature_codec fp32 and cache_bytes 0 would fit")
            self.exchange = SparseRowExchange(column, layout.bounds, self.block)
        else:
            self.exchange = RowExchange(
                column, layout.bounds, self.block, codec, cache_bytes, access_count, names=layout.members(column.rank)
            )

    def start(self, vertices: np.ndarray) -> _Travelling:
        return _Travelling(self.exchange.start(self.layout.places(vertices)))

    def nbytes(self) -> int:
        cached = self.exchange.cache.rows.nbytes if isinstance(self.exchange, RowExchange) else 0
        return _nbytes(self.block) + cached


class _Travelling:
    """Rows that an exchange brings."""

    def __init__(self, fetch: Any) -> None:
        self._fetch = fetch

    def wait(self) -> torch.Tensor | SparseRows:
        return as_input(self._fetch.wait())


def as_input(rows: np.ndarray | CSR) -> torch.Tensor | SparseRows:
    """Rows as the first layer takes them."""
    if isinstance(rows, CSR):
        return SparseRows(rows.indptr, rows.indices, rows.entries(), rows.shape[1])
    own = rows if rows.dtype == np.float32 and rows.flags.writeable else np.array(rows, np.float32)  # torch takes what may be written
    return torch.from_numpy(own)


def _nbytes(x: np.ndarray | CSR) -> int:
    return x.nbytes() if isinstance(x, CSR) else x.nbytes


def checked_features(x: np.ndarray | CSR | None, norm: str, name: str) -> np.ndarray | CSR:
    """The features of a graph; raises `UsageError` where there are none, or the norm is unknown."""
    if x is None:
        raise UsageError(f"graph {name!r} has no features; training needs some")
    if norm not in NORMS:
        raise UsageError(f"there is no feature norm {norm!r}; {', '.join(NORMS)} would fit")
    return x


def normalised(x: np.ndarray | CSR, norm: str) -> np.ndarray | CSR:
    """Rows over their norms."""
    if norm == "none":
        return x
    scale = _inverse_norms(x, norm)
    if isinstance(x, CSR):
        return x.with_values(x.entries() * np.repeat(scale, x.degrees))
    return x.astype(np.float32) * scale[:, None]


def _inverse_norms(x: np.ndarray | CSR, norm: str) -> np.ndarray:
    """One over the norm of each row, 1 where the row is zero: float32, shape (n,)."""
    power = {"l1": np.abs, "l2": np.square}[norm]
    if isinstance(x, CSR):
        assert x.values is not None
        totals = np.bincount(x.row_of_entry(), power(x.values.astype(np.float64)), minlength=x.shape[0])
    else:
        step = max(1, _CHUNK // max(1, x.shape[1]))
        parts = [power(x[first : first + step].astype(np.float64)).sum(1) for first in range(0, len(x), step)]
        totals = np.concatenate([np.empty(0), *parts])
    norms = np.sqrt(totals) if norm == "l2" else totals
    return np.divide(1.0, norms, out=np.ones_like(norms), where=norms > 0).astype(np.float32)
