"""Features in block rows on the devices of a process column, which fetch rows from each other.

    X = decode(encode(H[vertices]))        H: n x f, rank i holds rows bounds[i] .. bounds[i+1] - 1

This is `distributed.matrix.feature_exchange.RowExchange` in tensors: it sends the same ids, rows and counts, and uses that object's
cache and checks. The host waits for the ids that other ranks request and for three numbers; no rows pass through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ...distributed.matrix.feature_exchange import RowExchange
from ...errors import UsageError
from ...views.features import FeatureSource, Fetching
from ...views.type_features import RemoteFeatures
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext
from .device_features import CachedRows

_WIRE_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # by codec


def can_fetch_on_devices(source: Any) -> bool:
    """Return True if devices can fetch these features from each other: they are dense, and the codec is a dtype of torch."""
    return isinstance(source, RemoteFeatures) and isinstance(source.exchange, RowExchange) and source.exchange.codec.name in _WIRE_DTYPES


class DeviceNamedRows(NamedTuple):
    """The rows of a fetch, as `distributed.matrix.feature_exchange.NamedRows` has them, and how many of each rank are requested."""

    ids: torch.Tensor
    position: torch.Tensor
    own: slice
    away: torch.Tensor
    slots: torch.Tensor
    counts: list[int]


class DeviceRemoteFeatures(FeatureSource):
    """Dense features with this rank's block row on its device; every fetch is collective in the process column, `over` which it goes.

    `can_fetch_on_devices` is true of `source`. The block takes at most `free` bytes of the device; the rest stays in host memory that
    kernels read.
    """

    def __init__(self, cuda: CudaContext, source: RemoteFeatures, over: TensorComm, free: int) -> None:
        exchange, layout = source.exchange, source.layout
        assert isinstance(exchange, RowExchange)
        self._cuda, self._source, self._exchange, self._over, self.width = cuda, source, exchange, over, source.width
        block = exchange.encoded_rows()
        self._rows, self._dtype = CachedRows(cuda, block, np.zeros(len(block), np.int64), free), _WIRE_DTYPES[exchange.codec.name]
        self.held = self._rows.held
        self._bounds = cuda.put(exchange.bounds.astype(np.int32))
        self._positions = None if layout.position is None else cuda.put(layout.position)
        self._cached_ids = cuda.put(exchange.cache.ids.astype(np.int32))
        self._cached = cuda.put(exchange.cache.rows).view(getattr(torch, self._dtype))

    def ask(self, fetches: Sequence[np.ndarray]) -> list[Callable[[], Fetching]]:
        """See `FeatureSource.ask`; the messages are those of `distributed.matrix.messages.request_ids`."""
        with self._cuda.streams.fetch.on("fetch"):
            named = [self._named(self._cuda.put(vertices).int()) for vertices in fetches]
            return [partial(self._start, one, request) for one, request in zip(named, self._requested(named), strict=True)]

    def nbytes(self) -> int:
        return self._source.nbytes()

    def _named(self, vertices: torch.Tensor) -> DeviceNamedRows:
        """Divide the rows of a fetch into own, cached and those of others."""
        unique, inverse = torch.unique(vertices if self._positions is None else self._positions[vertices.long()], return_inverse=True)
        local, slot = self._own_slice(unique), self._cache_slots(unique)
        away = slot < 0
        away[local] = False
        cached = slot[~away] if len(self._cached) else slot[:0]
        return DeviceNamedRows(unique, inverse.int(), local, away, cached.clamp(min=0).int(), self._count_by_owner(unique[away]))

    def _requested(self, named: list[DeviceNamedRows]) -> list[tuple[torch.Tensor, list[int]]]:
        """Send the ids of all fetches; return the ids that others request for each, in rank order, and how many each rank requests."""
        of_owner = zip(*[torch.split(one.ids[one.away], one.counts) for one in named], strict=True)
        counts = zip(*[one.counts for one in named], strict=True)
        # how many ids are of each fetch but the last, then the ids; nothing for a rank that is asked for none
        heads_of = [self._cuda.put(np.array(of_rank[:-1] if any(of_rank) else (), np.int32)) for of_rank in counts]
        parts = [torch.cat([head, *pieces]) for head, pieces in zip(heads_of, of_owner, strict=True)]
        messages, heads = self._over.start_alltoall(parts, "topology").wait(), len(named) - 1
        used = [len(message) > 0 for message in messages]
        lengths = torch.cat([message[: heads * one] for message, one in zip(messages, used, strict=True)]).tolist()
        sizes = []
        for message, one in zip(messages, used, strict=True):
            first, lengths = lengths[: heads * one], lengths[heads * one :]
            sizes.append([*first, len(message) - heads - sum(first)] if one else [0] * len(named))
        ids = [torch.split(message[heads * one :], of_rank) for message, one, of_rank in zip(messages, used, sizes, strict=True)]
        together = torch.cat([piece for pieces in ids for piece in pieces])
        if len(together):
            self._exchange.check_own(*(int(end) for end in torch.aminmax(together)))
        return [
            (torch.cat(pieces), list(of_rank)) for pieces, of_rank in zip(zip(*ids, strict=True), zip(*sizes, strict=True), strict=True)
        ]

    def _start(self, named: DeviceNamedRows, requested: tuple[torch.Tensor, list[int]]) -> Fetching:
        with self._cuda.streams.fetch.on("fetch"):
            wanted, counts = requested
            arrival = self._over.start_alltoall(torch.split(self._encoded(wanted), counts), self._exchange.kind, named.counts)
            rows = self._cached.new_empty((len(named.ids), self.width))
            if len(self._cached):
                rows[~named.away] = self._cached[named.slots]
            rows[named.own] = self._encoded(named.ids[named.own])

        @cache
        def finish() -> torch.Tensor:
            streams = self._cuda.streams
            with streams.fetch.on("fetch"):
                rows[named.away], _ = arrival.whole()  # in the order of ids, since owners ascend with them
                result: torch.Tensor = rows.float()[named.position]
                event = streams.fetch.record()
            streams.train.wait(event)
            return result

        return finish

    def _encoded(self, ids: torch.Tensor) -> torch.Tensor:
        return self._rows.take(ids - int(self._exchange.bounds[self._exchange.comm.rank]), self._dtype)

    def _count_by_owner(self, ids: torch.Tensor) -> list[int]:
        """Return for each rank how many of these ascending ids lie in its block row."""
        counts: list[int] = torch.searchsorted(ids, self._bounds).diff().tolist()
        return counts

    def _own_slice(self, unique: torch.Tensor) -> slice:
        """Return the slice of ascending ids that this rank holds; refuse ids that are no rows."""
        counts, rank = self._count_by_owner(unique), self._exchange.comm.rank
        if sum(counts) != len(unique):
            n = self._exchange.n
            raise UsageError(f"vertices must be rows of the matrix, 0 to {n - 1}; got {int(unique[0])} to {int(unique[-1])}")
        first = sum(counts[:rank])
        return slice(first, first + counts[rank])

    def _cache_slots(self, unique: torch.Tensor) -> torch.Tensor:
        """Return the cache slot of each id, -1 if it is not cached; see `HotRows.find`."""
        if not len(self._cached_ids):
            return torch.full_like(unique, -1)
        slot = torch.searchsorted(self._cached_ids, unique).clamp(max=len(self._cached_ids) - 1)
        return torch.where(self._cached_ids[slot] == unique, slot, -1)
