"""Features in block rows on the devices of a process column, which fetch them from each other; what `distributed.matrix.feature_exchange` says, in tensors.

    X = decode(encode(H[vertices]))        H: n x f, rank i holds rows bounds[i] .. bounds[i+1] - 1

Ids, rows and counts are those of `distributed.matrix.feature_exchange.RowExchange`, which is where the cache is filled and what it was told is compared.
The host waits for what is asked of a rank, and for three numbers of its own; rows it never sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...distributed.matrix.feature_exchange import RowExchange
from ...errors import PeerLost, UsageError
from ...views.features import FeatureSource, Fetching
from ...views.remote_features import RemoteFeatures
from ..tensor_comm import TensorArrival, TensorComm
from .cuda_context import CudaContext
from .device_features import HeldRows

TRAVEL_AS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # codecs that a device reads


def can_fetch_on_devices(source: Any) -> bool:
    """Whether features are such as devices can fetch from each other: dense, of a codec of whole numbers."""
    return isinstance(source, RemoteFeatures) and isinstance(source.exchange, RowExchange) and source.exchange.codec.name in TRAVEL_AS


class DeviceRemoteFeatures(FeatureSource):
    """Dense features of which this rank's block row lies on its device; every fetch is collective in the process column.

    Parameters
    ----------
    cuda : CudaContext
    source : RemoteFeatures
        Of which `travels` holds.
    over : TensorComm
        Among the members of the process column.
    free : int
        Bytes of the device that the block may take; else it lies in memory of the host that kernels read.
    """

    is_sparse = False

    def __init__(self, cuda: CudaContext, source: RemoteFeatures, over: TensorComm, free: int) -> None:
        exchange, layout = source.exchange, source.layout
        assert isinstance(exchange, RowExchange)
        self._cuda, self._source, self._of, self._over, self.width = cuda, source, exchange, over, source.width
        block = exchange.encoded_rows()
        self._rows, self._type = HeldRows(cuda, block, np.zeros(len(block), np.int64), free), TRAVEL_AS[exchange.codec.name]
        self.held = self._rows.held
        self._bounds = cuda.put(exchange.bounds.astype(np.int32))
        self._positions = None if layout.position is None else cuda.put(layout.position)
        self._cached_ids = cuda.put(exchange.cache.ids.astype(np.int32))
        self._cached = cuda.put(exchange.cache.rows).view(getattr(torch, self._type))

    def start(self, vertices: np.ndarray | torch.Tensor) -> Fetching:
        with self._cuda.streams.fetch.on("fetch"):
            return self._start(self._cuda.put(vertices).int())

    def nbytes(self) -> int:
        return self._source.nbytes()

    def _start(self, vertices: torch.Tensor) -> Fetching:
        unique, place = torch.unique(vertices if self._positions is None else self._positions[vertices.long()], return_inverse=True)
        own, at = self._own_of(unique), self._cache_places(unique)
        away = at < 0
        away[own] = False
        asked = unique[away]
        wanted, counts = self._over.start_alltoall(asked.split(self._cuts(asked)), "topology").whole()
        if len(wanted):
            self._of.check_own(*(int(end) for end in torch.aminmax(wanted)))
        arrival = self._over.start_alltoall(self._encoded(wanted).split(counts), self._of.kind)
        rows = self._cached.new_empty((len(unique), self.width))
        if len(self._cached):
            rows[~away] = self._cached[at[~away].clamp(min=0)]
        rows[own] = self._encoded(unique[own])
        return _Travelling(self._cuda, arrival, rows, away, place, len(asked))

    def _encoded(self, ids: torch.Tensor) -> torch.Tensor:
        return self._rows.take(ids - int(self._of.bounds[self._of.comm.rank]), self._type)

    def _cuts(self, ids: torch.Tensor) -> list[int]:
        """How many ascending ids each rank holds."""
        cuts: list[int] = torch.searchsorted(ids, self._bounds).diff().tolist()
        return cuts

    def _own_of(self, unique: torch.Tensor) -> slice:
        """Which of ascending ids are own rows; refuses those that are no rows."""
        cuts, rank = self._cuts(unique), self._of.comm.rank
        if sum(cuts) != len(unique):
            raise UsageError(f"vertices must be rows of the matrix, 0 to {self._of.n - 1}; got {int(unique[0])} to {int(unique[-1])}")
        first = sum(cuts[:rank])
        return slice(first, first + cuts[rank])

    def _cache_places(self, unique: torch.Tensor) -> torch.Tensor:
        """Where each id is kept, -1 where it is not; see `HotRows.find`."""
        if not len(self._cached_ids):
            return torch.full_like(unique, -1)
        at = torch.searchsorted(self._cached_ids, unique).clamp(max=len(self._cached_ids) - 1)
        return torch.where(self._cached_ids[at] == unique, at, -1)


class _Travelling:
    """Rows that other ranks send."""

    def __init__(
        self, cuda: CudaContext, arrival: TensorArrival, rows: torch.Tensor, away: torch.Tensor, place: torch.Tensor, asked: int
    ) -> None:
        self._cuda, self._arrival, self._rows, self._away, self._place, self._asked = cuda, arrival, rows, away, place, asked
        self._result: torch.Tensor | None = None

    def wait(self) -> torch.Tensor:
        streams = self._cuda.streams
        if self._result is None:
            with streams.fetch.on("fetch"):
                came, _ = self._arrival.whole()  # owners ascend as the ids do
                if len(came) != self._asked:
                    raise PeerLost(f"{self._asked} rows were asked for; {len(came)} came")
                self._rows[self._away] = came
                self._result = self._rows.float()[self._place]
                event = streams.fetch.record()
            streams.train.wait(event)
        return self._result
