"""The mini-batches of a heterogeneous graph that several ranks share, with the features of their types."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..distributed.matrix.rank_hetero_graph import RankHeteroGraph
from ..errors import UsageError
from ..profiling import Profile
from ..relations.adjacency import RelationAdjacency
from ..relations.hgt import HGSampler
from ..relations.layers import UnionSampler
from ..relations.loader import RelationLoader
from ..relations.minibatch import HeteroMiniBatch
from ..relations.sampler import RelationSampler
from ..relations.seeds import SeedList
from ..seed_groups import SeedGroups
from ..training.batches import StepBatch
from ..views.loading import RelationalLoadingView
from .batch_rows import TableRows, VerticesAndSeeds, no_features
from .hetero_batch import HeteroBatch, rows_of_types
from .shared_steps import SharedMinibatches, SharedSteps, dense, made_together, plain


class SharedHeteroBatches(SharedMinibatches[HeteroBatch]):
    """The batches of this rank of a heterogeneous graph.

    Parameters
    ----------
    graph : RankHeteroGraph
    asked : callable
        Returns the sampler and the seeds, or raises `UsageError` or `DataError`.
    backend : str
    threads : int, optional
        By default a fair share of the processors that this rank may use.
    fetch_together, profile, seed_locality
        See `SharedBatches`.
    **options
        Of `BulkLoader`.

    Raises
    ------
    UsageError
        On every rank, if one was given a bad argument or ranks were given different ones.
    """

    def __init__(
        self, graph: RankHeteroGraph, asked: Callable[[], tuple[RelationSampler | UnionSampler | HGSampler, SeedList]], backend: str,
        threads: int | None, fetch_together: int, profile: Profile | None, seed_locality: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        comm = graph.comm

        def compared() -> tuple[tuple[RelationSampler | UnionSampler | HGSampler, SeedList], dict[str, Any], dict[str, Any]]:
            law, seeds = made = asked()
            columns: dict[str, list[np.ndarray | None]] = {"seeds": [seeds.vertices, seeds.places], "times": [seeds.times, seeds.starts]}
            hashes = {
                name: [None if one is None else hashlib.sha256(one.tobytes()).hexdigest() for one in own] for name, own in columns.items()
            }
            if seed_locality is not None and graph.placement.partition != "block":
                raise UsageError(f"seed_locality follows even block rows; got partition {graph.placement.partition}: use partition='block'")
            settings = {**law.settings, **{name: plain(value) for name, value in options.items()}, "threads": plain(threads)}
            settings |= {"fetch_together": plain(fetch_together), "seed_locality": plain(seed_locality)}
            return made, settings, {"graph": graph.fingerprint, **hashes}

        (law, seeds), engine, share = made_together(comm, compared, backend, threads)
        self._graph, self.view = graph.graph, RelationalLoadingView(graph, engine)
        relations = cast(RelationAdjacency, self.view.adjacency)
        groups = None if seed_locality is None else SeedGroups(seed_locality, seeds.part_order(graph.graph))
        rank = comm.rank if groups is None else graph.placement.place(comm)
        loader = RelationLoader(relations, law, seeds, rank=rank, ranks=comm.size, even=True, groups=groups, **options)
        self._rows = rows_of_types(relations, seeds, share, profile)
        self.steps = SharedSteps(comm, self.view, loader, fetch_together, profile)

    def _batch(self, step: StepBatch, repeated: bool) -> HeteroBatch:
        assert step.minibatch is not None  # every step of an even loader has a mini-batch
        fetched: dict[str, Any] = cast(Any, step.x)
        rows = {name: FetchedColumns(own, fetched.get(name)) for name, own in self._rows.items()}
        return HeteroBatch(cast(HeteroMiniBatch, step.minibatch), self._graph, rows, repeated)


class FetchedColumns:
    """The features of a type that were fetched from the ranks that hold them, and its labels, which are mapped from the store."""

    def __init__(self, rows: TableRows, x: Any) -> None:
        self._rows, self._x = rows, x

    def x(self, minibatch: VerticesAndSeeds) -> NDArray[np.float32]:
        if self._x is None:
            raise no_features(self._rows.name)
        return dense(self._x)

    def y(self, minibatch: VerticesAndSeeds) -> NDArray[np.int64] | NDArray[np.float32]:
        return self._rows.y(minibatch)

    @property
    def has_features(self) -> bool:
        return self._rows.has_features

    @property
    def has_labels(self) -> bool:
        return self._rows.has_labels
