"""The steps of a loader that several ranks iterate over together: begun alike on all, and refused where one left them early."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import numpy as np

from .. import backends
from ..distributed.comm.agree import made_alike, together
from ..distributed.comm.base import Comm
from ..distributed.comm.ledger import Ledger
from ..distributed.comm.machines import fair_threads
from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..loading.loader import BulkLoader
from ..pickled import CopiedAlong, Unpicklable
from ..profiling import Profile, profiled
from ..training.batches import MiniBatchSource, StepBatch
from ..views.sync import SharedMeeting
from ..views.view import View
from .requests import Reader, Request, hash_of


class SharedSteps(Unpicklable, CopiedAlong):
    """The mini-batches of this rank, with their fetched rows; collective.

    `loader` is an even one: every step has a mini-batch on every rank. The rows of `fetch_together` mini-batches are fetched at once, each
    row once; of at most a bulk, if ranks sample it together ahead of use. While a batch is in use, the rows of the next one are on their
    way. The ids of a bulk travel at once, and ranks compare their steps then. A rank that leaves an epoch early fetches what it has asked
    for when it begins the next one, so the others get to the end of the bulk, where all raise.
    """

    stays = "ranks iterate over these mini-batches together; make the loader on every rank"

    def __init__(
        self, comm: Comm, view: View, loader: BulkLoader, fetch_together: int = 1, profile: Profile | None = None
    ) -> None:  # fmt: skip
        if view.sampling is not None and loader.prefetches:
            comm.check_threads()
        if view.meeting.meets:  # every bulk is a collective call, or one request for rows
            loader.bulk_size = min(comm.gather_control(loader.bulk_size))
        if view.sampling is not None and loader.prefetches:  # so that a fetch waits for one more bulk at most, as `_begin` takes it
            fetch_together = min(fetch_together, loader.bulk_size)
        self.view, self.ledger = view, Ledger(comm, view.sampling, lambda phase: profiled(phase, profile))
        self.source = MiniBatchSource(loader, view, self.ledger, fetch_together, leave_together=False)
        self._steps: Generator[StepBatch, None, None] | None = None  # of the present iteration
        self._told = ""  # what this rank did since the last iteration, unless it took all steps
        self._left: int | None = None  # steps of an epoch that this rank left early

    def __iter__(self) -> Iterator[tuple[StepBatch, bool]]:
        """Yield the steps of an epoch; true with those that repeat a mini-batch of the epoch. One thread iterates at a time."""
        return self.source.loader.in_turn(self._steps_of_epoch())

    def _steps_of_epoch(self) -> Generator[tuple[StepBatch, bool], None, None]:
        if self._steps is not None:
            self._steps.close()  # waits for its sampling thread: two threads must not use one communicator
        self.source.drop()  # of an iteration that was left early
        self.source.settle()
        self._begin()
        self._steps = steps = cast(Generator[StepBatch, None, None], iter(self.source))
        ended = refused = False
        try:
            for step in steps:
                yield step, self.source.loader.repeats(self.source.state_dict())
                if self._steps is not steps:
                    raise UsageError("a newer iteration of this loader has begun and ended this one; make a second loader to iterate twice")
            ended = True
        except UsageError:
            if self._steps is steps:
                self.source.loader.bulks_left, refused = 0, True  # no rank samples on
            raise
        finally:
            if not ended and not refused and self._steps is steps:
                self._left = self.source.step if self.source.step < self.source.steps else None
                self._told = f", having left epoch {self.source.epoch} after {self.source.step} of {self.source.steps} steps"
            if self._steps is steps:
                self._steps = None

    def _begin(self) -> None:
        """Compare the beginning of an iteration with all ranks, also with those that go on in the one that this rank left; collective."""
        loader = self.source.loader
        note, left, later = self._told, self._left, loader.bulks_left
        self._told, self._left, loader.bulks_left = "", None, 0
        # a rank that has taken the bulk after the present one is sampling the next on its thread
        cast(SharedMeeting, self.view.meeting).begin(
            *loader.coming, left, note, ahead=loader.prefetches, samples=loader.prefetches and later > 1
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the source, and the fingerprint of the store: no rank may hold the whole matrix."""
        return {**self.source.state_dict(), "store": self.view.fingerprint}

    def load_state_dict(self, state: Any, onward: bool = True) -> None:
        """Continue from a position, the same on every rank; raises `UsageError` if it does not fit.

        The next iteration raises it on all ranks if they have not all loaded the same position. Nothing is sent before.
        """
        fingerprint = self.view.fingerprint
        if isinstance(state, dict) and state.get("store", fingerprint) != fingerprint:
            raise UsageError("the state does not fit this loader: it was saved with another store; use that store, or start a new run")
        self.source.continue_from(state, onward)
        self._told, self._left = ", where a state was loaded", None

    @property
    def epoch(self) -> int:
        """The epoch of the mini-batch in use. Set it on every rank; an iteration under way cannot go on."""
        return self.source.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.source.loader.epoch = epoch
        self.source.continue_from(self.source.loader.state_dict())
        self._told, self._left = ", where an epoch was set", None


def shared_steps(
    graph: RankGraph, make_request: Callable[[], Request], backend: str, threads: int | None, fetch_together: int,
    edge_ids: bool, seed_locality: int | None, profile: Profile | None, **options: Any,
) -> tuple[SharedSteps, Reader]:  # fmt: skip
    """Return the steps of this rank, and what makes the columns of their mini-batches; collective.

    If `make_request` raises `UsageError` or `DataError` on one rank, all ranks do, and also if they were given different arguments.
    `threads` are by default a fair share of the processors that this rank may use; `options` are those of `BulkLoader`.
    """

    def compared() -> tuple[Request, dict[str, Any], dict[str, Any]]:
        request = make_request()
        settings, hashes = request.compared()
        more = {"threads": threads, "fetch_together": fetch_together, "edge_ids": edge_ids, "seed_locality": seed_locality}
        weights = options.get("sampling_weights")
        hashed = None if weights is None or isinstance(weights, str) else hash_of(np.asarray(weights))
        plain = {name: _plain(value) for name, value in {**options, **more}.items() if name != "sampling_weights" or hashed is None}
        return request, {**settings, **plain}, {"graph": graph.fingerprint, **hashes, "sampling_weights": hashed}

    comm = graph.comm
    request, cores = made_alike(comm, compared), fair_threads(comm) if threads is None else threads
    engine = together(comm, lambda: backends.make(backend, cores))
    view = request.view(engine, edge_ids)
    rank = comm.rank if seed_locality is None else graph.placement.place(comm)  # in the order of the block rows
    loader = request.loader(view.adjacency, rank, comm.size, seed_locality, **options)
    columns = request.reader(cores, profile, view)
    return SharedSteps(comm, view, loader, fetch_together, profile), columns


def _plain(value: Any) -> Any:
    """Return None, booleans, numbers and strings as they are, and anything else as its `repr`, so that ranks can compare them."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
