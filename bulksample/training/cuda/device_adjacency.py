"""Mini-batches that are sampled on a device and stay there.

The back end writes k mini-batches one after the other. `split_bulk` cuts that memory into tensors by counts that the host already
has. `BulkStreamSync` copies mini-batches that were sampled on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from ...adjacency import LocalAdjacency
from ...backends.base import check_fanout, drawn_from
from ...backends.cuda import layers
from ...backends.cuda.bulk import DeviceBulk, expand
from ...backends.cuda.predicted import bulk_bytes, layer_bytes
from ...backends.hops import Expansion, Hop
from ...backends.layer_draws import LayerRace, LayerWeights, SharedDraws
from ...minibatch import MiniBatch
from ...rng import Draw
from ...selection import Selection
from .cuda_context import CudaContext
from .device_rows import block_on_device
from .streams import BulkMemory, CudaStreamSync, DeviceMiniBatch


class DeviceAdjacency(LocalAdjacency):
    """An adjacency of this process that expands on the device: the arrays of its `Expansion`s are tensors."""

    def __init__(self, adjacency: LocalAdjacency, cuda: CudaContext) -> None:
        super().__init__(adjacency.matrix, cuda.engine, adjacency._longest_column)
        self._cuda = cuda

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        device = self._cuda.kernels
        with self._cuda.streams.sample.on("expand"), memory_errors():
            matrix = device.matrix(drawn_from(self.matrix, draws))
            bulk = expand(device, matrix, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new)
            return split_bulk(self._cuda, bulk, seeds, only_new)

    def bulk_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int:
        device = self._cuda.kernels
        longest = int(self.matrix.degrees.max(initial=0))
        return sum(bulk_bytes(self.n, self.matrix.nnz, k, seeds, fanouts, only_new, device.free_bytes, device.numbering, longest))

    def layer_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool) -> int:
        device = self._cuda.kernels
        return layer_bytes(
            self.n, self.matrix.top_degrees, k, seeds, fanouts, only_new, from_frontier, device.free_bytes, device.numbering
        ).peak

    def _expanded_layers(self, seeds: Selection, drawn: LayerRace | SharedDraws, weights: LayerWeights, only_new: bool) -> list[Expansion]:
        device = self._cuda.kernels
        with self._cuda.streams.sample.on("expand_layers"), memory_errors():
            bulk = layers.expand_layers(device, self.matrix.positive, seeds, drawn, weights, only_new)
            return split_bulk(self._cuda, bulk, seeds, only_new)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn torch's out-of-memory error into `MemoryError`, upon which the loader halves its bulk."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error


def split_bulk(cuda: CudaContext, bulk: DeviceBulk, seeds: Selection, only_new: bool) -> list[Expansion]:
    """Split a bulk into its mini-batches, as `backends.hops.cut` does on the host; waits for nothing.

    If only new vertices are expanded, the `Hop` of a hop holds the rows of all hops up to it.
    """
    vertices, seed_rows = cuda.tensor(bulk.held.vertices), cuda.tensor(bulk.seed_rows)
    frontiers = [bulk.ends[0], *(grown - held for held, grown in zip(bulk.ends, bulk.ends[1:-1], strict=False))] if only_new else bulk.ends
    hops = [Hop(cuda.tensor(hop.pointers), cuda.tensor(hop.columns), _or_none(cuda, hop.weights)) for hop in bulk.hops]
    counts, ends = np.stack([np.diff(held) for held in bulk.ends], axis=1).tolist(), bulk.ends[-1].tolist()
    expansions = []
    for j in range(len(seeds)):
        own = zip(hops, frontiers, bulk.hops, strict=False)  # the vertices after the last hop are no frontier
        parts = [_part(hop, at[j : j + 2].tolist(), there.ends[j : j + 2].tolist()) for hop, at, there in own]
        own_seed_rows = seed_rows[seeds.pointers[j] : seeds.pointers[j + 1]]
        expansions.append(Expansion(own_seed_rows, vertices[ends[j] : ends[j + 1]], counts[j], nested(parts) if only_new else parts))
    return expansions


def _or_none(cuda: CudaContext, array: Any) -> Any:
    return None if array is None else cuda.tensor(array)


def _part(hop: Any, rows: list[int], edges: list[int]) -> Hop:
    entries = slice(*edges)
    weights = None if hop.weights is None else hop.weights[entries]
    return Hop(hop.pointers[rows[0] : rows[1] + 1] - edges[0], hop.columns[entries], weights)


def nested(parts: list[Any]) -> list[Any]:
    """Return for each hop the rows of all hops up to it; they share memory."""
    starts = np.cumsum([0, *(len(part.columns) for part in parts)]).tolist()
    pointers: Any = torch.cat([parts[0].pointers, *(part.pointers[1:] + start for part, start in zip(parts[1:], starts[1:], strict=False))])
    columns: Any = torch.cat([part.columns for part in parts])
    weights: Any = None if parts[0].weights is None else torch.cat([part.weights for part in parts])
    rows = np.cumsum([len(part.pointers) - 1 for part in parts]).tolist()
    return [Hop(pointers[: r + 1], columns[:e], None if weights is None else weights[:e]) for r, e in zip(rows, starts[1:], strict=True)]


class BulkStreamSync(CudaStreamSync):
    """Orders the streams, and copies the blocks of a host-sampled bulk to the device."""

    def __init__(self, cuda: CudaContext) -> None:
        super().__init__(cuda.streams)
        self._cuda = cuda

    def bulk_sampled(self, bulk: list[MiniBatch]) -> list[MiniBatch]:
        stream = self.streams.sample
        with stream.on("hand over"), memory_errors():
            blocks = [tuple(block_on_device(self._cuda, block) for block in minibatch.blocks) for minibatch in bulk]
            memory = BulkMemory(stream.record(), len(bulk))
        return [_with_memory(minibatch, own, memory) for minibatch, own in zip(bulk, blocks, strict=True)]


def _with_memory(minibatch: MiniBatch, blocks: tuple[Any, ...], memory: BulkMemory) -> DeviceMiniBatch:
    values = {part.name: getattr(minibatch, part.name) for part in fields(MiniBatch)} | {"blocks": blocks}
    memory.held.append(values)
    return DeviceMiniBatch(**values, memory=memory)
