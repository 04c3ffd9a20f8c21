"""The loader of sampled mini-batches: seeds, a sampler and an adjacency, iterated over by the engine of `epochs`."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np

from ..adjacency import Adjacency
from ..errors import UsageError, check_switches, is_whole
from ..graph.minibatch import MiniBatch
from ..graph.seed_list import SeedList
from ..graph.selection import Selection, seed_ids
from ..rng import Stream
from ..samplers import AnySampler, NodeWise
from .bulk_sizes import COPIES, check_bulk_size, fitting
from .division import EpochShare, Order, Passes, SeedGroups, minibatches_in_words
from .epochs import Epochs, Step
from .weighted_seeds import WeightedSeeds


class BulkLoader(Epochs[MiniBatch | None]):
    """A loader that iterates over the mini-batches of one epoch after another.

    Parameters
    ----------
    adjacency : Adjacency
    sampler : Sampler
    seeds : integers of shape (m,), booleans of shape (n,), or SeedList
        The seeds, as ids or as a mask; ids may repeat. An array of int32 that nobody can write, such as a file mapped to be read, is not
        copied. A list of several types, or with times, is a `SeedList`: one order over the seeds of all types.
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
    sampling_weights : numbers of shape (m,), optional
        Draw the m seeds of an epoch with replacement, each with a chance in proportion to its weight, in place of each once; see
        `weighted_seeds`.
    steps_per_epoch : int, optional
        Make exactly so many steps in an epoch, whatever the number of seeds: the seeds go on where the epoch before ended, one pass over
        them after another, each in an order of its own; see `division.Passes`.
    rank, ranks : int
        At step t this loader yields mini-batch ``t * ranks + rank``, or None if the epoch has no such mini-batch: all ranks make the same
        number of steps.
    virtual_ranks : int, optional
        W, the mini-batches of a step of all ranks; by default `ranks`. If there are more, this loader yields those of its rank one after
        another, `slots` a step, and None in place of those that a rank with a smaller share lacks; see `division`.
    even : bool
        Yield a mini-batch at every step of every rank: repeat the first ones of the epoch where there would be None, or, with
        `drop_last`, leave out the last ones.
    groups : SeedGroups, optional
        Take each mini-batch from one of G groups of seeds; G divides `virtual_ranks`, or is a multiple. See `division` for the
        mini-batches of a rank: number `rank` should hold the parts in place `rank` of part order.
    memory_budget : int, optional
        Bytes for sampled mini-batches; by default a quarter of the free memory. If memory runs out while the graph lies in this process,
        the loader warns, and samples this and later bulks in halves.
    prefetch : bool
        Sample the next bulk on a thread while the current one is consumed.
    transform : callable
        Transforms the mini-batches of a bulk before they are yielded, on the thread that sampled them.
    seed_types : tuple of str
        Yield mini-batches with one list of the seeds of these types; see `MiniBatch`.

    Raises
    ------
    UsageError
        If the adjacency or the sampler is none, a seed is not a vertex, a number is out of range, a switch is no bool, or the sampler asks
        for times that the seeds lack.
    """

    def __init__(
        self, adjacency: Adjacency, sampler: AnySampler, seeds: Any, *, batch_size: int, bulk_size: int | Literal["auto"] = "auto",
        seed: int = 0, shuffle: bool = True, drop_last: bool = False, sampling_weights: Any = None, steps_per_epoch: int | None = None,
        rank: int = 0, ranks: int = 1, virtual_ranks: int | None = None, even: bool = False, groups: SeedGroups | None = None,
        memory_budget: int | None = None, prefetch: bool = True,
        transform: Callable[[list[MiniBatch]], list[MiniBatch]] = list, seed_types: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        if not isinstance(adjacency, Adjacency):
            raise UsageError(f"adjacency: got a {type(adjacency).__name__}; use LocalAdjacency(graph, backends.make())")
        if not isinstance(sampler, AnySampler):
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
        if steps_per_epoch is not None and not is_whole(steps_per_epoch):
            raise UsageError(f"steps_per_epoch must be a positive whole number; got {steps_per_epoch!r}")
        if steps_per_epoch is not None and groups is not None:
            raise UsageError(f"steps_per_epoch goes on in the order of all seeds; got seed_locality {groups.count}: leave one out")
        if sampling_weights is not None and (groups is not None or not shuffle):
            found = "shuffle False" if groups is None else f"seed_locality {groups.count}"
            raise UsageError(f"sampling_weights draws seeds at random among all; got {found}: leave one out")
        if sampling_weights is not None and sampler.adds_seeds:
            raise UsageError(f"seeds are drawn by weight, and {sampler.name} adds seeds of its own, which are not; use another sampler")
        if groups is not None and sampler.coverage:
            raise UsageError("coverage counts subgraphs whose roots are drawn from all seeds; got seed_locality: use coverage=0")
        sampler.check(adjacency)
        self._adjacency = adjacency
        self._list = seeds if isinstance(seeds, SeedList) else None
        self._seeds = seed_ids(seeds, adjacency.n) if self._list is None else self._list.vertices
        if sampler.time is not None and (self._list is None or self._list.times is None):
            raise UsageError("time counts in this sampler, but the seeds have no times; give the time of each seed")
        self._stream, self._shuffle = Stream(seed), bool(shuffle)
        self._sampler = sampler.prepared(adjacency, self._seeds, batch_size, self._stream)
        self.batch_size, self.prefetches, self._transform, self._seed_types = batch_size, prefetch, transform, seed_types
        self.grows = prefetch and bulk_size == "auto"
        self._most: int | None = None  # mini-batches sampled in one call, once a bulk of k took more memory than there is
        if sampling_weights is not None and len(self._seeds):
            self._sampling_weights = WeightedSeeds(sampling_weights, len(self._seeds))
        self._groups = SeedGroups.whole(len(self._seeds)) if groups is None else groups
        count, virtual = self._groups.minibatches(batch_size, drop_last), virtual_ranks or ranks
        if steps_per_epoch is not None and count:
            self._passes = passes = Passes(int(steps_per_epoch) * virtual, count)
            count = passes.each
        self._whole = EpochShare(count, rank, ranks, even, drop_last, virtual=virtual, groups=self._groups.count)
        self._probed = bulk_size == "auto"
        self._like = self._probe() if self._probed else None
        self.bulk_size = fitting(self._expected_bytes, self.steps * self.slots, memory_budget) if bulk_size == "auto" else bulk_size

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch, over all ranks."""
        return min(self._whole.minibatches, self.steps * self._whole.together)

    @property
    def by_type(self) -> bool:
        """True if mini-batches are by type and relation."""
        return self._adjacency.by_type

    @property
    def examples(self) -> int:
        """Number of examples in an epoch: the seeds, as often as they were given."""
        return len(self._seeds)

    @property
    def steps(self) -> int:
        """Number of steps in an epoch, the same on every rank."""
        return self._whole.steps

    @property
    def predicted_bytes(self) -> int:
        """Predicted peak bytes of sampling; 0 if `bulk_size` was given and the adjacency predicts nothing."""
        return self._expected_bytes(self.bulk_size)

    @property
    def bytes_per_minibatch(self) -> int:
        """Bytes in memory of the first mini-batch, which ``bulk_size="auto"`` samples to choose k; 0 if `bulk_size` was given."""
        return self._like.nbytes() if self._like is not None else 0

    def _expected_bytes(self, k: int) -> int:
        """Predict the peak bytes of bulks of k mini-batches: as the adjacency does, or else the sum of the bulks and their tables."""
        if isinstance(self._sampler, NodeWise):
            sampler = self._sampler
            known = self._adjacency.bulk_bytes(k, k * self.batch_size, sampler.fanouts, sampler.frontier == "new")
            if known is not None:
                return known
        if self._like is None:
            return 0
        tables = self._sampler.table_bytes(self._adjacency, k, self._like)
        return int(COPIES * k * self.bytes_per_minibatch) + tables

    def first(self) -> MiniBatch | None:
        """Return this rank's mini-batch in the last slot of the first step, which may be sampled for it; None if it has none there.

        Collective if sampling is.
        """
        return self._like if self._probed else self._probe()  # a rank without one must not sample again alone

    def number_late(self) -> None:
        """Leave vertices of the last hop without numbers until they are asked for, where sampler and adjacency can."""
        if isinstance(self._sampler, NodeWise):
            self._sampler = replace(self._sampler, numbered=False)

    def repeats(self, position: dict[str, Any]) -> bool:
        """Return True if the last mini-batch used at a position repeats one of its epoch; see `even`."""
        return replace(self._whole, first=position["first"]).repeats(position["step"] - 1)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        seeds = hashlib.sha256(np.ascontiguousarray(self._seeds).data).hexdigest()
        by_type = self._adjacency.by_type
        weights = None if self._sampling_weights is None else self._sampling_weights.identity
        hashes = {"graph": self._adjacency.fingerprint, "seed_locality": self._groups.identity, "sampling_weights": weights}
        named = {"seeds": seeds, "sampler": self._sampler.identity_by_type if by_type else self._sampler.identity} | super()._identity
        if self._list is not None:
            named["times"] = self._list.hash_of_times()
        return named | {name: value for name, value in hashes.items() if value is not None}

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        """Return the examples at some positions of their list: seeds, or their positions in a `SeedList`."""
        return np.asarray(self._seeds[positions]) if self._list is None else positions

    def _sample_steps(self, steps: list[Step], epoch: int, order: Order) -> list[MiniBatch | None]:
        self._adjacency.at(f"from step {steps[0].slot // self.slots} of epoch {epoch}")
        return super()._sample_steps(steps, epoch, order)

    def _bulk(self, examples: list[np.ndarray], ids: list[int], epoch: int) -> list[MiniBatch]:
        chosen = [self._examples(positions) for positions in examples]
        return self._sample_bulk(self._selected(chosen, np.array(ids, np.int64), epoch), epoch)

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> Selection:
        """Return the seeds of mini-batches, given the examples of each."""
        if self._list is not None:
            return self._list.select(examples, minibatches)
        return Selection.of(examples, self._adjacency.n, minibatches)

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        """Sample the mini-batches of a bulk in one call; once memory has run out, in calls of half as many."""
        most = self._most  # two iterations have two threads that sample
        if most is None:
            try:
                return self._sample_once(seeds, epoch)
            except MemoryError as error:
                if len(seeds) < 2 or self._adjacency.collective:  # ranks that sample together keep their bulks alike
                    raise
                self._most = most = -(-len(seeds) // 2)
                failure = f"out of memory with {minibatches_in_words(len(seeds))} in a bulk ({error})"
                warnings.warn(f"{failure}: going on with {most}; use a lower bulk_size", stacklevel=2)
        pieces = [seeds.parts(first, first + most) for first in range(0, len(seeds), most)]
        return [m for piece in pieces for m in self._sample_once(piece, epoch)]

    def _sample_once(self, seeds: Selection, epoch: int) -> list[MiniBatch]:
        """Sample mini-batches in one call, and return them in the form that this loader yields."""
        made = self._transform(self._sampler.sample_bulk(self._adjacency, seeds, self._stream, epoch))
        return [replace(one, seed_types=self._seed_types) for one in made] if self._seed_types else made

    def _probe(self) -> MiniBatch | None:
        """Sample this rank's first mini-batch; None if it has none."""
        last = self.slots - 1  # of the first step: every rank has a mini-batch there, unless the epoch ends
        return self._sample_steps([Step(last, self._whole.id(last))], 0, self._order(0))[0] if self.steps else None


def in_bulks(loader: BulkLoader, steps: int | None = None) -> Iterator[list[MiniBatch | None]]:
    """Yield lists of the mini-batches that were sampled together, None where this rank has none: of so many steps, or of the epoch."""
    bulk: list[MiniBatch | None] = []
    for step, minibatch in enumerate(islice(loader, steps), 1):
        bulk.append(minibatch)
        if not loader.ready or step == steps:
            yield bulk
            bulk = []
