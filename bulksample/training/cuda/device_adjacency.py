"""Mini-batches that are sampled on a device and stay there: `DeviceAdjacency`.

A device writes a bulk with its k mini-batches side by side; it is cut into the tensors of each by counts that the host already has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...adjacency import By
from ...backends.base import check_fanout, drawn_from
from ...backends.cuda import layers
from ...backends.cuda.bulk import DeviceBulk, DeviceHop, cut, expand
from ...backends.cuda.predicted import bulk_bytes, layer_bytes
from ...backends.cuda.relations import expand_relations
from ...backends.hops import Expansion, Hop
from ...backends.layer_draws import LayerRace, LayerWeights, SharedDraws
from ...backends.relational import HeteroExpansion, RelationLaw, Trees
from ...graph.selection import Selection
from ...local_adjacency import LocalAdjacency
from ...rng import Draw
from .cuda_context import CudaContext, memory_errors


def split_bulk(cuda: CudaContext, bulk: DeviceBulk, trees: np.ndarray | None = None) -> list[HeteroExpansion]:
    """Split a bulk into its mini-batches, as `cut_on_host` does on the host, but hops hold the rows of earlier ones; waits for nothing."""
    kept = [DeviceHop(*(None if array is None else cuda.tensor(array) for array in hop[:5])) for hop in bulk.hops]
    pointers = [_rebased(hop, last_row) for hop, last_row in zip(kept, bulk.rows[:, -1].tolist(), strict=True)]
    owners = None
    if trees is not None and bulk.owners is None:
        owners = torch.zeros(len(bulk.vertices), dtype=torch.int32, device=cuda.where)
    elif trees is not None:
        owners = cuda.tensor(bulk.owners) - cuda.tensor(cuda.kernels.put(bulk.first_trees(trees)))
    tensors = bulk._replace(seed_rows=cuda.tensor(bulk.seed_rows), vertices=cuda.tensor(bulk.vertices), hops=kept)
    return cut(tensors, pointers, owners, nested)


def _rebased(hop: DeviceHop, last_row: int) -> torch.Tensor:
    """Return the row pointers of the segments of a hop side by side, those of each from 0: segment s has rows[s + 1] - rows[s] + 1."""
    count, device = len(hop.rows) - 1, hop.pointers.device
    segment = torch.repeat_interleave(torch.arange(count, device=device), hop.rows.diff() + 1, output_size=last_row + count)
    rebased: torch.Tensor = hop.pointers[torch.arange(last_row + count, device=device) - segment] - hop.edges[segment]
    return rebased


def nested(parts: list[Any]) -> list[Any]:
    """Return for each hop the rows of all hops up to it; they share memory."""
    starts = np.cumsum([0, *(len(part.columns) for part in parts)]).tolist()
    pointers: Any = torch.cat([parts[0].pointers, *(part.pointers[1:] + start for part, start in zip(parts[1:], starts[1:], strict=False))])
    columns: Any = torch.cat([part.columns for part in parts])
    weights: Any = None if parts[0].weights is None else torch.cat([part.weights for part in parts])
    rows = np.cumsum([len(part.pointers) - 1 for part in parts]).tolist()
    return [Hop(pointers[: r + 1], columns[:e], None if weights is None else weights[:e]) for r, e in zip(rows, starts[1:], strict=True)]


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
            return [one.plain() for one in split_bulk(self._cuda, bulk)]

    def expand_unnumbered(self, seeds: Selection, fanouts: Sequence[int], draws: Sequence[Draw], only_new: bool) -> None:
        return None

    def expand_trees(
        self, trees: Trees, laws: Sequence[Sequence[RelationLaw]], by: By | None, only_new: bool, entries: bool | None = None
    ) -> list[HeteroExpansion]:
        """Take mini-batches through all hops. With `entries`, which only the host reads, or windows that move, arrays are on the host."""
        cuda, counts = self._cuda, [kind.count for kind in self.graph.types]
        if self.by_type and entries is False:
            with cuda.streams.sample.on("expand"), memory_errors():
                bulk = expand_relations(cuda.kernels, counts, self.relations(by), trees, laws, only_new)
                if bulk is not None:
                    return split_bulk(cuda, bulk, trees.pointers)
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
            return [one.plain() for one in split_bulk(self._cuda, bulk)]
