"""The mini-batches of a graph that several ranks share, with their rows: the trainer's own source of steps, for a loop of the user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import numpy as np

from .. import backends
from ..distributed.comm.agree import agree, together
from ..distributed.comm.ledger import Ledger
from ..distributed.comm.thread_budget import fair_threads
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..nn.aggregate import SparseRows
from ..profiling import Profile, profiled
from ..samplers import Sampler
from ..seed_groups import SeedGroups
from ..training.batches import MiniBatchSource, StepBatch
from ..views.edges import EdgeRows, EdgeSource
from ..views.loading import LoadingView
from .batch import Batch
from .batch_rows import no_features, no_labels
from .seeds import seed_vertices


class SharedBatches:
    """The batches of this rank; all ranks iterate over them together, and make the same number of steps.

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

    Notes
    -----
    While a batch is in use, the ids of the next one have been exchanged and its rows are on their way.
    """

    def __init__(
        self, graph: RankGraph, sampler: Callable[[], Sampler], seeds: Any, backend: str, threads: int | None, fetch_together: int,
        edge_ids: bool, profile: Profile | None, seed_locality: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        comm = graph.comm
        by_name = seeds is None or isinstance(seeds, str)
        law, ids = together(comm, lambda: (sampler(), None if by_name else seed_vertices(graph, seeds)))
        agree(comm, {
            "the graph": graph.fingerprint,
            "sampler": f"{type(law).__name__}{sorted(vars(law).items())}",
            "seeds": seeds if ids is None else hashlib.sha256(ids.tobytes()).hexdigest(),
            **{name: plain(value) for name, value in options.items()},
            "threads": plain(threads), "fetch_together": plain(fetch_together), "edge_ids": bool(edge_ids),
            "seed_locality": plain(seed_locality),
        })  # fmt: skip
        vertices = seed_vertices(graph, seeds) if ids is None else ids
        share = threads or fair_threads(comm)
        engine = together(comm, lambda: backends.make(backend, share))
        self.view = LoadingView(graph, engine, vertices, edge_ids)
        groups = None if seed_locality is None else SeedGroups(seed_locality, graph.part_order(vertices))
        rank = comm.rank if groups is None else graph.place
        loader = BulkLoader(self.view.adjacency, law, vertices, rank=rank, ranks=comm.size, even=True, groups=groups, **options)
        if self.view.sampling is not None:  # every bulk is a collective call
            loader.bulk_size = min(comm.gather_control(loader.bulk_size))
        self.graph, self.ledger = graph, Ledger(comm, self.view.sampling, lambda phase: profiled(phase, profile))
        self.source = MiniBatchSource(loader, self.view, self.ledger, fetch_together, ask_by_bulk=False)
        self._steps: Generator[StepBatch, None, None] | None = None  # of the present iteration
        self._told = ""  # what this rank did since the last iteration, unless it took all steps

    def __iter__(self) -> Iterator[Batch]:
        if self._steps is not None:
            self._steps.close()  # waits for its sampling thread: two threads must not use one communicator
        self.source.drop()  # of an iteration that was left early
        self.view.begin(*self.source.loader.coming, self._told)
        self._told = ""
        self._steps = steps = cast(Generator[StepBatch, None, None], iter(self.source))
        ended = False
        try:
            for step in steps:
                assert step.minibatch is not None  # every step of an even loader has a mini-batch
                yield Batch(step.minibatch, FetchedRows(self, step), self.source.loader.repeats(self.source.state_dict()))
                if self._steps is not steps:
                    raise UsageError("a newer iteration of this loader has begun and ended this one; make a second loader to iterate twice")
            ended = True
        finally:
            if not ended:
                self._told = f", having left epoch {self.source.epoch} after {self.source.step} of {self.source.steps} steps"
            if self._steps is steps:
                self._steps = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the source, and the fingerprint of the store: no rank may hold the whole matrix."""
        return {**self.source.state_dict(), "store": self.graph.fingerprint}

    def load_state_dict(self, state: Any) -> None:
        """Continue from a position, the same on every rank; raises `UsageError` if it does not fit.

        The next iteration raises it on all ranks if they have not all loaded the same position. Nothing is sent before.
        """
        own = self.graph.fingerprint
        if isinstance(state, dict) and state.get("store", own) != own:
            raise UsageError(f"the state does not fit this loader: store was {state['store']!r} and is {own!r} now")
        self.source.continue_from(state, onward=True)
        self._told = ", where a state was loaded"


class FetchedRows:
    """The rows of a batch that were fetched from the ranks that hold them."""

    def __init__(self, batches: SharedBatches, step: StepBatch) -> None:
        self._graph, self._view, self._x, self._edges = batches.graph, batches.view, step.x, step.edges

    def x(self, minibatch: MiniBatch) -> np.ndarray:
        if not self._graph.num_features:
            raise no_features(self._graph.name)
        assert self._x is not None
        return dense(self._x) if isinstance(self._x, SparseRows) else self._x.numpy()

    def y(self, minibatch: MiniBatch) -> np.ndarray:
        if not self._graph.has_labels:
            raise no_labels(self._graph.name)
        return self._view.truth(minibatch.seeds)

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


def dense(rows: SparseRows) -> np.ndarray:
    """Return sparse rows as a dense matrix: float32."""
    from scipy.sparse import csr_array

    own = rows.packed()
    made: np.ndarray = csr_array((own.weights, own.indices, own.indptr), shape=own.shape).toarray()
    return made


def plain(value: Any) -> Any:
    """Return None, booleans, numbers and strings as they are, and anything else as its `repr`, so that ranks can compare them."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
