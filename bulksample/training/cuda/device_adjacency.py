"""Mini-batches that are sampled on a device and stay there: `DeviceAdjacency`.

`BulkStreamSync` copies mini-batches that were sampled on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

import torch

from ...adjacency import By
from ...backends.base import check_fanout, drawn_from
from ...backends.cuda import layers
from ...backends.cuda.bulk import expand
from ...backends.cuda.predicted import bulk_bytes, layer_bytes
from ...backends.cuda.relations import expand_relations
from ...backends.hops import Expansion
from ...backends.layer_draws import LayerRace, LayerWeights, SharedDraws
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...graph.minibatch import MiniBatch
from ...graph.selection import Selection
from ...local_adjacency import LocalAdjacency
from ...rng import Draw
from .cuda_context import CudaContext
from .device_bulks import split_bulk, split_relation_bulk
from .device_rows import block_on_device
from .streams import BulkMemory, CudaStreamSync, DeviceMiniBatch


class DeviceAdjacency(LocalAdjacency):
    """An adjacency of this process that expands on the device: the arrays of its expansions are tensors, but for `held`."""

    def __init__(self, adjacency: LocalAdjacency, cuda: CudaContext) -> None:
        vars(self).update(vars(adjacency))
        self.backend, self._cuda = cuda.engine, cuda

    def expand(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> list[Expansion]:
        device = self._cuda.kernels
        with self._cuda.streams.sample.on("expand"), memory_errors():
            matrix = device.matrix(drawn_from(self.matrix, draws))
            bulk = expand(device, matrix, seeds, [check_fanout(fanout) for fanout in fanouts], draws, only_new)
            return split_bulk(self._cuda, bulk, seeds, only_new)

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops. With `entries`, which only the host reads, or windows that move, arrays are on the host."""
        cuda, counts = self._cuda, [kind.count for kind in self.graph.types]
        if self.by_type and entries is False:
            rows = [relation.rows for relation in self.relations(by)]
            with cuda.streams.sample.on("expand"), memory_errors():
                bulk = expand_relations(cuda.kernels, counts, rows, trees, laws, only_new)
                if bulk is not None:
                    return split_relation_bulk(cuda, bulk, trees)
        return super().expand_trees(trees, laws, by, only_new, entries)

    @property
    def _fuses(self) -> bool:
        return not self.by_type  # entries are asked for, or windows move: those are of the host

    def bulk_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int | None:
        if self.by_type:
            return None
        device = self._cuda.kernels
        longest = int(self.matrix.degrees.max(initial=0))
        return sum(bulk_bytes(self.n, self.matrix.nnz, k, seeds, fanouts, only_new, device.free_bytes, device.numbering, longest))

    def layer_bytes(self, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool) -> int | None:
        if self.by_type:
            return None
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


class BulkStreamSync(CudaStreamSync):
    """Orders the streams, and copies the blocks of a host-sampled bulk to the device."""

    def __init__(self, cuda: CudaContext) -> None:
        super().__init__(cuda.streams)
        self._cuda = cuda

    def bulk_sampled(self, bulk: list[MiniBatch]) -> list[MiniBatch]:
        stream, memory = self.streams.sample, BulkMemory(None, len(bulk))
        with stream.on("hand over"), memory_errors():
            moved: list[MiniBatch] = [self._moved(minibatch, memory) for minibatch in bulk]
            memory.ready = stream.record()
        return moved

    def _moved(self, minibatch: MiniBatch, memory: BulkMemory) -> DeviceMiniBatch:
        layers = [{key: block_on_device(self._cuda, block) for key, block in of_layer.items()} for of_layer in minibatch.layers]
        values = {part.name: getattr(minibatch, part.name) for part in fields(MiniBatch)} | {"layers": tuple(layers)}
        memory.held.append(values)
        return DeviceMiniBatch(**values, memory=memory, cuda=self._cuda)
