"""A loader of heterogeneous mini-batches with their features and labels, for any training loop: `bulksample.HeteroLoader`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from .. import backends
from ..backends.native import processor_ids
from ..config.options import drawn_fanouts
from ..data.store import load
from ..distributed.matrix.rank_graph import RankGraph
from ..distributed.matrix.rank_hetero_graph import RankHeteroGraph
from ..errors import UsageError
from ..graph import Graph
from ..profiling import Profile
from ..relations.adjacency import RelationAdjacency
from ..relations.hgt import HGSampler
from ..relations.layers import UnionSampler
from ..relations.loader import RelationLoader
from ..relations.minibatch import HeteroMiniBatch
from ..relations.rule import TimeRule
from ..relations.sampler import RelationSampler
from ..relations.seeds import SeedList
from ..samplers import Sampler
from ..seed_groups import SeedGroups
from .epoch_loader import EpochLoader, check_fetching
from .hetero_batch import HeteroBatch, rows_of_types
from .relation_sampler import Fanouts, relation_sampler
from .tensor_batch import TensorHeteroBatch

if TYPE_CHECKING:
    pass


class HeteroLoader(EpochLoader[HeteroBatch, TensorHeteroBatch]):
    """A loader that samples heterogeneous mini-batches in bulks and gives them out with their features and labels.

    Mini-batches depend on the graph, the sampler, the seeds and their times, `batch_size`, `shuffle` and `seed` alone: not on `bulk_size`,
    `backend`, `threads` or `ranks`. `bulksample.Loader` describes the arguments that are not listed here.

    Parameters
    ----------
    graph : Graph, RankHeteroGraph, or the path of a store
        A `RankHeteroGraph` is shared by several ranks, which make the same loaders and iterate over them together; see `bulksample.Loader`.
    sampler : str, NodeWise, LayerWise, RelationSampler, UnionSampler or HGSampler
        sage, labor or full draw from each relation; ladies and fastgcn from the union of all. A `RelationSampler` brings its own fanouts,
        time and trees; an `HGSampler` its own counts.
    fanouts : sequence of int, or a dict of such by (source, name, destination), optional
        How many neighbors a vertex draws from each relation in each hop; -1 takes all, 0 none. A dict names every relation, or has a
        ``default``. (15, 10, 5) unless given.
    seeds : str, (str, list) or dict, optional
        A type, a type and a list, or several types and their lists; see `SeedList.of`.
    times, starts : integers or datetime64 of shape (m,), or a dict of such by type, optional
        The time at which each seed is asked about, and the beginning of its window, no later. Nothing later than its time is drawn.
    time_unit : {"D", "h", "m", "s", "ms", "us", "ns"}, optional
        The unit of the times of the graph; needed for dates. See `SeedList.of`.
    time : TimeRule, optional
        ``TimeRule()`` if times are given; that of a `RelationSampler` is its own.
    disjoint : bool, optional
        Give each seed a tree of its own; by default so with times.
    seed_locality : int, optional
        G groups of seeds, in the order of their places in the lists of their types; see `bulksample.Loader`. The groups are those of even
        block rows, ``partition="block"``.
    **options
        Of the sampler: ``weighted=True``, ``replace=True``, ``frontier="new"``, …

    Raises
    ------
    UsageError
        If an argument is unknown or out of range, or does not suit the graph. With a `RankHeteroGraph` on every rank, also if the ranks
        were given different arguments.
    DataError
        If times are missing or floats, or a store is damaged.
    """

    def __init__(
        self,
        graph: Graph | RankHeteroGraph | str | os.PathLike[str],
        sampler: str | Sampler | RelationSampler | UnionSampler | HGSampler = "sage",
        fanouts: Fanouts | None = None,
        *,
        batch_size: int = 1024,
        seeds: Any = None,
        times: Any = None,
        starts: Any = None,
        time_unit: str | None = None,
        time: TimeRule | None = None,
        disjoint: bool | None = None,
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
        profile: Profile | None = None,
        **options: Any,
    ) -> None:
        if isinstance(graph, RankGraph):
            raise UsageError(f"graph {graph.name!r} is of one vertex type; use bulksample.Loader")
        share = graph if isinstance(graph, RankHeteroGraph) else None
        self.graph = share.graph if share else graph if isinstance(graph, Graph) else load(cast(Any, graph))
        bulk: dict[str, Any] = {"batch_size": batch_size, "bulk_size": bulk_size, "seed": seed, "shuffle": shuffle, "drop_last": drop_last}
        bulk |= {"memory_budget": memory_budget, "prefetch": prefetch}

        def asked() -> tuple[RelationSampler | UnionSampler | HGSampler, SeedList]:
            if share:
                check_fetching(fetch_together, True, rank, ranks)
            listed = SeedList.of(self.graph, seeds, times, starts, time_unit)
            if not len(listed.vertices):
                raise UsageError(f"seeds choose none of the {self.graph.n} vertices of graph {self.graph.name!r}; choose at least one")
            return _law(self.graph, sampler, fanouts, time, times is not None, disjoint, options), listed

        self._profile = profile
        if share:
            from .shared_hetero_batches import SharedHeteroBatches

            self._shared = SharedHeteroBatches(share, asked, backend, threads, fetch_together, profile, seed_locality, **bulk)
            self.bulks, ranks = self._shared.steps.source.loader, share.comm.size
        else:
            check_fetching(fetch_together, False)
            law, listed = asked()
            adjacency = RelationAdjacency(self.graph, backends.make(backend, threads))
            groups = None if seed_locality is None else SeedGroups(seed_locality, listed.part_order(self.graph))
            self.bulks = RelationLoader(adjacency, law, listed, rank=rank, ranks=ranks, even=True, groups=groups, **bulk)
            self._rows = rows_of_types(adjacency, listed, threads or len(processor_ids()), profile)
        self._check_steps(batch_size, ranks)

    def _batch(self, minibatch: HeteroMiniBatch, repeated: bool) -> HeteroBatch:
        return HeteroBatch(minibatch, self.graph, self._rows, repeated)


def _law(
    graph: Graph, sampler: str | Sampler | RelationSampler | UnionSampler | HGSampler, fanouts: Fanouts | None, time: TimeRule | None,
    timed: bool, disjoint: bool | None, options: dict[str, Any],
) -> RelationSampler | UnionSampler | HGSampler:  # fmt: skip
    """Return the sampler of a loader; `timed` seeds have times, which must count."""
    made = isinstance(sampler, RelationSampler | UnionSampler)
    rule = TimeRule() if time is None and timed and not made else time
    law = relation_sampler(graph, sampler, fanouts, rule, disjoint, options)
    drawn_fanouts(_most_drawn(graph, law))
    if timed and getattr(law, "time", None) is None:
        raise UsageError(f"got times, but no time counts in this {type(law).__name__}; use RelationSampler(…, time=TimeRule())")
    return law


def _most_drawn(graph: Graph, law: RelationSampler | UnionSampler | HGSampler) -> tuple[int, ...]:
    """Return a fanout for each hop: 0 if no relation (of an HGSampler: no type) draws in it, -1 for all."""
    if isinstance(law, HGSampler):
        given = law.num_samples
        each = [tuple(counts) for counts in (given.values() if isinstance(given, Mapping) else [given])]
    elif isinstance(law, RelationSampler):
        named = law.fanouts or {}
        each = [named.get(relation.key, law.base.fanouts) for relation in graph.relations]
    else:
        each = [law.base.fanouts]
    return tuple(-1 if -1 in counts else max(counts) for counts in zip(*each, strict=True))
