"""Cut bulks that a device has written, k mini-batches side by side, into the tensors of each, by counts that the host already has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...backends.cuda.bulk import DeviceBulk
from ...backends.cuda.relation_bulk import RelationBulk, cut
from ...backends.hops import Expansion, Hop
from ...backends.relational import HeteroExpansion, Trees
from ...graph.selection import Selection
from .cuda_context import CudaContext


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
