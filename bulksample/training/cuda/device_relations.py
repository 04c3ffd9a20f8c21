"""Mini-batches of a heterogeneous graph that are sampled on a device and stay there: what `device_adjacency` does for one relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from ...backends.cuda.relation_bulk import RelationBulk, cut
from ...backends.cuda.relations import expand_relations
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...relations.adjacency import By, RelationAdjacency
from ...relations.minibatch import HeteroMiniBatch
from .cuda_context import CudaContext
from .device_adjacency import BulkStreamSync, memory_errors, nested
from .device_rows import block_on_device
from .streams import BulkMemory


class DeviceRelations(RelationAdjacency):
    """Relations of this process that expand on the device: the arrays of a `HeteroExpansion` are tensors, but for `held`."""

    def __init__(self, relations: RelationAdjacency, cuda: CudaContext) -> None:
        self.graph, self.backend, self.n = relations.graph, cuda.engine, relations.n
        self._prepared, self._cuda = relations._prepared, cuda

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops. With `entries`, which only the host reads, or windows that move, arrays are on the host."""
        cuda, rows = self._cuda, [relation.rows for relation in self.relations(by)]
        counts = [kind.count for kind in self.graph.types]
        if entries is False:
            with cuda.streams.sample.on("expand"), memory_errors():
                bulk = expand_relations(cuda.kernels, counts, rows, trees, laws, only_new)
                if bulk is not None:
                    return split_bulk(cuda, bulk, trees)
        return super().expand_trees(trees, laws, by, only_new, entries)


def split_bulk(cuda: CudaContext, bulk: RelationBulk, trees: Trees) -> list[HeteroExpansion]:
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


@dataclass(frozen=True, eq=False)
class DeviceHeteroMiniBatch(HeteroMiniBatch):
    """A mini-batch with its blocks on a device. Its seeds are on the host; its vertices and `seed_rows` are where they were sampled."""

    memory: BulkMemory = field(kw_only=True)
    cuda: CudaContext = field(kw_only=True)

    def in_order_of_seeds(self, columns: Mapping[str, Any]) -> Any:
        parts = list(columns.values())
        if not all(isinstance(part, torch.Tensor) for part in parts):
            return super().in_order_of_seeds(columns)
        order = np.argsort(np.concatenate([self.rows[name].seed_trees for name in columns]))
        return torch.cat(parts)[self.cuda.send(torch.from_numpy(order))]


class RelationStreamSync(BulkStreamSync):
    """Orders the streams, and copies the blocks of a host-sampled bulk of a heterogeneous graph to the device."""

    def bulk_sampled(self, bulk: list[Any]) -> list[Any]:
        stream, memory = self.streams.sample, BulkMemory(None, len(bulk))
        with stream.on("hand over"), memory_errors():
            moved = [self._moved(minibatch, memory) for minibatch in bulk]
            memory.ready = stream.record()
        return moved

    def _moved(self, minibatch: HeteroMiniBatch, memory: BulkMemory) -> HeteroMiniBatch:
        blocks = [{key: block_on_device(self._cuda, block) for key, block in of_layer.items()} for of_layer in minibatch.blocks]
        values = {part.name: getattr(minibatch, part.name) for part in fields(HeteroMiniBatch)} | {"blocks": tuple(blocks)}
        memory.held.append(values)
        return DeviceHeteroMiniBatch(**values, memory=memory, cuda=self._cuda)
