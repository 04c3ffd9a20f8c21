"""A loader of sampled mini-batches with their features and labels, for any training loop: `bulksample.Loader`."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Sequence
from typing import Any, Literal

from .. import backends, samplers
from ..adjacency import LocalAdjacency
from ..backends.native import processor_ids
from ..config import DEFAULT_FANOUTS
from ..config.options import drawn_fanouts
from ..distributed.matrix.rank_graph import RankGraph
from ..distributed.matrix.rank_hetero_graph import RankHeteroGraph
from ..errors import UsageError, check_switches
from ..graph import Graph
from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..profiling import Profile
from ..samplers import Sampler
from ..seed_groups import SeedGroups
from .batch import Batch
from .batch_rows import GraphRows
from .epoch_loader import EpochLoader, check_fetching
from .seeds import seed_vertices
from .tensor_batch import TensorBatch


class Loader(EpochLoader[Batch, TensorBatch]):
    """A loader that samples k mini-batches in one call and gives them out with their features and labels.

    Each iteration yields the mini-batches of a new epoch, like torch's `DataLoader`. After `load_state_dict`, the first one goes
    on in the middle of the epoch of the state. So does that of a pickle, a copy or a fork of a loader; that of ranks that share a graph has
    none. In a worker of torch's `DataLoader` a copy warns of mini-batches that come twice: set `epoch` before each iteration of the
    `DataLoader`, and make the loader in the worker, with its `rank` and `ranks`, to share an epoch among several.
    Mini-batches depend on the graph, the sampler, the seeds, `batch_size`, `shuffle` and `seed` alone: not on `bulk_size`,
    `backend` or `threads`.

    Parameters
    ----------
    graph : Graph, RankGraph, or the path of a store
        A `RankGraph` is shared by several ranks, which make the same loaders and iterate over them together. The rows of a batch have
        then been fetched from the ranks that hold them, while the batch before was in use.
    sampler : str or Sampler
        A name from `bulksample.samplers.SAMPLERS`: sage, ladies, fastgcn, labor, full, shadow or saint.
    fanouts : sequence of int, optional
        How many neighbors (node-wise samplers) or vertices (layer-wise samplers) each hop draws, from the seeds outwards;
        -1 takes all. (15, 10, 5) unless given.
    batch_size : int
        Seeds of a mini-batch; the last one of an epoch may have fewer.
    seeds : str, integers of shape (m,), or booleans of shape (n,), optional
        The vertices to make mini-batches of: a split (train, val, test, or all), ids, or a mask. Unless given: the
        training split, or all vertices of a graph without masks.
    seed : int
        Everything random is a function of it.
    shuffle : bool
        Put the seeds in a new order in each epoch.
    drop_last : bool
        Leave out a last mini-batch of fewer than `batch_size` seeds.
    seed_locality : int, optional
        G: draw mini-batch number t G + g from group g of G equal groups of seeds, in the order of the block rows of a `RankGraph`, or of
        ids. A rank takes the mini-batches of the groups whose rows it holds, so that it fetches fewer rows. G divides the number of ranks,
        or is a multiple of it.
    rank, ranks : int
        This process and the number of processes, as `torch.distributed` counts them. Each rank yields every `ranks`-th mini-batch, and
        all yield equally many: the first ones repeat at the end of an epoch (`Batch.repeated`) or, with `drop_last`, the last ones are left
        out. The ranks of a `RankGraph` are known, and not given here.
    backend : {"auto", "native", "reference", "cuda"}
    threads : int, optional
        Threads of the native back end; all processors of this process unless given, or a fair share of those that ranks have in common.
        Fewer than one is refused.
    bulk_size : int or "auto"
        Mini-batches sampled in one call; "auto" takes as many as fit `memory_budget`, at most 32.
    memory_budget : int, optional
        Bytes for sampled mini-batches; a quarter of the free memory unless given.
    prefetch : bool
        Sample the next bulk on a thread while the current one is used.
    fetch_together : int
        With a `RankGraph`: mini-batches whose rows are fetched at once, each row once.
    edge_ids : bool
        With a `RankGraph` of partitioned topology: fetch the numbers of sampled edges, `Batch.e_id`, too.
    profile : callable, optional
        Returns a context manager for a name, as ``trainer.profiler.profile`` of Lightning does. The loader enters it for
        "bulksample: sample" and "bulksample: fetch", while you wait for samples and rows. Profilers of torch see both without it.
    **options
        Of the sampler: ``weighted=True``, ``replace=True``, ``frontier="new"``, ``debias=False``, …

    Raises
    ------
    UsageError
        If an argument is unknown or out of range, the sampler does not work on this graph, or `drop_last` leaves a rank no mini-batch.
        With a `RankGraph` on every rank, also if the ranks were given different arguments.
    DataError
        If the store is damaged.
    """

    def __init__(
        self,
        graph: Graph | RankGraph | str | os.PathLike[str],
        sampler: str | Sampler = "sage",
        fanouts: Sequence[int] | None = None,
        *,
        batch_size: int = 1024,
        seeds: Any = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        seed_locality: int | None = None,
        rank: int = 0,
        ranks: int = 1,
        backend: str = "auto",
        threads: int | None = None,
        bulk_size: int | Literal["auto"] = "auto",
        memory_budget: int | None = None,
        prefetch: bool = True,
        fetch_together: int = 1,
        edge_ids: bool = False,
        profile: Profile | None = None,
        **options: Any,
    ) -> None:
        several = graph.graph if isinstance(graph, RankHeteroGraph) else graph
        if isinstance(several, Graph) and not several.plain:
            raise UsageError(f"graph {several.name!r} has {len(several.types)} vertex types; use bulksample.HeteroLoader")
        self.graph = graph if isinstance(graph, Graph | RankGraph) else _load(graph)
        bulk: dict[str, Any] = {"batch_size": batch_size, "bulk_size": bulk_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
        bulk |= {"memory_budget": memory_budget, "prefetch": prefetch}
        self._profile = profile
        if isinstance(self.graph, RankGraph):
            from .shared_batches import SharedBatches

            def asked() -> Sampler:
                check_fetching(fetch_together, True, rank, ranks)
                check_switches(edge_ids=edge_ids)
                return _sampler(sampler, fanouts, options)

            self._shared = SharedBatches(
                self.graph, asked, seeds, backend, threads, fetch_together, edge_ids, profile, seed_locality, **bulk
            )  # fmt: skip
            self.bulks, ranks = self._shared.steps.source.loader, self.graph.comm.size
        else:
            check_fetching(fetch_together, False)
            check_switches(edge_ids=edge_ids)
            if edge_ids:
                raise UsageError(
                    "edge_ids is for a graph that ranks share, load(path, world=...); leave it out, Batch.e_id is there without it"
                )
            adjacency = LocalAdjacency(self.graph.adjacency, backends.make(backend, threads))
            law, vertices = _sampler(sampler, fanouts, options), seed_vertices(self.graph, seeds)
            groups = None if seed_locality is None else SeedGroups(seed_locality, vertices)
            self.bulks = BulkLoader(adjacency, law, vertices, rank=rank, ranks=ranks, even=True, groups=groups, **bulk)
            self._rows = GraphRows(self.graph, threads or len(processor_ids()), vertices, profile)
        self._check_steps(batch_size, ranks)

    def _batch(self, minibatch: MiniBatch, repeated: bool) -> Batch:
        return Batch(minibatch, self._rows, repeated)


def _sampler(sampler: str | Sampler, fanouts: Sequence[int] | None, options: dict[str, Any]) -> Sampler:
    """Return the sampler of that name; a `Sampler` is returned as it is. Raises `UsageError` for a hop that draws no neighbor."""
    if isinstance(sampler, Sampler):
        if fanouts is not None or options:
            raise UsageError(f"got a sampler object, and fanouts or options besides; use the name {sampler.name!r} to give them here")
        drawn_fanouts(sampler.fanouts)
        return sampler
    own = list(inspect.signature(Loader.__init__).parameters)
    for option in options:
        near = difflib.get_close_matches(option, own, 1, 0.8)
        if near:
            raise UsageError(f"Loader has no argument {option!r}; did you mean {near[0]!r}?")
    made = samplers.make(sampler, DEFAULT_FANOUTS if fanouts is None else fanouts, **options)
    drawn_fanouts(made.fanouts)
    return made


def _load(path: str | os.PathLike[str]) -> Graph:
    from ..data.store import load

    return load(path)
