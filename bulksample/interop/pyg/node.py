"""Loaders whose examples are vertices: a drop-in for `NeighborLoader`, and the same for LABOR, LADIES and FastGCN.

LABOR:             num_neighbors counts neighbors of a vertex; vertices of a mini-batch share random numbers.
LADIES, FastGCN:   num_neighbors counts vertices of a layer; batches have an `edge_weight`, the weight of each edge in the aggregation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.loader import NeighborLoader as TheirLoader
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from ...distributed.comm.base import Comm
from ...errors import UsageError
from ..made_together import made_together
from .attributes import check_attributes, with_compressed_rows, with_edge_index
from .bulk_drop_in import BulkDropIn, sampler_for, seeds_of_batch
from .data_loader_options import check_callables
from .input_nodes import check_sizes, node_input
from .read_graph import check_plain, compressed
from .sampler import BulkSampler, HGTSampler
from .seed_input import SeedInput
from .seed_sampler import Sampled


class BulkNodeLoader(BulkDropIn, NodeLoader):
    """A `NodeLoader` that samples in bulk; its subclasses set the sampler.

    Parameters
    ----------
    data : Data or HeteroData of torch_geometric, or a (FeatureStore, GraphStore) pair
    node_sampler : BulkSampler
    input_nodes : bool mask, indices, or None for all vertices; of a graph with types a type, or a type and one of these
        Or a list of such pairs, or a dict: the examples are those of all these types, one after another, and a batch holds seeds of several
        types. Each has its `batch_size`, `input_id` and `seed_time`; trees of disjoint subgraphs are numbered type by type.
    input_time : int64, shape (m,), optional
        The time at which each of the input nodes is asked about; of several types a dict by type.
    input_start : likewise, optional
        The beginning of the window of each input node, no later than its time: nothing earlier is drawn, in any hop.
    transform, transform_sampler_output, filter_per_worker
        See torch_geometric; with `num_workers`, transforms run on threads.
    bulk_size, memory_budget, comm
        See `BulkDropIn`.
    options
        Options of `torch.utils.data.DataLoader`.
    """

    node_sampler: BulkSampler

    def __init__(
        self, data: Data | HeteroData | tuple[FeatureStore, GraphStore], node_sampler: BulkSampler, input_nodes: Any = None,
        input_time: torch.Tensor | None = None, transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None, filter_per_worker: bool | None = None,
        bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None, input_start: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        names = options.pop("input_id", None)
        self.set_up(node_sampler, bulk_size, memory_budget, options)
        check_attributes(data)
        check_callables(transform=transform, transform_sampler_output=transform_sampler_output)
        check_sizes(data, node_sampler)
        given = node_input(data, node_sampler, input_nodes, input_time, input_start, names)
        options["shuffle"] = bool(options.get("shuffle") and len(given.node))  # torch refuses to shuffle nothing
        named = given.names[:1] or (given.input_type,)
        adj_t = compressed(data)
        self._values = None if adj_t is None else adj_t.values()
        NodeLoader.__init__(  # that of torch_geometric's NeighborLoader would make a sampler of its own
            self, with_edge_index(data), node_sampler, given.node if named == (None,) else (*named, given.node), transform=transform,
            transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **options,
        )  # fmt: skip
        self.input_data, self.input_nodes, self.input_time = given, input_nodes, input_time

    def _sample(self, inputs: list[Any], ids: list[int], epoch: int) -> Sequence[Sampled]:
        return self.node_sampler.sample_nodes(inputs, ids, epoch)

    def _completed(self, batch: Any, out: Sampled) -> Any:
        if (weights := out.metadata[2]) is not None:
            batch.edge_weight = weights.to(batch.edge_index.device)
        return batch if self._values is None else with_compressed_rows(batch, self._values)

    def filter_fn(self, out: Sampled) -> Any:
        """Build a batch; of seeds of several types each has its size, the numbers of its inputs and their times."""
        names = self.input_data.names
        if not names:
            return super().filter_fn(out)
        out = out if self.transform_sampler_output is None else self.transform_sampler_output(out)
        ids, times, weights = out.metadata
        first, out = copy.copy(self), copy.copy(out)
        first.input_data, out.metadata = SeedInput(None, self.input_data.node, None, names[0]), (ids[names[0]], times[names[0]], weights)
        first.transform = first.transform_sampler_output = None
        batch = first.filter_fn(out)
        for name in names:
            batch[name].input_id, batch[name].seed_time, batch[name].batch_size = ids[name], times[name], len(ids[name])
        return batch if self.transform is None else self.transform(batch)


class NeighborLoader(BulkNodeLoader, TheirLoader):  # models of torch_geometric ask for its class, which only adds a constructor
    """A drop-in for `torch_geometric.loader.NeighborLoader`: GraphSAGE, k mini-batches in one call.

    Parameters
    ----------
    data, num_neighbors, replace, subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr, transform, \
transform_sampler_output, filter_per_worker
        See torch_geometric. Subgraphs in time are not induced.
    input_nodes, input_time, input_start
        See `BulkNodeLoader`.
    time_window : int, optional
        The length of the window of every input node, in units of time, in the place of `input_start`.
    is_sorted
        Ignored.
    bulk_size, memory_budget, comm
        See `BulkDropIn`.
    seed : int, optional
        The order of every epoch and all draws are a function of it; by default torch's, see `default_seed`.
    grid : int, optional
        c: sample from a graph in block rows on a p/c x c grid of the ranks of `comm`; see `BulkSampler`.
    backend : {"auto", "native", "reference", "cuda"}

    Raises
    ------
    UsageError
        If options contradict each other, or the graph.
    """

    @made_together
    def __init__(
        self, data: Data | HeteroData | tuple[FeatureStore, GraphStore],
        num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | NumNeighbors, input_nodes: Any = None,
        input_time: torch.Tensor | None = None, replace: bool = False, subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False, temporal_strategy: Literal["uniform", "last"] = "uniform", time_attr: str | None = None,
        weight_attr: str | None = None, transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None, is_sorted: bool = False, filter_per_worker: bool | None = None,
        neighbor_sampler: BulkSampler | None = None, directed: bool = True, *, input_start: torch.Tensor | None = None,
        time_window: int | None = None, bulk_size: int | Literal["auto"] = "auto",
        grid: int | None = None, comm: Comm | None = None, seed: int | None = None, memory_budget: int | None = None,
        backend: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        neighbor_sampler = sampler_for(
            neighbor_sampler, data, num_neighbors, subgraph_type, directed, seeds=seeds_of_batch(options), time_attr=time_attr,
            temporal_strategy=temporal_strategy, time_window=time_window, replace=replace, weight_attr=weight_attr, disjoint=disjoint,
            seed=seed, backend=backend, comm=comm, grid=grid,
        )  # fmt: skip
        super().__init__(
            data, neighbor_sampler, input_nodes, input_time, transform, transform_sampler_output, filter_per_worker, bulk_size,
            memory_budget, input_start, **options,
        )  # fmt: skip


class _LawLoader(BulkNodeLoader):
    """A loader with the sampler `law`, whose options are `own`; `BulkSampler` and `BulkNodeLoader` describe all other options."""

    law: str
    own: tuple[str, ...] = ()

    @made_together
    def __init__(
        self, data: Data | tuple[FeatureStore, GraphStore], num_neighbors: Sequence[int], input_nodes: Any = None, *,
        grid: int | None = None, comm: Comm | None = None, seed: int | None = None, backend: str = "auto", weight_attr: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        check_plain(data, **{name: options.pop(name, None) for name in ("input_time", "time_attr", "input_start", "time_window")})
        chosen = {name: options.pop(name) for name in self.own if name in options}
        sampler = BulkSampler(
            data, num_neighbors, sampler=self.law, weight_attr=weight_attr, seed=seed, backend=backend, comm=comm, grid=grid, **chosen
        )
        super().__init__(data, sampler, input_nodes, **options)


class LaborLoader(_LawLoader):
    """LABOR-0: like `NeighborLoader`, but vertices of a mini-batch share random numbers and so draw fewer distinct neighbors.

    Further options: `layer_dependent`, `subgraph_type`.
    """

    law = "labor"
    own = ("layer_dependent", "subgraph_type")


class LadiesLoader(_LawLoader):
    """LADIES: every hop draws `num_neighbors` vertices among all neighbors of the frontier by importance, and keeps all edges to them.

    `edge_weight` is the weight of each edge in the aggregation, divided by the probability that its source was drawn (`debias`) and
    scaled to sum to one over the edges of a destination (`renormalise`).

    Further options: `importance`, `debias`, `renormalise`; see `bulksample.samplers.LayerWise`.
    """

    law = "ladies"
    own = ("importance", "debias", "renormalise")


class FastGCNLoader(_LawLoader):
    """FastGCN: every hop draws `num_neighbors` vertices of the whole graph, from one distribution for all mini-batches.

    `edge_weight` is computed as in `LadiesLoader`. A drawn vertex may have no edge to the frontier.

    Further options: `debias`, `renormalise`; see `bulksample.samplers.LayerWise`.
    """

    law = "fastgcn"
    own = ("debias", "renormalise")


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
        See `BulkDropIn`.
    seed : int, optional
        The order of every epoch and all draws are a function of it; by default torch's, see `default_seed`.
    backend : {"auto", "native", "reference", "cuda"}

    Raises
    ------
    UsageError, DataError
        See `HGTSampler`.
    """

    @made_together
    def __init__(
        self, data: HeteroData | tuple[FeatureStore, GraphStore], num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: str | tuple[str, torch.Tensor | None], is_sorted: bool = False, transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None, filter_per_worker: bool | None = None, *, comm: Comm | None = None,
        seed: int | None = None, backend: str = "auto", **options: Any,
    ) -> None:  # fmt: skip
        elsewhere = ("input_time", "input_start", "time_attr", "weight_attr", "replace", "disjoint")
        given = {name: options.pop(name, None) for name in elsewhere}
        refused = [name for name, value in given.items() if value is not None and value is not False]
        if refused:
            raise UsageError(f"{refused[0]}: HGSampling draws without times, weights and trees; use NeighborLoader, or leave it out")
        sampler = HGTSampler(data, num_samples, seed=seed, backend=backend, comm=comm)
        super().__init__(data, sampler, input_nodes, None, transform, transform_sampler_output, filter_per_worker, **options)
