"""Features that other ranks hold: each rank stores the rows of its block and fetches the others from their owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.feature_exchange import Fetch, RowExchange
from ..distributed.matrix.layout import Layout
from ..distributed.matrix.sparse_feature_exchange import SparseFetch, SparseRowExchange
from ..errors import UsageError
from ..nn.aggregate import SparseRows
from ..sparse import CSR
from .features import FeatureSource, Fetching, feature_bytes, normalized


class RemoteFeatures(FeatureSource):
    """Features in block rows over a process column; every fetch is collective in the column.

    Parameters
    ----------
    column : Comm
    layout : Layout
    block : float32 or float16 of shape (m, f), or a float32 CSR of that shape
        The rows of the vertices of this rank's block row.
    norm, codec, cache_bytes, access_count, wanted
        See `Features` and `RowExchange`. Sparse rows travel as they are: no codec, no cache.

    Raises
    ------
    UsageError
        If a codec or a cache is asked for with sparse features.
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
                asked = f"feature_codec {codec} and cache_bytes {cache_bytes}"
                raise UsageError(f"the features are sparse and travel without a codec or cache; got {asked}: use fp32 and 0")
            self.exchange = SparseRowExchange(column, layout.bounds, self.block)
        else:
            names = layout.members(column.rank)
            self.exchange = RowExchange(column, layout.bounds, self.block, codec, cache_bytes, access_count, names=names, wanted=wanted)

    @property
    def comm(self) -> Comm:
        """The communicator of the fetches."""
        return self.exchange.comm

    def start(self, vertices: np.ndarray) -> Fetching:
        return self.ask([vertices])[0]()

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetching]]:
        return [partial(_started, begin) for begin in self.exchange.ask([self.layout.places(vertices) for vertices in fetches])]

    def nbytes(self) -> int:
        cached = self.exchange.cache.rows.nbytes if isinstance(self.exchange, RowExchange) else 0
        return feature_bytes(self.block) + cached


def _started(begin: Callable[[], Fetch] | Callable[[], SparseFetch]) -> Fetching:
    under_way = begin()
    return Fetching(lambda: as_input(under_way.wait()))


def as_input(rows: np.ndarray | CSR) -> torch.Tensor | SparseRows:
    """Convert rows to an input of the first layer: a float32 tensor, or sparse rows."""
    if isinstance(rows, CSR):
        return SparseRows(rows.indptr, rows.indices, rows.entries(), rows.shape[1])
    own = rows if rows.dtype == np.float32 and rows.flags.writeable else np.array(rows, np.float32)  # torch needs writable memory
    return torch.from_numpy(own)
