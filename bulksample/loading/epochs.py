"""The epoch engine of all loaders: mini-batches of one epoch after another, sampled k at a time ahead of use.

    order of the examples -> mini-batches of this rank -> bulks of k -> sampled on a thread -> yielded, and the position moves

The vertices of a mini-batch depend on its id and the epoch alone: not on k, the rank that samples it or how far the loader has run.
So a run can stop after any mini-batch and resume elsewhere with the same ones.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice, pairwise, repeat
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..pickled import CopiedAlong, Uncached
from ..rng import Stream
from ..sparse import row_pointers
from .bulk_sizes import growing
from .division import EpochShare, Passes, SeedGroups
from .division import Order as Order
from .position import Position, Positioned
from .weighted_seeds import WeightedSeeds

B = TypeVar("B")  # what a loader yields
T = TypeVar("T")


class Step(NamedTuple):
    """A slot of this rank in an epoch, and its mini-batch."""

    slot: int
    id: int | None  # the number of the mini-batch; None if the rank has none there
    index: Any = None  # the positions of its examples, if a sampler of the user chooses them
    order: str = ""  # the digest of what that sampler has chosen so far


class Epochs(Positioned, Uncached, CopiedAlong, ABC, Generic[B]):
    """A loader that yields the mini-batches of a new epoch in each iteration, and whose position a state holds."""

    batch_size: int
    bulk_size: int  # k, the number of mini-batches sampled in one call
    grows: bool  # an epoch begins with bulks of 1, 2, 4, ... mini-batches
    prefetches = True
    sampling_cores: frozenset[int] | None = None  # those of the thread that samples ahead, where they are not those of its maker
    wait_seconds = 0.0  # spent waiting for samples
    ready = 0  # mini-batches, or None, of the present bulk that an iteration has not yielded yet
    bulks_left = 0  # of the iteration, after the present one; 2 stands for more
    repeated = False  # True if the mini-batch yielded last repeats one of its epoch, for want of others
    _stream: Stream
    _shuffle: bool
    _groups: SeedGroups
    _whole: EpochShare  # the share of an epoch that begins at its first mini-batch
    _sampling_weights: WeightedSeeds | None = None  # the law by which examples are drawn; else each comes once
    _passes: Passes | None = None  # if an epoch has a fixed number of mini-batches

    @abstractmethod
    def _bulk(self, examples: list[np.ndarray], ids: list[int], epoch: int) -> list[Any]:
        """Sample the mini-batches with these ids from the positions of their examples in the list of all."""

    def _batches(self, sampled: Iterator[tuple[Step, Any]]) -> Iterator[tuple[Step, B]]:
        """Yield each step with what the loader yields for its mini-batch."""
        return sampled

    def _use(self, step: Step) -> None:
        """Note a step that moves the position, before its batch is yielded."""

    @property
    def _identity(self) -> dict[str, Any]:
        """The arguments on which the mini-batches depend, as far as a state names them."""
        named = {"batch_size": self.batch_size, "random_seed": int(self._stream.seed)}
        fixed = {} if self._passes is None else {"steps_per_epoch": self._whole.steps}
        return named | {"shuffle": self._shuffle, **fixed, "minibatches": self._whole.minibatches}

    def _kept(self) -> dict[str, Any]:
        return super()._kept() | {"ready": 0, "bulks_left": 0, "sampling_cores": None}  # without an iteration that is under way

    @property
    def _position(self) -> Position:
        attributes = vars(self)
        if "_standing" not in attributes:  # `setdefault` is atomic: all threads have one position
            attributes.setdefault("_standing", Position(self._whole))
        standing: Position = attributes["_standing"]
        return standing

    @property
    def slots(self) -> int:
        """Number of mini-batches, or None, that this loader yields in a step; the same on every rank."""
        return self._whole.slots

    @property
    def coming(self) -> tuple[int, int, int]:
        """The epoch of the next iteration, its first step, and the first mini-batch of the steps of that epoch."""
        return self._position.coming

    def __iter__(self) -> Generator[B, None, None]:
        """Iterate over the steps of one epoch; afterwards the loader stands at the start of the next.

        As with torch's `DataLoader`, every iteration begins an epoch: if the last one was left early, the next epoch begins. After
        `load_state_dict`, and in a process forked meanwhile, an iteration goes on in the middle of an epoch. One thread iterates at a time,
        else `UsageError` is raised. A copy in a worker process of another `DataLoader` warns of mini-batches that come twice; see
        `bulksample.Loader`.
        """
        return self.in_turn(self._batches_of_epoch())

    def in_turn(self, steps: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the steps of an iteration, and keep other threads from beginning one; see `Position.in_turn`."""
        return self._position.in_turn(steps)

    def _batches_of_epoch(self) -> Generator[B, None, None]:
        position = self._position
        begun, self.ready, share = position.begin(), 0, position.share
        for step, batch in self._batches(self._sampled(begun.epoch)):
            if position.use(begun, (step.slot + 1) // share.slots):
                self._use(step)
            self.repeated = share.repeats(step.slot // share.slots)
            yield batch
        position.end(begun)

    def _sampled(self, epoch: int) -> Iterator[tuple[Step, Any]]:
        """Yield the remaining steps of an epoch with their mini-batches; the next bulk is sampled while the current one is consumed."""
        order, slots, steps = self._order(epoch), self._position.share.steps * self.slots, self._steps(epoch)
        sizes = growing(self.bulk_size) if self.grows else repeat(self.bulk_size)
        bulks = ([first, *islice(steps, next(sizes) - 1)] for first in steps)
        with Prefetcher(int(self.prefetches), "sampler", self.sampling_cores) as thread:
            begun = ((bulk, thread.submit(self._sample_steps, bulk, epoch, order)) for bulk in bulks)
            coming = next(begun, None)
            while coming is not None:
                began = time.perf_counter()
                bulk, minibatches = coming[0], coming[1]()
                coming = next(begun, None)
                self.wait_seconds += time.perf_counter() - began
                self.bulks_left = 0 if coming is None else 1 + (coming[0][-1].slot < slots - 1)
                for taken, pair in enumerate(zip(bulk, minibatches, strict=True), 1):
                    self.ready = len(bulk) - taken
                    yield pair

    def _steps(self, epoch: int) -> Iterator[Step]:
        """Return the remaining steps of this rank."""
        share, step = self._position.share, self._position.step
        return (Step(slot, share.id(slot)) for slot in range(step * share.slots, share.steps * share.slots))

    def _order(self, epoch: int) -> Order:
        """Return the order of an epoch; it takes no time or memory that grows with the number of examples."""
        if self._passes is not None:
            return self._passes.order(epoch, len(self._groups.places), self._order_of_pass)
        return self._order_of_pass(epoch)

    def _order_of_pass(self, number: int) -> Order:
        """Return the order of the examples in a pass over all of them."""
        at = self._groups.shuffled(self._stream, number) if self._shuffle else self._groups.in_order
        if self._sampling_weights is not None:
            at = self._sampling_weights.order(self._stream, number)
        return Order(lambda minibatch: self._groups.span(minibatch, self.batch_size), at)

    def _sample_steps(self, steps: list[Step], epoch: int, order: Order) -> list[Any]:
        """Sample the mini-batches of a bulk: one for each step, None where this rank has none."""
        ids = [step.id for step in steps if step.id is not None]
        sampled = iter(self._bulk(self._examples_of(steps, order), ids, epoch))
        return [None if step.id is None else next(sampled) for step in steps]

    def _examples_of(self, steps: list[Step], order: Order) -> list[np.ndarray]:
        """Return the positions of the examples of each mini-batch of a bulk, in the list of all examples."""
        spans = [order.span(step.id) for step in steps if step.id is not None]
        examples = order(np.concatenate([np.empty(0, np.int64), *(np.arange(span.start, span.stop) for span in spans)]))
        return [examples[first:last] for first, last in pairwise(row_pointers([len(span) for span in spans]))]

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader, ready for JSON; the mini-batch yielded last counts as consumed."""
        return self._position.state(self._identity)

    def load_state_dict(self, state: dict[str, Any], onward: bool = False) -> None:
        """Continue from a position that `state_dict` returned; see `Positioned`.

        After the last mini-batch of an epoch, an iteration yields the rest of it, nothing; with `onward`, the next epoch. On another number
        of ranks, the remaining mini-batches of the epoch are distributed anew; the epochs after it are as usual. States of a graph in block
        rows do not name the graph.
        """
        self._position.load(state, self._identity, onward)


class Prefetcher(AbstractContextManager["Prefetcher"]):
    """Threads for calls whose results are needed later; a context that waits for them at its end.

    With 0 threads, a call is made when its result is asked for. A forked process has the object but not the threads, so it makes the calls
    again. Threads run on some `cores`, if they are given, and so do those that they start.
    """

    def __init__(self, threads: int, name: str, cores: frozenset[int] | None = None) -> None:
        self._threads, self._name, self._cores = threads, name, cores
        self._start()

    def _start(self) -> None:
        self._own = started = set[int]()
        cores, self._process = self._cores, os.getpid()

        def begin() -> None:
            started.add(threading.get_ident())
            if cores is not None:
                os.sched_setaffinity(0, cores)

        self._executor = ThreadPoolExecutor(max(1, self._threads), self._name, begin)

    def __exit__(self, *_: Any) -> None:
        if self._process == os.getpid():
            # the collector of garbage may end an abandoned iteration on its own thread, which cannot wait for itself
            self._executor.shutdown(wait=threading.get_ident() not in self._own)

    def submit(self, call: Callable[..., T], *arguments: Any) -> Callable[[], T]:
        """Begin a call, and return a function that waits for its result. In a process forked meanwhile that function makes the call."""
        if not self._threads:
            return partial(call, *arguments)
        if self._process != os.getpid():
            self._start()
        process, future = self._process, self._executor.submit(call, *arguments)
        return lambda: future.result() if process == os.getpid() else call(*arguments)
