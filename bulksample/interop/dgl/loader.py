"""A drop-in for DGL's `DataLoader`: `BulkLoader` samples bulks, DGL makes the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast

import torch

from ... import backends
from ...distributed.comm.agree import begin_together
from ...distributed.comm.base import Comm
from ...errors import UsageError, is_whole
from ...graph import Graph
from ...graph.seed_list import SeedList
from ...loading.loader import BulkLoader
from ...loading.position import Positioned
from ...local_adjacency import LocalAdjacency
from ...pickled import Uncached
from .. import require
from ..default_seed import seed_or_default
from ..edge_graph import EdgeSampler
from ..equal_draws import warn_of_equal_draws
from ..made_together import OwnComm, made_together
from .affinity import bound
from .blocks import INSTALL, Blocks, is_plain, read_graph, typed_sampler
from .edges import EdgeList, EdgePredictionSampler
from .pairs import PairBatch, PairGraphs, PairLoader
from .samplers import BlockSampler, distinct_vertices, refuse_values

_NOT_NEEDED = {
    "num_workers", "persistent_workers", "use_prefetch_thread", "use_alternate_streams", "pin_prefetcher", "gpu_cache", "pin_memory",
    "prefetch_factor",
}  # fmt: skip


class DataLoader(OwnComm, Positioned, Uncached):
    """A loader of ``(input_nodes, output_nodes, blocks)``, like `dgl.dataloading.DataLoader`.

    Of a heterograph, both are dicts by vertex type, and blocks have the types and relations of the graph. With edges as seeds, the graphs
    of their pairs stand in place of the output nodes; see `as_edge_prediction_sampler`.

    Parameters
    ----------
    graph : DGLGraph
        Of one type or of several.
    indices : tensor of distinct vertices, or a bool mask; of a heterograph a dict of such by vertex type
        With `as_edge_prediction_sampler`, ids of edges, which may repeat, or a mask of them; of a heterograph a dict by edge type.
    graph_sampler : BlockSampler, or what `as_edge_prediction_sampler` returns
    device
        Device of the blocks; that of the graph by default.
    batch_size, shuffle, drop_last
        See DGL.
    seed, bulk_size, memory_budget : see `bulksample.loading.loader.BulkLoader`
        By default the seed is that of torch, 0 if nobody has set it; a loader without a seed takes that of a state.
    comm : Comm, optional
        Rank r of p takes mini-batches r, r + p, ... A rank without a mini-batch in the last step ends one step earlier. All ranks make the
        loader together, with equal options, and begin epochs together: both are collective, and all ranks raise if they differ.
    backend : {"auto", "native", "reference", "cuda"}
    num_workers, use_prefetch_thread, persistent_workers, pin_prefetcher, use_alternate_streams
        Ignored: a thread of this process samples ahead. `enable_cpu_affinity` takes its default from `num_workers`.

    Raises
    ------
    UsageError
        If a vertex repeats, a seed does not exist, fanouts by edge type leave one out or are given to a layer-wise sampler, or an option
        has no meaning here.
    ImportError
        If DGL is missing.
    """

    @made_together
    def __init__(
        self, graph: Any, indices: Any, graph_sampler: BlockSampler | EdgePredictionSampler, device: Any = None, use_ddp: bool = False,
        ddp_seed: int = 0, batch_size: int = 1, drop_last: bool = False, shuffle: bool = False, use_uva: bool = False, *,
        seed: int | None = None, bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None, comm: Comm | None = None,
        backend: str = "auto", **not_needed: Any,
    ) -> None:  # fmt: skip
        require("dgl", None, INSTALL)
        refuse_values(
            use_ddp=use_ddp and "True (comm=bulksample.distributed.comm.world.world() gives each rank its mini-batches)", use_uva=use_uva
        )
        unknown = not_needed.keys() - _NOT_NEEDED
        if unknown:
            raise UsageError(f"DataLoader has no option {', '.join(sorted(unknown))}")
        pairs = graph_sampler if isinstance(graph_sampler, EdgePredictionSampler) else None
        block_sampler = graph_sampler if pairs is None else pairs.sampler
        if not isinstance(block_sampler, BlockSampler):
            raise UsageError(f"graph_sampler must be one of bulksample.interop.dgl; got {type(graph_sampler).__name__}")
        self.graph, self._device = graph, device
        self._comm, self._seeded = comm, seed is not None
        self._backend, self._workers = backends.make(backend), not_needed.get("num_workers") or 0
        seed = seed_or_default(seed)
        rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        options: dict[str, Any] = {
            "batch_size": batch_size, "bulk_size": bulk_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last, "rank": rank,
            "ranks": ranks, "memory_budget": memory_budget,
        }  # fmt: skip
        self._settings = {
            **block_sampler.sampler.settings, "fanouts": repr(block_sampler.by_type or block_sampler.sampler.fanouts),
            "prob": block_sampler.prob, "batch_size": batch_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last,
            **({} if pairs is None else pairs.settings),
        }  # fmt: skip
        relations = read_graph(graph, block_sampler.prob)
        self._blocks, self._graphs = Blocks(graph, relations, block_sampler.features), None
        if is_plain(graph):
            if block_sampler.by_type is not None:
                raise UsageError("fanouts are dicts by edge type, but the graph has one type; use numbers")
            sampler: Any = EdgeSampler(relations.relations[0], block_sampler.sampler)
            adjacency = LocalAdjacency(sampler.edges.matrix, self._backend, entries=True)
        else:
            sampler = typed_sampler(graph, block_sampler)
            adjacency = LocalAdjacency(relations, self._backend, by_type=True)
        if pairs is None:
            self._make: Callable[..., BulkLoader] = partial(BulkLoader, adjacency, sampler, seeds_of(graph, relations, indices), **options)
        else:
            edges = EdgeList(graph, indices)
            self._graphs = PairGraphs(edges, relations, pairs.labels)
            self._make = partial(PairLoader, adjacency, sampler, relations, edges, pairs, **options)
        self._loader = self._make()

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        state = self._loader.state_dict()
        hashes = {"graph": state.get("graph"), "indices": state["seeds"], "sampler and exclusion": state["sampler"]}
        return {**self._settings, "a seed of yours": self._seeded}, hashes

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return self._loader.steps

    @property
    def _position(self) -> BulkLoader:
        return self._loader

    @property
    def seed(self) -> int:
        """The seed of the order and of all draws: the one that was given, that of a state, or the default."""
        return int(self._settings["seed"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state_dict` returned; see `Positioned`. A loader without a seed takes that of the state."""
        seed: Any = state.get("random_seed") if isinstance(state, dict) else None
        loader = self._loader
        if not self._seeded and is_whole(seed, 0, 2**64 - 1) and seed != self.seed:
            loader = self._make(seed=seed)
            loader.sampling_cores = self._loader.sampling_cores
        loader.load_state_dict(state, onward=True)
        self._loader, self._settings = loader, {**self._settings, "seed": loader.state_dict()["random_seed"]}

    @property
    def _place(self) -> Any:
        return self.graph.device if self._device is None else self._device

    @contextmanager
    def enable_cpu_affinity(
        self, loader_cores: Sequence[int] | None = None, compute_cores: Sequence[int] | None = None, verbose: bool = True
    ) -> Iterator[None]:
        """Bind the threads that sample to some cores, and all other threads of this process to others, in a ``with`` around the loop.

        torch computes on a thread for each of its cores, and sampling takes at most one for each of its own: by default one. The end of the
        context, also by an error, restores the cores of all threads and the numbers of threads. Mini-batches are the same. Where blocks go
        to a GPU it does nothing, as DGL's.

        Parameters
        ----------
        loader_cores : distinct cores, as Linux numbers them, optional
            By default the first `num_workers` cores, at least one. They need not be as many as `num_workers`: there are no workers.
        compute_cores : distinct cores, none of `loader_cores`, optional
            By default the others. Defaults take one logical processor of each physical core of the first NUMA node; all that the process
            may use if those are too few.
        verbose : bool
            Print the cores.

        Raises
        ------
        UsageError
            If the system is not Linux, a core does not exist or is named twice, none is left to compute, or another thread is in such a
            context. Nothing has changed then.

        Notes
        -----
        An iteration that began before the context samples on the cores to compute. Contexts may be nested. Ranks of one machine should be
        given different cores, unless their launcher has bound them. A copy made within keeps its number of threads that sample.

        References
        ----------
        The method of this name of ``dgl.dataloading.DataLoader``; https://docs.dgl.ai/tutorials/cpu/cpu_best_practises.html.
        """
        if torch.device(self._place).type != "cpu":
            yield
            return
        with bound(self._backend, self._assigned, loader_cores, compute_cores, self._workers, verbose):
            yield

    def _assigned(self, cores: frozenset[int] | None) -> frozenset[int] | None:
        """Sample on some cores in the next iterations, and return those of before."""
        before, self._loader.sampling_cores = self._loader.sampling_cores, cores
        return before

    def __iter__(self) -> Iterator[Any]:
        if self._comm is not None:
            begin_together(self._comm, self._loader.coming, self.seed)
        elif not self._seeded:
            warn_of_equal_draws(f"{type(self).__module__.rpartition('.')[0]}.{type(self).__name__}", self.seed)
        place = self._place
        for batch in self._loader:
            if batch is None:
                continue
            inputs, outputs, blocks = self._blocks.of(batch.minibatch if isinstance(batch, PairBatch) else batch)
            middle = [_on(outputs, place)] if self._graphs is None else self._moved(self._graphs.of(cast(Any, batch)))
            yield _on(inputs, place), *middle, self._moved(blocks)

    def _moved(self, graphs: list[Any]) -> list[Any]:
        return graphs if self._device is None else [one.to(self._place) for one in graphs]


def _on(ids: Any, device: Any) -> Any:
    """Return vertices, or a dict of them by type, on a device."""
    return {name: vertices.to(device) for name, vertices in ids.items()} if isinstance(ids, dict) else ids.to(device)


def seeds_of(graph: Any, relations: Graph, indices: Any) -> Any:
    """Return the vertices that a user names as seeds: an array, or of a heterograph a `SeedList`."""
    if is_plain(graph):
        return distinct_vertices(indices, relations.n)
    if not isinstance(indices, Mapping):
        raise UsageError(f"indices: got a {type(indices).__name__}; the graph has types {', '.join(graph.ntypes)}: use {{type: vertices}}")
    lists = {
        name: distinct_vertices(vertices, relations.type(name).count, f"indices of type {name!r}") for name, vertices in indices.items()
    }
    return SeedList.of(relations, lists)
