"""A drop-in for torch_geometric's `LinkNeighborLoader`: its examples are edges, with negatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import NegativeSampling, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError
from .bulk_loading import BulkLoading, hashed
from .edge_lists import check_input, compressed, vertex_pairs
from .sampler import BulkSampler, sampler_for
from .stores import is_pair, stored_edges


class LinkNeighborLoader(BulkLoading, LinkLoader):
    """A drop-in for `torch_geometric.loader.LinkNeighborLoader`.

    Parameters
    ----------
    data, num_neighbors, edge_label_index, edge_label, replace, subgraph_type, disjoint, weight_attr, transform, \
transform_sampler_output, filter_per_worker
        See torch_geometric.
    neg_sampling, neg_sampling_ratio
        The distributions of torch_geometric, false negatives included; draws depend on (seed, epoch, mini-batch, position) alone.
    edge_label_time, time_attr
        Not supported: `UsageError`.
    bulk_size, memory_budget, comm, seed, grid, backend
        See `NeighborLoader`.

    Raises
    ------
    UsageError
        If the graph is heterogeneous or temporal, or options contradict each other.
    """

    link_sampler: BulkSampler

    def __init__(
        self,
        data: Data | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int],
        edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: NegativeSampling | str | None = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: BulkSampler | None = None,
        directed: bool = True,
        *,
        bulk_size: int | Literal["auto"] = "auto",
        grid: int | None = None,
        comm: Comm | None = None,
        seed: int = 0,
        memory_budget: int | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        check_input(data, weight_attr, edge_label_time=edge_label_time, time_attr=time_attr)
        if compressed(data) is not None:
            raise UsageError("links of an adj_t in torch's compressed rows are not supported; use an edge_index")
        neighbor_sampler = sampler_for(
            neighbor_sampler, data, num_neighbors, subgraph_type, directed,
            replace=replace, weight_attr=weight_attr, disjoint=disjoint, seed=seed, backend=backend, comm=comm, grid=grid,
        )  # fmt: skip
        if is_pair(data):  # torch_geometric names the type of the edges of a store, which is None here
            given = edge_label_index[1] if isinstance(edge_label_index, tuple) else edge_label_index
            pairs = (
                torch.stack(stored_edges(data)) if given is None else vertex_pairs("edge_label_index", given, neighbor_sampler.num_nodes)
            )
            edge_label_index = (None, pairs)
        elif edge_label_index is not None:
            edge_label_index = vertex_pairs("edge_label_index", edge_label_index, neighbor_sampler.num_nodes)
        self.set_up(neighbor_sampler, bulk_size, memory_budget, options)
        super().__init__(
            data, neighbor_sampler, edge_label_index, edge_label, neg_sampling=neg_sampling, neg_sampling_ratio=neg_sampling_ratio,
            transform=transform, transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **options,
        )  # fmt: skip

    def _describe(self) -> dict[str, Any]:
        law = self.neg_sampling
        return super()._describe() | {"negatives": "" if law is None else hashed({**vars(law), "mode": law.mode.value})}

    def _sample(self, inputs: list[Any], ids: list[int], epoch: int) -> list[SamplerOutput]:
        return self.link_sampler.sample_edges(inputs, self.neg_sampling, ids, epoch)
