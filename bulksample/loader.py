"""The loader: shuffles the seeds, cuts them into mini-batches, and samples k of these at a time ahead of use.

The vertices of a mini-batch depend on its id and the epoch alone: not on k, the rank that samples it or how far the loader has run.
So a run can stop after any mini-batch and resume elsewhere with the same ones.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise, repeat
from typing import Any, Literal, TypeVar

import numpy as np

from .adjacency import Adjacency
from .bulk_sizes import AUTO_LIMIT, check_bulk_size, growing
from .errors import UsageError, check_switches, is_whole
from .free_memory import free_memory
from .minibatch import MiniBatch
from .pickled import CopiedAlong, Uncached
from .position import EpochShare, Position, minibatches_in_words
from .prefetch import Prefetcher
from .rng import Stream
from .samplers import NodeWise, Sampler
from .seed_groups import SeedGroups
from .selection import Selection, seed_ids
from .shuffle import Shuffle
from .sparse import row_pointers

Order = Callable[[np.ndarray], np.ndarray]  # from places in an epoch to positions in the list of examples

T = TypeVar("T")
COPIES = 2.5  # bulks in memory: one in use, one being sampled, and buffers kept for reuse or allocated too large


class BulkLoader(Uncached, CopiedAlong):
    """A loader that iterates over the mini-batches of one epoch after another.

    Parameters
    ----------
    adjacency : Adjacency
    sampler : Sampler
    seeds : integers of shape (m,), or booleans of shape (n,)
        The seeds, as ids or as a mask; ids may repeat. An array of int32 that nobody can write, such as a file mapped to be read, is not
        copied.
    batch_size : int
        b; the last mini-batch of an epoch may hold fewer.
    bulk_size : int or "auto"
        k, the number of mini-batches sampled in one call. ``auto`` samples one mini-batch and takes as many as fit `memory_budget`, at
        most 32. With `prefetch` an epoch then begins with bulks of 1, 2, 4, ... mini-batches, so that the first is ready soon.
    seed : int
    shuffle : bool
        Permute the seeds anew in each epoch.
    drop_last : bool
        Leave out a last mini-batch of fewer than b seeds.
    rank, ranks : int
        At step t this loader yields mini-batch ``t * ranks + rank``, or None if the epoch has no such mini-batch: all ranks make the same
        number of steps.
    virtual_ranks : int, optional
        W, the mini-batches of a step of all ranks; by default `ranks`. If there are more, this loader yields those of its rank one after
        another, `slots` a step, and None in place of those that a rank with a smaller share lacks; see `position`.
    even : bool
        Yield a mini-batch at every step of every rank: repeat the first ones of the epoch where there would be None, or, with
        `drop_last`, leave out the last ones.
    groups : SeedGroups, optional
        Take each mini-batch from one of G groups of seeds; G divides `virtual_ranks`, or is a multiple. See `position` for the
        mini-batches of a rank: number `rank` should hold the parts in place `rank` of part order.
    memory_budget : int, optional
        Bytes for sampled mini-batches; by default a quarter of the free memory. If memory runs out while the graph lies in this process,
        the loader warns, and samples this and later bulks in halves.
    prefetch : bool
        Sample the next bulk on a thread while the current one is consumed.
    handed : callable
        Transforms the mini-batches of a bulk before they are yielded, on the thread that sampled them.

    Raises
    ------
    UsageError
        If the adjacency or the sampler is none, a seed is not a vertex, a number is out of range, or a switch is no bool.
    """

    def __init__(
        self,
        adjacency: Adjacency,
        sampler: Sampler,
        seeds: Any,
        *,
        batch_size: int,
        bulk_size: int | Literal["auto"] = "auto",
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        ranks: int = 1,
        virtual_ranks: int | None = None,
        even: bool = False,
        groups: SeedGroups | None = None,
        memory_budget: int | None = None,
        prefetch: bool = True,
        handed: Callable[[list[MiniBatch]], list[MiniBatch]] = list,
    ) -> None:
        if not isinstance(adjacency, Adjacency):
            raise UsageError(f"adjacency: got a {type(adjacency).__name__}; use LocalAdjacency(graph.adjacency, backends.make())")
        if not hasattr(sampler, "sample_bulk"):
            raise UsageError(f"sampler: got {sampler!r}; use samplers.make(name, fanouts)")
        if not is_whole(batch_size):
            raise UsageError(f"batch_size must be positive, and a whole number; got {batch_size!r}")
        batch_size = int(batch_size)  # a numpy number would not fit into the JSON of the state
        for name, number, least in (("rank", rank, 0), ("ranks", ranks, 1)):
            if not is_whole(number, least):
                raise UsageError(f"{name} must be a whole number, {least} or more; got {number!r}")
        if not 0 <= rank < ranks:
            raise UsageError(f"rank must be in 0 .. {ranks - 1}; got {rank}")
        if virtual_ranks is not None and virtual_ranks < ranks:
            raise UsageError(f"a step must have a mini-batch for each rank: got {virtual_ranks} with {ranks} ranks; use {ranks} or more")
        check_bulk_size(bulk_size, memory_budget)
        check_switches(shuffle=shuffle, drop_last=drop_last, prefetch=prefetch, even=even)
        if groups is not None and getattr(sampler, "coverage", False):
            raise UsageError("coverage counts subgraphs whose roots are drawn from all seeds; got seed_locality: use coverage=0")
        sampler.check(adjacency)
        self._adjacency = adjacency
        self._seeds = seed_ids(seeds, adjacency.n)
        self._stream, self._shuffle = Stream(seed), bool(shuffle)
        self._sampler = sampler.prepared(adjacency, self._seeds, batch_size, self._stream) if hasattr(sampler, "prepared") else sampler
        self._batch_size = batch_size
        self.prefetches, self._handed = prefetch, handed
        self.grows = prefetch and bulk_size == "auto"  # an epoch begins with bulks of 1, 2, 4, ... mini-batches
        self._most: int | None = None  # mini-batches sampled in one call, once a bulk of k took more memory than there is
        self._groups = groups
        if groups is None:
            minibatches, count = len(self._seeds) // batch_size if drop_last else -(-len(self._seeds) // batch_size), 1
        else:
            minibatches, count = groups.minibatches(batch_size, drop_last), groups.count
        self._whole = EpochShare(minibatches, rank, ranks, even, drop_last, virtual=virtual_ranks or ranks, groups=count)
        self._position = Position(self._whole)
        self.wait_seconds = 0.0  # spent waiting for samples
        self.ready = 0  # mini-batches, or None, of the present bulk that an iteration has not yielded yet
        self.bulks_left = 0  # of the iteration, after the present one; 2 stands for more
        self._like = self._probe() if bulk_size == "auto" else None
        self.bulk_size = bulk_size if bulk_size != "auto" else self._fitting(memory_budget)

    def _kept(self) -> dict[str, Any]:
        return super()._kept() | {"ready": 0, "bulks_left": 0}  # without an iteration that is under way

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch, over all ranks."""
        return min(self._whole.minibatches, self.steps * self._whole.together)

    @property
    def examples(self) -> int:
        """Number of examples in an epoch: the seeds, as often as they were given."""
        return len(self._seeds)

    @property
    def steps(self) -> int:
        """Number of steps in an epoch, the same on every rank."""
        return self._whole.steps

    @property
    def slots(self) -> int:
        """Number of mini-batches, or None, that this loader yields in a step; the same on every rank."""
        return self._whole.slots

    @property
    def predicted_bytes(self) -> int:
        """Predicted peak bytes of sampling; 0 if `bulk_size` was given and the adjacency predicts nothing."""
        return self._expected_bytes(self.bulk_size)

    @property
    def bytes_per_minibatch(self) -> int:
        """Bytes in memory of the first mini-batch, which ``bulk_size="auto"`` samples to choose k; 0 if `bulk_size` was given."""
        return self._like.nbytes() if self._like is not None else 0

    def _expected_bytes(self, k: int) -> int:
        """Predict the peak bytes of bulks of k mini-batches.

        The adjacency's own prediction is used if it has one; else the sum of the bulks and their tables.
        """
        if isinstance(self._sampler, NodeWise):
            sampler = self._sampler
            known = self._adjacency.bulk_bytes(k, k * self._batch_size, sampler.fanouts, sampler.frontier == "new")
            if known is not None:
                return known
        if self._like is None:
            return 0
        tables = self._sampler.table_bytes(self._adjacency, k, self._like)
        return int(COPIES * k * self.bytes_per_minibatch) + tables

    @property
    def epoch(self) -> int:
        """The current epoch, from 0. Set it to take that epoch, from its start, in the next iteration."""
        return self._position.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._position.epoch = epoch

    @property
    def coming(self) -> tuple[int, int, int]:
        """The epoch of the next iteration, its first step, and the first mini-batch of the steps of that epoch."""
        return self._position.coming

    def __iter__(self) -> Generator[MiniBatch | None, None, None]:
        """Iterate over the steps of one epoch; afterwards the loader stands at the start of the next.

        As with torch's `DataLoader`, every iteration begins an epoch: if the last one was left early, the next epoch begins. After
        `load_state_dict`, and in a process forked meanwhile, an iteration goes on in the middle of an epoch. One thread iterates at a time,
        else `UsageError` is raised.
        """
        return self.in_turn(self._steps())

    def in_turn(self, steps: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the steps of an iteration, and keep other threads from beginning one; see `Position.in_turn`."""
        return self._position.in_turn(steps)

    def _steps(self) -> Generator[MiniBatch | None, None, None]:
        begun, self.ready = self._position.begin(), 0
        bulks = self._bulks(self._order(begun.epoch), begun.epoch)
        while True:
            began = time.perf_counter()
            start, bulk = next(bulks, (0, None))
            self.wait_seconds += time.perf_counter() - began
            if bulk is None:
                break
            for offset, minibatch in enumerate(bulk):
                self.ready = len(bulk) - offset - 1
                self._position.use(begun, (start + offset + 1) // self.slots)
                yield minibatch
        self._position.end(begun)

    def _bulks(self, order: Order, epoch: int) -> Iterator[tuple[int, list[MiniBatch | None]]]:
        """Yield the first slot and the mini-batches of each remaining bulk."""
        spans, share = self._spans(), self._position.share
        coming = deque(islice(spans, 2))
        if not self.prefetches:
            while coming:
                span = coming.popleft()
                coming.extend(islice(spans, 1))
                bulk = self._sample(order, epoch, span, share)
                self.bulks_left = len(coming)
                yield span.start, bulk
            return
        with Prefetcher(1, "sampler") as thread:
            waiting = [thread.submit(self._sample, order, epoch, span, share) for span in islice(coming, 1)]
            while coming:
                span = coming.popleft()
                coming.extend(islice(spans, 1))
                bulk = waiting.pop()()
                waiting += [thread.submit(self._sample, order, epoch, following, share) for following in islice(coming, 1)]
                self.bulks_left = len(coming)
                yield span.start, bulk

    def _spans(self) -> Iterator[range]:
        """Yield the slots of each remaining bulk."""
        sizes = growing(self.bulk_size) if self.grows else repeat(self.bulk_size)
        start, slots = self._position.step * self.slots, self._position.share.steps * self.slots
        while start < slots:
            stop = min(start + next(sizes), slots)
            yield range(start, stop)
            start = stop

    @property
    def bare_position(self) -> dict[str, Any]:
        """The position in the epoch: `state_dict` without what the mini-batches depend on, which reads all seeds at first."""
        return self._position.state({})

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader, ready for JSON; the mini-batch yielded last counts as consumed."""
        return self._position.state(self._identity)

    def repeats(self, position: dict[str, Any], later: int = 0) -> bool:
        """Return True if a mini-batch repeats one of its epoch (see `even`): the last one used at a position, or one some steps later."""
        return replace(self._whole, first=position["first"]).repeats(position["step"] - 1 + later)

    def load_state_dict(self, state: dict[str, Any], onward: bool = False) -> None:
        """Continue from a position that `state_dict` returned, on the same or on another number of ranks.

        After the last mini-batch of an epoch, an iteration yields the rest of it, nothing; with `onward`, the next epoch.

        Raises
        ------
        UsageError
            If the state was saved with another graph, other seeds, batch size or random seed: the mini-batches would differ. If it is
            no state, or names a step that an epoch does not have.

        Notes
        -----
        On another number of ranks, the remaining mini-batches of the epoch are distributed anew; the epochs after it are as usual.
        States of a graph in block rows do not name the graph, nor do those of earlier versions; they are accepted.
        """
        self._position.load(state, self._identity, onward)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """The arguments on which the mini-batches depend, as far as a state names them."""
        graph = self._adjacency.fingerprint
        return {
            "seeds": hashlib.sha256(np.ascontiguousarray(self._seeds).data).hexdigest(),
            "sampler": self._sampler.identity,
            "batch_size": self._batch_size,
            "random_seed": int(self._stream.seed),
            "shuffle": self._shuffle,
            "minibatches": self._whole.minibatches,
            **({} if graph is None else {"graph": graph}),
            **({} if self._groups is None else {"seed_locality": self._groups.identity}),
        }

    def _order(self, epoch: int) -> Order:
        """Return the order of an epoch; it takes no time or memory that grows with the number of examples."""
        if self._groups is not None:
            return self._groups.shuffled(self._stream, epoch) if self._shuffle else self._groups.in_order
        return Shuffle(self._stream, len(self._seeds), epoch).at if self._shuffle else np.asarray

    def _span(self, minibatch: int) -> range:
        """Return the places of the examples of a mini-batch in the order of the epoch."""
        if self._groups is not None:
            return self._groups.span(minibatch, self._batch_size)
        return range(minibatch * self._batch_size, min((minibatch + 1) * self._batch_size, len(self._seeds)))

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        """Return the examples at some positions of their list."""
        return np.asarray(self._seeds[positions])

    def _sample(self, order: Order, epoch: int, slots: range, share: EpochShare) -> list[MiniBatch | None]:
        """Sample this rank's mini-batches of some slots; None where it has none."""
        ids = [share.id(slot) for slot in slots]
        own = [i for i in ids if i is not None]
        places = [np.arange(span.start, span.stop) for span in map(self._span, own)]
        found = self._examples(order(np.concatenate([np.empty(0, np.int64), *places])))
        examples = [found[first:last] for first, last in pairwise(row_pointers([len(part) for part in places]))]
        seeds = self._selected(examples, np.array(own, np.int64), epoch)
        self._adjacency.at(f"from step {slots.start // self.slots} of epoch {epoch}")
        sampled = iter(self._sample_bulk(seeds, epoch))
        return [None if i is None else next(sampled) for i in ids]

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> Selection:
        """Return the seeds of mini-batches, given the examples of each."""
        return Selection.of([self._seeds_of(part, epoch) for part in examples], self._adjacency.n, minibatches)

    def _seeds_of(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        """Return the seeds that some examples need; here the examples are the seeds."""
        return examples

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[MiniBatch]:
        """Sample the mini-batches of a bulk in one call; once memory has run out, in calls of half as many."""
        most = self._most  # two iterations have two threads that sample
        if most is None:
            try:
                return self._handed(self._sampler.sample_bulk(self._adjacency, seeds, self._stream, epoch))
            except MemoryError as error:
                if len(seeds) < 2 or self._adjacency.collective:  # ranks that sample together keep their bulks alike
                    raise
                self._most = most = -(-len(seeds) // 2)
                failure = f"out of memory with {minibatches_in_words(len(seeds))} in a bulk ({error})"
                warnings.warn(f"{failure}: going on with {most}; use a lower bulk_size", stacklevel=2)
        pieces = [seeds.parts(first, first + most) for first in range(0, len(seeds), most)]
        return [m for piece in pieces for m in self._handed(self._sampler.sample_bulk(self._adjacency, piece, self._stream, epoch))]

    def _probe(self) -> MiniBatch | None:
        """Sample this rank's first mini-batch; None if it has none."""
        last = self.slots - 1  # of the first step: every rank has a mini-batch there, unless the epoch ends
        return self._sample(self._order(0), 0, range(last, last + 1), self._whole)[0] if self.steps else None

    def _fitting(self, budget: int | None) -> int:
        if budget is None:
            budget = free_memory() // 4
        return next((k for k in range(min(AUTO_LIMIT, self.steps * self.slots), 1, -1) if self._expected_bytes(k) <= budget), 1)


def in_bulks(loader: BulkLoader, steps: int | None = None) -> Iterator[list[MiniBatch | None]]:
    """Yield lists of the mini-batches that were sampled together, None where this rank has none: of so many steps, or of the epoch."""
    bulk: list[MiniBatch | None] = []
    for step, minibatch in enumerate(islice(loader, steps), 1):
        bulk.append(minibatch)
        if not loader.ready or step == steps:
            yield bulk
            bulk = []
