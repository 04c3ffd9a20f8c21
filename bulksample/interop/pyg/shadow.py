"""A drop-in for torch_geometric's `ShaDowKHopSampler`: a small subgraph for each root, all in one batch.

V_r = the root and `depth` hops of `num_neighbors` draws from it;   every edge of the graph among V_r is kept
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.sampler import SamplerOutput

from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...graph import NODE
from ..made_together import made_together
from ..tensors import FeatureGather
from .attributes import attributes_of, ids_or_mask, whole, with_compressed_rows
from .bulk_drop_in import hashed, seeds_of_batch
from .drop_in import DropInLoader
from .read_graph import check_plain, compressed, is_pair
from .sampler import BulkSampler
from .seed_sampler import STRIDE


class ShaDowKHopSampler(DropInLoader, DataLoader):  # type: ignore[misc, type-arg]  # torch_geometric's is a DataLoader of ids as well
    """A drop-in for `torch_geometric.loader.ShaDowKHopSampler`, without torch-sparse.

    Batches have ``batch``, ``ptr`` and ``root_n_id`` (the row of each root), the sliced attributes of vertices and edges, and
    `edge_index` or, if the graph has one, an `adj_t`. ``y`` is that of the roots. Within a subgraph vertices ascend, and so do edges by
    source and destination.

    Parameters
    ----------
    data : torch_geometric.data.Data
    depth, num_neighbors : int
        Hops, and draws of each vertex in a hop, -1 for all; a vertex is expanded once, and draws among its edges.
    node_idx : ids or a bool mask, optional
        The roots; all vertices by default. A root that repeats has a subgraph each time.
    replace : bool
    bulk_size, memory_budget, comm
        See `DropInLoader`.
    seed, backend
        See `NeighborLoader`.
    options
        Of `torch.utils.data.DataLoader`: `batch_size`, `shuffle`, `drop_last`, `num_workers` (threads), …

    Raises
    ------
    UsageError
        If the graph is heterogeneous or lies in stores, a root is no vertex, a number is not positive, or an option has no
        meaning here.

    Notes
    -----
    Subgraphs are drawn independently of each other, as in torch_geometric; `bulksample.samplers.Shadow` lets the roots of a mini-batch
    share random numbers.
    """

    _sampler: BulkSampler

    @made_together
    def __init__(
        self, data: Data, depth: int, num_neighbors: int, node_idx: Any = None, replace: bool = False, *,
        bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None, comm: Comm | None = None, seed: int | None = None,
        backend: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        check_plain(data)
        if is_pair(data):
            raise UsageError("ShaDowKHopSampler: got a pair of stores; use a Data")
        self.depth = whole("depth", depth, 1)
        self.num_neighbors = whole("num_neighbors", num_neighbors, -1 if num_neighbors == -1 else 1)
        self.data, self.replace = data, replace
        self._sampler = BulkSampler(
            data, [self.num_neighbors] * self.depth, replace=replace, disjoint=True, subgraph_type="induced", seed=seed, backend=backend,
            comm=comm, stride=seeds_of_batch(options) or STRIDE,
        )  # fmt: skip
        chosen = torch.arange(self._sampler.num_nodes) if node_idx is None else ids_or_mask(node_idx, self._sampler.num_nodes)
        self.node_idx = chosen.nonzero().view(-1) if chosen.dtype == torch.bool else chosen
        self._gather = FeatureGather()
        self.set_up_epochs(self._sampler.stream, bulk_size, memory_budget, options, comm, seeded=seed is not None)
        super().__init__(range(len(self.node_idx)), collate_fn=self._collated, **options)  # type: ignore[arg-type]

    def _bulk(self, indices: list[Any], ids: list[int], epoch: int) -> list[SamplerOutput]:
        roots = self.node_idx.numpy()
        return [_ascending(out) for out in self._sampler.sample_seeds([{NODE: roots[np.asarray(index)]} for index in indices], ids, epoch)]

    def _describe(self) -> dict[str, Any]:
        return {"inputs": hashed({"roots": self.node_idx}), **self._sampler.describe()}

    def _collated(self, index: list[int]) -> Any:
        """Sample one batch of examples; used as `collate_fn`, which iteration over the loader does not call."""
        return self._finished(self._bulk([index], [0], self.epoch)[0])

    def _finished(self, sampled: SamplerOutput) -> Any:
        roots, count = sampled.metadata, torch.bincount(sampled.batch, minlength=len(sampled.metadata))
        batch = Batch(batch=sampled.batch, ptr=torch.cat([count.new_zeros(1), count.cumsum(0)]))
        batch.root_n_id = roots
        for key, value in attributes_of(self.data, sampled.node, sampled.edge, self._gather):
            if key not in ("batch", "ptr"):
                batch[key] = value[roots] if key == "y" and self.data.is_node_attr("y") else value
        batch.edge_index = torch.stack([sampled.row, sampled.col])
        return batch if "adj_t" not in self.data else self._with_adj_t(batch, sampled)

    def _with_adj_t(self, batch: Any, sampled: SamplerOutput) -> Any:
        """Give the edges the form that the graph has: a torch CSR tensor, or a `SparseTensor`."""
        batch.e_id = sampled.edge
        if (adj_t := compressed(self.data)) is not None:
            batch.num_nodes = len(sampled.node)
            batch = with_compressed_rows(batch, adj_t.values())
        else:
            values, n = self.data.adj_t.storage.value(), len(sampled.node)
            kept = None if values is None else values[sampled.edge]
            batch.adj_t = type(self.data.adj_t)(row=sampled.col, col=sampled.row, value=kept, sparse_sizes=(n, n))
            del batch.edge_index
        del batch.e_id
        return batch


def _ascending(out: SamplerOutput) -> SamplerOutput:
    """Sort the vertices of each subgraph, and the edges by source and destination; `metadata` gets the row of each root."""
    order = np.lexsort((out.node.numpy(), out.batch.numpy()))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    row, col = place[out.row.numpy()], place[out.col.numpy()]
    edges = np.lexsort((out.edge.numpy(), col, row))
    roots = len(np.unique(out.batch.numpy()))  # they are the first vertices, one of each subgraph
    return SamplerOutput(
        node=out.node[order], row=torch.from_numpy(row[edges]), col=torch.from_numpy(col[edges]), edge=out.edge[edges],
        batch=out.batch[order], metadata=torch.from_numpy(place[:roots]),
    )  # fmt: skip
