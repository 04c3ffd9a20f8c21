"""The division of an epoch: the seeds into groups that lie near each other, and the mini-batches among ranks.

The m seeds, sorted by their places in part order, are cut into G groups of sizes that differ by one at most; larger groups come first.
Every group shuffles its own seeds in each epoch (`shuffle`), and mini-batch number t G + g takes seeds t b .. (t + 1) b - 1 of group g.
This law depends on G and the part order, not on the number of ranks. Each seed comes once an epoch, and G mini-batches with equal t are a
stratified sample of the seeds.

    step t of rank r of p:   mini-batch f + t p + r,   f = the mini-batches that all ranks had used when p ranks took over

A mini-batch's number does not depend on p, so a state that names how many were used fits any p.

A step may also hold W >= p mini-batches, those of W virtual ranks; then rank r takes a consecutive share of them, one in a slot:

    step t of rank r of p:   mini-batches f + t W + v,   floor(r W / p) <= v < floor((r + 1) W / p)

All ranks have as many slots as the largest share; a rank with a smaller one has nothing in its first slots.

Mini-batches of groups go to the ranks that hold the parts of these groups. If W = k G, a rank takes consecutive ones of the W virtual ranks
in the order of their groups v mod G. If G = k W, k steps take the mini-batches of the groups: virtual rank v those of the groups
v k .. (v + 1) k - 1 in turn. With G = 1 this is the rule above.

Equal groups, whose surplus other parts take over, follow `node_split(force_even=True)` of DistDGL: Zheng et al., IA3 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..pickled import Rebuilt
from ..rng import Stream
from ..shuffle import Shuffle

_LISTED = 8  # numbers of ranks at most that a message lists


@dataclass(frozen=True, eq=False)
class SeedGroups(Rebuilt):
    """The G groups of m seeds, given the place of each seed in part order; seeds with equal places keep their order.

    If the places are a range, all seeds are one group in the order of their list, and no method takes time or memory that grows with m.
    Raises `UsageError` if there are fewer seeds than groups, or the count is not positive.
    """

    count: int  # G
    places: np.ndarray | range  # integers, shape (m,)
    order: np.ndarray | None = field(init=False)  # int64, shape (m,): the positions of the seeds in part order; None: those of their list

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1:
            raise UsageError(f"seed_locality must be a positive whole number; got {self.count!r}")
        listed = isinstance(self.places, range)
        if self.count > len(self.places) and not listed:
            raise UsageError(f"seed_locality {self.count} needs as many seeds; got {len(self.places)}: use a lower one")
        object.__setattr__(self, "order", None if listed else np.argsort(self.places, kind="stable"))

    @staticmethod
    def whole(size: int) -> SeedGroups:
        """Return one group of all examples in the order of their list."""
        return SeedGroups(1, range(size))

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the groups in part order: int64, shape (G + 1,)."""
        each, more = divmod(len(self.places), self.count)
        group = np.arange(self.count + 1)
        return each * group + np.minimum(group, more)

    def members(self, groups: range) -> np.ndarray:
        """Return the positions of the seeds of consecutive groups: int64."""
        return self.in_order(np.arange(self.bounds[groups.start], self.bounds[groups.stop]))

    def minibatches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of mini-batches in an epoch. Larger groups come first, so their numbers have no gap."""
        sizes = np.diff(self.bounds)
        return int((sizes // batch_size if drop_last else -(-sizes // batch_size)).sum())

    def span(self, minibatch: int, batch_size: int) -> range:
        """Return the places of the seeds of a mini-batch in an epoch, which holds group after group."""
        if self.order is None:
            return range(minibatch * batch_size, min((minibatch + 1) * batch_size, len(self.places)))
        t, g = divmod(minibatch, self.count)
        first = int(self.bounds[g]) + t * batch_size
        return range(first, min(first + batch_size, int(self.bounds[g + 1])))

    def in_order(self, places: np.ndarray) -> np.ndarray:
        """Return the positions of the seeds at some places of an epoch that is not shuffled: int64."""
        return places if self.order is None else self.order[places]

    def shuffled(self, stream: Stream, epoch: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return the order of an epoch in which each group is shuffled: the positions of the seeds at some places, int64."""
        if self.order is None:
            return Shuffle(stream, len(self.places), epoch).at

        @cache
        def of_group(group: int) -> Shuffle:
            return Shuffle(stream, int(self.bounds[group + 1] - self.bounds[group]), epoch, group)

        def at(places: np.ndarray) -> np.ndarray:
            groups = np.searchsorted(self.bounds, places, side="right") - 1
            within = places - self.bounds[groups]
            for group in np.unique(groups).tolist():
                members = np.flatnonzero(groups == group)
                within[members] = of_group(group).at(within[members])
            return self.in_order(self.bounds[groups] + within)

        return at

    @property
    def identity(self) -> str | None:
        """G and a hash of the groups: loaders with equal ones group the same seeds. None if seeds keep the order of their list."""
        return None if self.order is None else f"{self.count} groups {hashlib.sha256(self.order.astype('<i8').tobytes()).hexdigest()}"


class Order(NamedTuple):
    """The order of the examples of one epoch: the places of each mini-batch, and the examples at some places."""

    span: Callable[[int], range]  # of the mini-batch with a number
    at: Callable[[np.ndarray], np.ndarray]  # from places to positions in the list of examples

    def __call__(self, places: np.ndarray) -> np.ndarray:
        return self.at(places)


@dataclass(frozen=True)
class Passes:
    """Epochs of a fixed number of mini-batches, whose examples go on where the epoch before ended, pass after pass over all examples.

        mini-batch i of epoch e:   mini-batch number (e n + i) mod M of pass floor((e n + i) / M)

    with n mini-batches in an epoch (`each`) and M in a pass (`whole`). Pass q has the order that epoch q has without a fixed number. So in
    any M mini-batches that follow each other from the start of a pass, each example comes once.
    """

    each: int
    whole: int

    def order(self, epoch: int, size: int, of_pass: Callable[[int], Order]) -> Order:
        """Return the order of an epoch, given that of each pass over `size` examples; its places count on over the passes of the epoch."""
        first, orders = epoch * self.each // self.whole, dict[int, Order]()

        def taken(number: int) -> Order:
            if number not in orders:
                orders[number] = of_pass(number)
            return orders[number]

        def span(minibatch: int) -> range:
            number, place = divmod(epoch * self.each + minibatch, self.whole)
            inside, before = taken(number).span(place), (number - first) * size
            return range(before + inside.start, before + inside.stop)

        def at(places: np.ndarray) -> np.ndarray:
            out, passes = np.empty(len(places), np.int64), places // size
            for number in np.unique(passes).tolist():
                of_this = passes == number
                out[of_this] = taken(first + number)(places[of_this] - number * size)
            return out

        return Order(span, at)


def minibatches_in_words(count: int) -> str:
    """Return ``1 mini-batch``, ``2 mini-batches``, and so on."""
    return f"{count} mini-batch{'es' * (count != 1)}"


@dataclass(frozen=True)
class EpochShare:
    """The mini-batches of one epoch that one rank takes.

    If `even`, it takes one at every step: the first ones repeat at the end of the epoch or, with `drop_last`, the last ones are left out.
    """

    minibatches: int  # M, of the whole epoch
    rank: int = 0
    ranks: int = 1
    even: bool = False
    drop_last: bool = False
    first: int = 0  # f, the number of the mini-batch that rank 0 takes at step 0
    virtual: int = 0  # W, the mini-batches of a step; 0 stands for p
    groups: int = 1  # G, the groups of seeds of consecutive mini-batches; it divides W, or W divides it

    def __post_init__(self) -> None:
        if self.together % self.groups and self.groups % self.together:
            fits = [p for p in range(1, self.groups + 1) if self.groups % p == 0]
            near = [p for p in fits if p < self.together][-1:] + [p for p in fits if p > self.together][:1]
            named = ", ".join(map(str, fits)) if len(fits) <= _LISTED else f"{' or '.join(map(str, near))} of them, another divisor"
            raise UsageError(
                f"seed_locality {self.groups} does not fit steps of {minibatches_in_words(self.together)}, one for each rank or virtual "
                f"rank; use {named}{' of them' * (len(fits) <= _LISTED)} or a multiple of {self.groups}"
            )

    @cached_property
    def together(self) -> int:
        """The mini-batches of a step, over all ranks."""
        return self.virtual or self.ranks

    @cached_property
    def own(self) -> range:
        """The virtual ranks whose mini-batches this rank takes."""
        return own_share(self.rank, self.ranks, self.together)

    @property
    def own_groups(self) -> range:
        """The groups of which this rank takes mini-batches: consecutive ones."""
        if self.cycle > 1:
            return range(self.own.start * self.cycle, self.own.stop * self.cycle)
        each = self.together // self.groups
        return range(self.own.start // each, (self.own.stop - 1) // each + 1)

    @cached_property
    def slots(self) -> int:
        """The number of mini-batches that a rank takes at most in a step."""
        return -(-self.together // self.ranks)

    @property
    def steps(self) -> int:
        """The number of steps, the same on every rank."""
        left, cycle = self.minibatches - self.first, self.cycle
        if self.even and self.drop_last:
            return left // (cycle * self.together) * cycle
        whole, rest = divmod(left, cycle * self.together)
        return whole * cycle + min(rest, cycle)

    @cached_property
    def cycle(self) -> int:
        """The number of steps that take a mini-batch of every group: G / W, or 1 if W is larger."""
        return max(1, self.groups // self.together)

    def id(self, slot: int) -> int | None:
        """Return the number of the mini-batch of a slot, counted over all steps; None if this rank has none there."""
        step, within = divmod(slot, self.slots)
        place = within - (self.slots - len(self.own))
        if place < 0:
            return None
        number = self._number(step, self.own[place])
        if number < self.minibatches:
            return number
        return number % self.minibatches if self.even else None

    def _number(self, step: int, virtual: int) -> int:
        """Return the number that the mini-batch of a virtual rank at a step has if there are that many."""
        turn, group = divmod(step, self.cycle)
        if self.cycle > 1:
            return self.first + turn * self.groups + virtual * self.cycle + group
        each = self.together // self.groups
        return self.first + step * self.together + virtual % each * self.groups + virtual // each

    def repeats(self, step: int) -> bool:
        """Return True if the mini-batch of a step is one that was taken before, for want of others."""
        return self._number(step, self.rank) >= self.minibatches


def own_share(rank: int, ranks: int, virtual: int) -> range:
    """Return the virtual ranks of a rank: consecutive ones. Shares of two ranks differ by one at most."""
    return range(rank * virtual // ranks, (rank + 1) * virtual // ranks)
