"""The mini-batches of a graph that several ranks share, with their rows: the trainer's own source of steps, for a loop of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..distributed.matrix.rank_graph import RankGraph
from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..profiling import Profile
from ..samplers import Sampler
from ..seed_groups import SeedGroups
from ..training.batches import StepBatch
from ..views.edges import EdgeRows, EdgeSource
from ..views.loading import GraphLoadingView
from .batch import Batch
from .batch_rows import no_features, no_labels
from .seeds import seed_vertices
from .shared_steps import SharedMinibatches, SharedSteps, dense, made_together, plain


class SharedBatches(SharedMinibatches[Batch]):
    """The batches of this rank of a plain graph.

    Parameters
    ----------
    graph : RankGraph
    sampler : callable
        Returns the sampler, or raises `UsageError`.
    seeds : str, ids or mask, optional
        See `bulksample.Loader`.
    backend : str
    threads : int, optional
        By default a fair share of the processors that this rank may use.
    fetch_together : int
        Mini-batches whose rows are fetched at once, each row once.
    edge_ids : bool
        Fetch the numbers of sampled edges from the ranks that have their rows.
    profile : callable, optional
    seed_locality : int, optional
        G of `SeedGroups`; a rank takes the mini-batches whose rows it holds.
    **options
        Of `BulkLoader`.

    Raises
    ------
    UsageError
        On every rank, if one was given a bad argument or ranks were given different ones.
    """

    def __init__(
        self, graph: RankGraph, sampler: Callable[[], Sampler], seeds: Any, backend: str, threads: int | None, fetch_together: int,
        edge_ids: bool, profile: Profile | None, seed_locality: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        comm = graph.comm
        by_name = seeds is None or isinstance(seeds, str)

        def asked() -> tuple[tuple[Sampler, np.ndarray | None], dict[str, Any], dict[str, Any]]:
            law, ids = sampler(), None if by_name else seed_vertices(graph, seeds)
            return (law, ids), {
                **law.settings,
                "seeds": seeds if by_name else "a list of vertices",
                **{name: plain(value) for name, value in options.items()},
                "threads": plain(threads), "fetch_together": plain(fetch_together), "edge_ids": bool(edge_ids),
                "seed_locality": plain(seed_locality),
            }, {"graph": graph.fingerprint, "seeds": None if ids is None else hashlib.sha256(ids.tobytes()).hexdigest()}  # fmt: skip

        (law, ids), engine, _ = made_together(comm, asked, backend, threads)
        vertices = seed_vertices(graph, seeds) if ids is None else ids
        self.view = GraphLoadingView(graph, engine, vertices, edge_ids)
        groups = None if seed_locality is None else SeedGroups(seed_locality, graph.part_order(vertices))
        rank = comm.rank if groups is None else graph.place
        loader = BulkLoader(self.view.adjacency, law, vertices, rank=rank, ranks=comm.size, even=True, groups=groups, **options)
        self.graph, self.steps = graph, SharedSteps(comm, self.view, loader, fetch_together, profile)

    def _batch(self, step: StepBatch, repeated: bool) -> Batch:
        assert step.minibatch is not None  # every step of an even loader has a mini-batch
        return Batch(step.minibatch, FetchedRows(self, step), repeated)


class FetchedRows:
    """The rows of a batch that were fetched from the ranks that hold them."""

    def __init__(self, batches: SharedBatches, step: StepBatch) -> None:
        self._graph, self._view, self._x, self._edges = batches.graph, batches.view, step.x, step.edges

    def x(self, minibatch: MiniBatch) -> np.ndarray:
        if not self._graph.num_features:
            raise no_features(self._graph.name)
        assert self._x is not None
        return dense(self._x)

    def y(self, minibatch: MiniBatch) -> np.ndarray:
        if not self._graph.has_labels:
            raise no_labels(self._graph.name)
        return self._view.truth(minibatch.seeds)

    @property
    def name(self) -> str:
        return self._graph.name

    @property
    def has_features(self) -> bool:
        return self._graph.num_features > 0

    @property
    def has_labels(self) -> bool:
        return self._graph.has_labels

    def edges(self, minibatch: MiniBatch) -> EdgeRows:
        matrix = self._view.adjacency.whole_matrix
        if self._edges is not None or matrix is None:
            return self._edges or EdgeRows(None, None)
        return EdgeSource(matrix, None).start(*minibatch.edge_ends())()
