"""Mini-batches that are sampled on a device and stay there: `DeviceAdjacency`.

A device writes a bulk with its k mini-batches side by side; it is cut into the tensors of each by counts that the host already has.
`BulkStreamSync` copies mini-batches that were sampled on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from ...adjacency import By
from ...backends.base import check_fanout, drawn_from
from ...backends.cuda import layers
from ...backends.cuda.bulk import DeviceBulk, expand
from ...backends.cuda.predicted import bulk_bytes, layer_bytes
from ...backends.cuda.relation_bulk import RelationBulk, cut
from ...backends.cuda.relations import expand_relations
from ...backends.hops import Expansion, Hop
from ...backends.layer_draws import LayerRace, LayerWeights, SharedDraws
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...graph.minibatch import MiniBatch
from ...graph.selection import Selection
from ...local_adjacency import LocalAdjacency
from ...rng import Draw
from .cuda_context import CudaContext
from .device_rows import block_on_device
from .streams import BulkMemory, CudaStreamSync, DeviceMiniBatch


def split_bulk(cuda: CudaContext, bulk: DeviceBulk, seeds: Selection, only_new: bool) -> list[Expansion]:
    """Split a bulk into mini-batches as `backends.hops.cut` does, without waiting; with `only_new`, hops hold the rows of earlier ones."""
    vertices, seed_rows = cuda.tensor(bulk.held.vertices), cuda.tensor(bulk.seed_rows)
    frontiers = [bulk.ends[0], *(grown - held for held, grown in zip(bulk.ends, bulk.ends[1:-1], strict=False))] if only_new else bulk.ends
    hops = [
        Hop(cuda.tensor(hop.pointers), cuda.tensor(hop.columns), None if hop.weights is None else cuda.tensor(hop.weights))
        for hop in bulk.hops
    ]
    counts, ends = np.stack([np.diff(held) for held in bulk.ends], axis=1).tolist(), bulk.ends[-1].tolist()
    expansions = []
    for j in range(len(seeds)):
        own = zip(hops, frontiers, bulk.hops, strict=False)  # the vertices after the last hop are no frontier
        parts = [_part(hop, at[j : j + 2].tolist(), there.ends[j : j + 2].tolist()) for hop, at, there in own]
        own_seed_rows = seed_rows[seeds.pointers[j] : seeds.pointers[j + 1]]
        expansions.append(Expansion(own_seed_rows, vertices[ends[j] : ends[j + 1]], counts[j], nested(parts) if only_new else parts))
    return expansions


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


def split_relation_bulk(cuda: CudaContext, bulk: RelationBulk, trees: Trees) -> list[HeteroExpansion]:
    """Split a bulk into its mini-batches, as `cut_on_host` does on the host; waits for nothing."""
    kept = [hop._replace(pointers=cuda.tensor(hop.pointers), local=cuda.tensor(hop.local)) for hop in bulk.hops]
    count, segments = bulk.rows.shape[0], bulk.rows.shape[1] - 1
    numbers = cuda.tensor(bulk.segments).reshape(2, count, segments + 1)
    pointers = [_rebased(hop.pointers, numbers[0, h], numbers[1, h], int(bulk.rows[h, -1])) for h, hop in enumerate(kept)]
    if bulk.owners is None:
        owners = torch.zeros(len(bulk.vertices), dtype=torch.int32, device=cuda.where)
    else:
        first_tree = np.repeat(trees.pointers[:-1], bulk.held_by_minibatch()).astype(np.int32)
        owners = cuda.tensor(bulk.owners) - cuda.tensor(cuda.kernels.put(first_tree))
    arrays = {"seed_rows": cuda.tensor(bulk.seed_rows), "vertices": cuda.tensor(bulk.vertices), "hops": kept}
    return cut(bulk._replace(**arrays), pointers, owners, nested)


def _rebased(pointers: torch.Tensor, rows: torch.Tensor, edges: torch.Tensor, last_row: int) -> torch.Tensor:
    """Return the row pointers of the segments of a hop side by side, those of each from 0: segment s has rows[s + 1] - rows[s] + 1."""
    count = len(rows) - 1
    every = torch.arange(last_row + count, device=pointers.device)
    segment = torch.repeat_interleave(torch.arange(count, device=pointers.device), rows.diff() + 1, output_size=last_row + count)
    return pointers[every - segment] - edges[segment]


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
