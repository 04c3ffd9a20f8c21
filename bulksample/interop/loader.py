"""A loader of sampled mini-batches with their features and labels, for any training loop: `bulksample.Loader`."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, Self

from .. import backends
from ..backends.native import processor_ids
from ..data.store import load
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError, check_switches, is_whole
from ..graph import Graph
from ..loading.loader import BulkLoader
from ..loading.position import Positioned
from ..pickled import CopiedAlong, Uncached
from ..profiling import Profile, profiled
from ..samplers import AnySampler, Sampler
from ..samplers.hgt import HGSampler
from ..samplers.time_rule import TimeRule
from .batch import Batch
from .requests import Fanouts, Reader, Request
from .tensors import device_for, device_of

if TYPE_CHECKING:
    from .shared_steps import SharedSteps


class Loader(Positioned, Uncached, CopiedAlong):
    """A loader that samples k mini-batches in one call and gives them out with their features and labels, each a `Batch`.

    Each iteration yields the mini-batches of a new epoch, like torch's `DataLoader`. After `load_state_dict`, the first one goes
    on in the middle of the epoch of the state. So does that of a pickle, a copy or a fork of a loader; that of ranks that share a graph has
    none. In a worker of torch's `DataLoader` a copy warns of mini-batches that come twice: set `epoch` before each iteration of the
    `DataLoader`, and make the loader in the worker, with its `rank` and `ranks`, to share an epoch among several.
    Mini-batches depend on the graph, the sampler, the seeds and their times, `batch_size`, `shuffle` and `seed` alone: not on `bulk_size`,
    `backend` or `threads`.

    Parameters
    ----------
    graph : Graph, RankGraph, or the path of a store
        A `RankGraph` is shared by several ranks, which make the same loaders and iterate over them together.
        The rows of a batch have then been fetched from the ranks that hold them, while the batch before was in use.
    sampler : str or Sampler
        A name from `bulksample.samplers.SAMPLERS`: sage, ladies, fastgcn, labor, full, shadow or saint. By type and relation, sage, labor
        and full draw from each relation, and ladies and fastgcn from the union of all. There it may also be an `HGSampler`. A
        sampler object brings its own fanouts, and may bring a rule of time and trees.
    fanouts : sequence of int, or a dict of such by (source, name, destination), optional
        How many neighbors (node-wise samplers) or vertices (layer-wise samplers) each hop draws, from the seeds outwards;
        -1 takes all. A dict names every relation, or has a ``default``. (15, 10, 5) unless given.
    batch_size : int
        Seeds of a mini-batch; the last one of an epoch may have fewer.
    seeds : str, integers of shape (m,), booleans of shape (n,), or those of types, optional
        The vertices to make mini-batches of: a split (train, val, test, or all), ids, or a mask. Unless given: the
        training split, or all vertices of a graph without masks. By type it is a type, a type and a list, or several types and their
        lists; see `SeedList.of`.
    times, starts : integers or datetime64 of shape (m,), or a dict of such by type, optional
        By type: the time at which each seed is asked about, and the beginning of its window, no later. Nothing later than its time is
        drawn.
    time_unit : {"D", "h", "m", "s", "ms", "us", "ns"}, optional
        The unit of the times of the graph; needed for dates. See `SeedList.of`.
    time : TimeRule, optional
        ``TimeRule()`` if times are given; a sampler object may bring its own.
    disjoint : bool, optional
        By type: give each seed a tree of its own; by default so with times.
    seed : int
        Everything random is a function of it.
    shuffle : bool
        Put the seeds in a new order in each epoch.
    drop_last : bool
        Leave out a last mini-batch of fewer than `batch_size` seeds.
    sampling_weights : numbers of shape (m,), or "class", optional
        Draw the m seeds of an epoch with replacement, each with a chance in proportion to its weight, as torch's `WeightedRandomSampler`
        does; "class" gives each seed 1 / (seeds of its class), so that all classes come equally often, and none without a label.
    steps_per_epoch : int, optional
        Yield exactly so many mini-batches in an epoch, on every rank, whatever the number of seeds: the seeds go on where the epoch before
        ended, one pass over them after another, each in an order of its own. A state then fits the number of ranks that saved it.
    seed_locality : int, optional
        G: draw mini-batch number t G + g from group g of G equal groups of seeds, in the order of the block rows of a `RankGraph`, or of
        ids; of several types, of their places in even block rows, ``partition="block"``. A rank takes the mini-batches of the groups whose
        rows it holds, so that it fetches fewer rows. G divides the number of ranks, or is a multiple of it.
    rank, ranks : int
        This process and the number of processes, as `torch.distributed` counts them. Each rank yields every `ranks`-th mini-batch, and
        all yield equally many: the first ones repeat at the end of an epoch (`Batch.repeated`) or, with `drop_last`, the last ones are left
        out. The ranks of a graph that ranks share are known, and not given here.
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
        With a graph that ranks share: mini-batches whose rows are fetched at once, each row once.
    edge_ids : bool
        With a plain `RankGraph` of partitioned topology, without `as_dicts`: fetch the numbers of sampled edges, `Batch.e_id`, too.
    profile : callable, optional
        Returns a context manager for a name, as ``trainer.profiler.profile`` of Lightning does. The loader enters it for
        "bulksample: sample" and "bulksample: fetch", while you wait for samples and rows. Profilers of torch see both without it.
    as_dicts : bool
        Give the mini-batches of a plain graph by type and relation, too. Those of other graphs are always dicts.
    out : {"torch", "numpy"}, optional
        What arrays of batches are; "torch" unless given, if torch is installed when the loader is made. See also `to`.
    **options
        Of the sampler: ``weighted=True``, ``replace=True``, ``frontier="new"``, ``debias=False``, …

    Raises
    ------
    UsageError
        If an argument is unknown or out of range, or does not suit the graph, or `drop_last` leaves a rank no mini-batch.
        With a graph that ranks share on every rank, also if the ranks were given different arguments.
    DataError
        If times are missing or floats, or the store is damaged.
    """

    bulks: BulkLoader  # samples the mini-batches
    device: Any  # where the tensors of batches lie; None for numpy arrays
    _columns: Reader
    _shared: SharedSteps | None = None  # the steps of ranks that share the graph, whose rows are fetched ahead of use
    _profile: Profile | None = None

    def __init__(
        self, graph: Graph | RankGraph | str | os.PathLike[str],
        sampler: str | Sampler | HGSampler = "sage", fanouts: Fanouts | None = None, *,
        batch_size: int = 1024, seeds: Any = None, times: Any = None, starts: Any = None, time_unit: str | None = None,
        time: TimeRule | None = None, disjoint: bool | None = None, seed: int = 0, shuffle: bool = True, drop_last: bool = False,
        sampling_weights: Any = None, steps_per_epoch: int | None = None, seed_locality: int | None = None, rank: int = 0, ranks: int = 1,
        backend: str = "auto", threads: int | None = None, bulk_size: int | Literal["auto"] = "auto", memory_budget: int | None = None,
        prefetch: bool = True, fetch_together: int = 1, edge_ids: bool = False, profile: Profile | None = None, as_dicts: bool = False,
        out: Literal["torch", "numpy"] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        self.graph = whole = graph if isinstance(graph, Graph | RankGraph) else load(graph)
        self._profile = profile
        bulk: dict[str, Any] = {"batch_size": batch_size, "bulk_size": bulk_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
        bulk |= {
            "memory_budget": memory_budget,
            "prefetch": prefetch,
            "steps_per_epoch": steps_per_epoch,
            "sampling_weights": sampling_weights,
        }

        def make_request() -> Request:
            check_switches(edge_ids=edge_ids, as_dicts=as_dicts)
            _check_options(options)
            self.device = device_for(out)
            by_type = as_dicts or not whole.plain
            _check_ranks(whole, by_type, fetch_together, edge_ids, rank, ranks)
            times_and_trees = {"times": times, "starts": starts, "time_unit": time_unit, "time": time, "disjoint": disjoint}
            if not by_type:
                _check_plain(whole, sampler, {**times_and_trees, "fanouts": fanouts, "seeds": seeds})
            return Request(whole, by_type, sampler, fanouts, options, seeds, **times_and_trees)

        if isinstance(whole, Graph):
            request = make_request()
            adjacency = request.adjacency(backends.make(backend, threads))
            self.bulks = request.loader(adjacency, rank, ranks, seed_locality, **bulk)
            self._columns = request.reader(threads or len(processor_ids()), profile)
        else:
            from .shared_steps import shared_steps

            self._shared, self._columns = shared_steps(
                whole, make_request, backend, threads, fetch_together, edge_ids, seed_locality, profile, **bulk
            )
            self.bulks, ranks = self._shared.source.loader, whole.comm.size
        if not self.bulks.steps:  # on every rank
            filled = f"{self.bulks.examples} seeds fill {self.bulks.examples // batch_size} of {batch_size}, for {ranks} ranks"
            raise UsageError(f"drop_last leaves no mini-batch: {filled}; use drop_last=False, a lower batch_size or fewer ranks")

    def __len__(self) -> int:
        """Return the number of mini-batches that this rank yields in an epoch."""
        return self.bulks.steps

    def __iter__(self) -> Iterator[Batch]:
        """Yield the mini-batches of an epoch; of the epoch of a state that was just loaded, the remaining ones.

        Raises `UsageError` while another thread iterates over this loader.
        """
        if self._shared is not None:
            for step, repeated in self._shared:
                yield Batch(self._columns(step.minibatch, step), repeated, self.device)
            return
        with closing(iter(self.bulks)) as remaining:
            while True:
                with profiled("sample", self._profile):  # the wait for a mini-batch of the whole graph is a phase
                    minibatch = next(remaining, None)  # every step of an even loader has one
                if minibatch is None:
                    return
                yield Batch(self._columns(minibatch), self.bulks.repeated, self.device)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state_dict` returned; see `Positioned.load_state_dict`."""
        by_type, dicts = self.bulks.by_type, isinstance(state, dict) and "times" in state
        if self.graph.plain and isinstance(state, dict) and "seeds" in state and dicts != by_type:
            raise UsageError(f"the loader's state does not fit: it was saved with as_dicts={dicts}; make this loader so too")
        super().load_state_dict(state)

    def to(self, device: Any = "cpu") -> Self:
        """Return a view of this loader whose batches are torch tensors on a device; see `Batch.to`. Both have one position."""
        view = object.__new__(type(self))
        vars(view).update(vars(self), device=device_of(device))
        return view

    @property
    def _position(self) -> BulkLoader | SharedSteps:
        """Knows the mini-batch in use: the loader of bulks, or the steps whose rows are fetched ahead of use."""
        return self.bulks if self._shared is None else self._shared


def _check_options(options: dict[str, Any]) -> None:
    """Raise `UsageError` for an option of a sampler that is a mistyped argument of `Loader`."""
    arguments = list(inspect.signature(Loader.__init__).parameters)
    for option in options:
        if near := difflib.get_close_matches(option, arguments, 1, 0.8):
            raise UsageError(f"Loader has no argument {option!r}; did you mean {near[0]!r}?")


def _check_ranks(graph: Graph | RankGraph, by_type: bool, fetch_together: Any, edge_ids: bool, rank: int, ranks: int) -> None:
    """Raise `UsageError` unless these arguments suit a graph that ranks share, or one in this process."""
    if not is_whole(fetch_together):
        raise UsageError(f"fetch_together must be a positive whole number; got {fetch_together!r}")
    if not isinstance(graph, Graph) and (rank, ranks) != (0, 1):
        raise UsageError(f"rank and ranks are those of the world of the graph; got {rank} and {ranks}: leave them out")
    if isinstance(graph, Graph) and fetch_together != 1:
        raise UsageError(f"fetch_together is for a graph that ranks share, load(path, world=...); got {fetch_together!r}: leave it out")
    if edge_ids and (isinstance(graph, Graph) or by_type):
        raise UsageError(
            "edge_ids is for a plain graph that ranks share, load(path, world=...); leave it out, Batch.e_id is there without it"
        )


def _check_plain(graph: Graph | RankGraph, sampler: Any, arguments: dict[str, Any]) -> None:
    """Raise `UsageError` for arguments of mini-batches by type and relation, as those of a plain graph are not unless asked for."""
    relational = isinstance(sampler, AnySampler) and (sampler.by_relation or isinstance(sampler, HGSampler))
    names = [name for name, value in arguments.items() if (_by_type(value) if name in ("fanouts", "seeds") else value is not None)]
    if relational or names:
        refused = ", ".join([*([f"a {type(sampler).__name__}"] if relational else []), *names])
        raise UsageError(
            f"got {refused} for the plain graph {graph.name!r}, which are for mini-batches by type and relation; use as_dicts=True"
        )


def _by_type(value: Any) -> bool:
    """Return True for a dict, and for (type, list)."""
    return isinstance(value, Mapping) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], str))
