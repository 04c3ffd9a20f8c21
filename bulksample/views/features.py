"""Input features by vertex: dense or sparse, normalized, from this rank's memory.

    X_batch = Q D X        Q selects the vertices of a mini-batch, D scales each row to unit norm

Sparse features stay sparse; the first layer multiplies with them. `start` begins a fetch and returns what waits for it, so that rows travel
while the rank computes. `views.type_features` fetches features that other ranks hold, and those of several types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ..backends import on_host
from ..distributed.comm.base import Comm
from ..distributed.comm.machines import shared_array
from ..distributed.matrix.codec import CODECS
from ..distributed.matrix.layout import TypeLayouts
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..graph import Graph
from ..graph.minibatch import InputHop
from ..loading.epochs import Prefetcher
from ..mapped import forget
from ..nn.aggregate import SparseRows
from ..nn.gather import OwnAndMean, RowPool, gather_own_and_mean, gather_rows
from ..sparse import CSR

NORMS = ("none", "l1", "l2")
Ids = Any  # of vertices: an int32 array or a tensor on a device, or a dict of them by type
_CHUNK_NUMBERS = 2**24  # read at once, since features may be larger than memory


# Waits for a fetch, and returns rows in the order of the ids: float32, shape (N, f); sparse if features are, a dict if ids are by type.
Fetching = Callable[[], Any]


class FeatureSource(ABC):
    """Fetches the features of vertices of one type, or of several: then ids and rows are dicts by type, as `TypeFeatures` returns them."""

    width: int  # f, the number of features
    is_sparse: bool = False
    comm: Comm | None = None  # of the fetches, if they are collective
    blocks: TypeLayouts | None = None  # of features and learned rows by type; None if there is one type, or every rank holds them whole
    can_average: bool = False  # rows are dense, and lie where `start_own_and_mean` can read them

    def __init_subclass__(cls) -> None:
        if cls.start is FeatureSource.start and cls.ask is FeatureSource.ask:
            raise TypeError(f"{cls.__name__} has neither `start` nor `ask`, and each stands for the other; define one")

    def start(self, vertices: Ids) -> Fetching:
        """Start to fetch the rows of vertices, int32, shape (N,); collective if rows are spread over ranks."""
        return self.ask([vertices])[0]()

    def ask(self, fetches: Sequence[Ids]) -> list[Callable[[], Fetching]]:
        """Return a function for each of several fetches that starts it; collective, as are these functions, if rows are spread over ranks.

        A source that requests rows from other ranks sends their ids here, for all fetches at once; the rows of a fetch travel once it is
        started. All ranks start the same fetches of a list, in its order; the last ones may be left out.
        """
        return [partial(self.start, vertices) for vertices in fetches]

    def start_own_and_mean(self, destinations: Ids, hop: InputHop) -> Callable[[], OwnAndMean]:
        """Start to gather the rows of destinations, and to average those of the sources of their edges, where the rows lie.

        What waits returns the bits of `own_and_mean` of fetched rows. Sends nothing; see `can_average`.
        """
        raise NotImplementedError

    def scaled(self, factors: torch.Tensor) -> FeatureSource:
        """Return the same features with further factors of their rows: float32, shape (n,), on their device; see `can_average`."""
        raise NotImplementedError

    def joined(self, lists: Sequence[Ids]) -> Ids:
        """Return the ids of several mini-batches one after another, where they are; of none, no ids."""
        if len(lists) < 2:
            return lists[0] if lists else np.empty(0, np.int32)
        return torch.cat(list(lists)) if isinstance(lists[0], torch.Tensor) else np.concatenate(lists)

    def cut(self, rows: Any, lists: Sequence[Ids | None]) -> list[Any]:
        """Divide the rows of joined ids among their mini-batches again; None stands for a mini-batch without ids."""
        bounds = [0, *accumulate(0 if one is None else len(one) for one in lists)]
        return [rows] if len(lists) == 1 else [rows[first:last] for first, last in pairwise(bounds)]

    @abstractmethod
    def nbytes(self) -> int:
        """Return the bytes of features that this rank holds."""

    def fetch(self, vertices: Ids) -> Any:
        """Start a fetch and wait for it."""
        return self.start(vertices)()

    def now(self, vertices: Ids) -> Any:
        """Fetch rows that the caller computes with at once."""
        return self.fetch(vertices)


class NoFeatures(FeatureSource):
    """The features of a graph that has none: matrices without columns."""

    width = 0

    def start(self, vertices: np.ndarray) -> Fetching:
        return lambda: torch.empty(len(vertices), 0)

    def nbytes(self) -> int:
        return 0


class Features(FeatureSource):
    """The features of a graph that this rank holds whole, in memory or mapped from a file. Rows are scaled as they are fetched.

    `norm` divides each row by its l1 or l2 norm; rows of zeros stay. `storage` is the dtype of dense features: half precision halves the
    memory and the bytes that a gather reads. With 0 `threads`, rows are gathered at the wait, with as many threads as torch has; otherwise
    this many extra threads gather in the background. `shared_by` are all ranks, if those of a machine are to share one copy of what is
    converted, norms included; collective then. What is not converted is mapped from the store, and shared anyway. Devices are not to copy
    what is `shared` to other memory of the host.

    Raises `UsageError` if the graph has no features, or the norm is unknown, and `DataError` if a feature is too large for the storage
    dtype.
    """

    def __init__(
        self, graph: Graph | RankGraph | StoredFeatures, norm: str = "none", storage: str = "given", threads: int = 0,
        shared_by: Comm | None = None,
    ) -> None:  # fmt: skip
        x = checked_features(graph.features, norm, graph.name)
        self._x = x
        if isinstance(x, np.ndarray) and storage != "given":
            codec = CODECS[storage]
            shape, what = (len(x), codec.columns(x.shape[1])), f"features as {storage}"
            self._x = _converted(x, codec.encode, shape, codec.dtype, shared_by, what)
        self.width = graph.num_features
        self.is_sparse = isinstance(self._x, CSR)
        self._scale = None
        if norm != "none":
            norms = partial(_inverse_norms, norm=norm)
            self._scale = _converted(x, norms, (x.shape[0],), np.dtype(np.float32), shared_by, "norms of features")
        self.shared = shared_by is not None
        self.can_average = isinstance(self._x, np.ndarray) and self._x.flags.c_contiguous  # else a product copies all of them
        self._pool, self._threads = RowPool(), threads
        self._thread = Prefetcher(1, "gather") if threads else None

    def start(self, vertices: np.ndarray) -> Fetching:
        if self._thread is None or isinstance(self._x, CSR):
            return partial(self.now, vertices)
        return self._thread.submit(self._fetch_dense, vertices, self._threads)

    def start_own_and_mean(self, destinations: np.ndarray, hop: InputHop) -> Callable[[], OwnAndMean]:
        if self._thread is None:
            return lambda: self._own_and_mean(destinations, hop, torch.get_num_threads())
        return self._thread.submit(self._own_and_mean, destinations, hop, self._threads)

    def scaled(self, factors: torch.Tensor) -> Features:
        made = copy(self)
        made._scale = factors.numpy() if self._scale is None else self._scale * factors.numpy()
        return made

    def nbytes(self) -> int:
        return feature_bytes(self._x)

    def stored(self) -> tuple[np.ndarray | CSR, np.ndarray | None]:
        """Return the features in their storage dtype, and the factor of each row."""
        return self._x, self._scale

    def now(self, vertices: np.ndarray) -> torch.Tensor | SparseRows:
        if not isinstance(self._x, CSR):
            return self._fetch_dense(vertices, torch.get_num_threads())
        rows = self._x.take(vertices)
        values = rows.entries()
        if self._scale is not None:
            values = values * np.repeat(self._scale[vertices], rows.degrees)
        return SparseRows(rows.indptr, rows.indices, values, self.width)

    def _fetch_dense(self, vertices: np.ndarray, threads: int) -> torch.Tensor:
        assert isinstance(self._x, np.ndarray)
        return torch.from_numpy(gather_rows(self._x, vertices, self._scale, self._pool, on_host(threads)))

    def _own_and_mean(self, destinations: np.ndarray, hop: InputHop, threads: int) -> OwnAndMean:
        assert isinstance(self._x, np.ndarray)
        made = gather_own_and_mean(self._x, destinations, hop, self._scale, self._pool, on_host(threads))
        return OwnAndMean(*map(torch.from_numpy, made))


class StoredFeatures(NamedTuple):
    """The features of a store without its other arrays."""

    name: str
    num_features: int
    features: np.ndarray | CSR | None


def _converted(
    x: Any, convert: Callable[[Any], np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any], shared_by: Comm | None, what: str
) -> np.ndarray:  # fmt: skip
    """Convert the rows of features, in the memory of this rank, or of its machine: then some at a time."""
    if shared_by is None:
        return convert(x)

    def fill(a: int, b: int) -> np.ndarray:
        made = convert(consecutive(x, a, b))
        if isinstance(x, np.ndarray):
            forget(x[a:b])
        return made

    made = shared_array(shared_by, shape, dtype, fill, what)
    if isinstance(x, np.ndarray):
        forget(x)  # the system maps pages around those that are read
    return made


def consecutive(x: np.ndarray | CSR, first: int, last: int) -> np.ndarray | CSR:
    """Return some rows of dense or sparse features."""
    return x.take(np.arange(first, last)) if isinstance(x, CSR) else x[first:last]


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
    return np.asarray(x.astype(np.float32) * scale[:, None])


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
