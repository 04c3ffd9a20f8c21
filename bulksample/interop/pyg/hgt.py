"""A drop-in for `HGTLoader`: HGSampling of a `HeteroData`, k mini-batches in one call, without torch-sparse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch_geometric.data import FeatureStore, GraphStore, HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling
from torch_geometric.sampler.base import SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...relations.adjacency import RelationAdjacency
from ...relations.hgt import HGSampler
from ...rng import Stream
from ..made_together import made_together
from .bulk_sampler import Sampled
from .node import BulkNodeLoader
from .typed_graph import has_types, typed_graph
from .typed_sampler import TypedSampler


class HGTSampler(TypedSampler):
    """HGSampling of torch_geometric's graphs: every hop draws vertices of each type by their budgets, and all edges among them are kept.

    Parameters
    ----------
    data : HeteroData, or a (FeatureStore, GraphStore) pair with types
    num_samples : list of int, or dict of such by vertex type
        See `HGSampler`.
    seed, backend, comm
        See `BulkSampler`.

    Raises
    ------
    UsageError
        If the graph has no types, or `num_samples` does not name each of them.
    DataError
        If edges are malformed.
    """

    @made_together
    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        *,
        seed: int | None = None,
        backend: str = "auto",
        comm: Comm | None = None,
    ) -> None:
        if not has_types(data):
            raise UsageError(f"HGSampling draws from each vertex type; got a {type(data).__name__} without types; use a HeteroData")
        self.graph = typed_graph(data)
        self.stream, self.backend, self.comm, self.seeded = Stream(0 if seed is None else seed), backend, comm, seed is not None
        self.subgraph_type, self.disjoint = SubgraphType.induced, False
        self.sampler = HGSampler(num_samples)
        self._typed, self._hops = True, None
        self._adjacencies: dict[int | None, RelationAdjacency] = {}
        self.sampler.check(self.adjacency)

    def sample_edges(
        self, inputs: list[EdgeSamplerInput], negatives: NegativeSampling | None, ids: Sequence[int], epoch: int
    ) -> list[Sampled]:
        """Raise `UsageError`: HGSampling begins at vertices, here as in torch_geometric."""
        raise UsageError("HGSampling begins at vertices; use HGTLoader, or another sampler for links")


class HGTLoader(BulkNodeLoader):
    """A drop-in for `torch_geometric.loader.HGTLoader`: about as many vertices of each type, and every edge among them.

    Parameters
    ----------
    data : HeteroData, or a (FeatureStore, GraphStore) pair with types
    num_samples : list of int, or dict of such by vertex type
        How many vertices of each type a hop draws; -1 takes every neighbor, 0 none.
    input_nodes, transform, transform_sampler_output, filter_per_worker
        See torch_geometric.
    is_sorted
        Ignored.
    bulk_size, memory_budget, comm
        See `BulkLoading`.
    seed : int, optional
        The order of every epoch and all draws are a function of it; 0 unless given.
    backend : {"auto", "native", "reference", "cuda"}

    Raises
    ------
    UsageError, DataError
        See `HGTSampler`.
    """

    @made_together
    def __init__(
        self,
        data: HeteroData | tuple[FeatureStore, GraphStore],
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: str | tuple[str, torch.Tensor | None],
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        bulk_size: int | Literal["auto"] = "auto",
        memory_budget: int | None = None,
        comm: Comm | None = None,
        seed: int | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        sampler = HGTSampler(data, num_samples, seed=seed, backend=backend, comm=comm)
        super().__init__(
            data, sampler, input_nodes, None, transform, transform_sampler_output, filter_per_worker, bulk_size, memory_budget, **options
        )
