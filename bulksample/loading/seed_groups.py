"""Groups of seeds that lie near each other: the choice that mini-batches are local to a part of the graph.

The m seeds, sorted by their places in part order, are cut into G groups of sizes that differ by one at most; larger groups come first.
Every group shuffles its own seeds in each epoch (`shuffle`), and mini-batch number t G + g takes seeds t b .. (t + 1) b - 1 of group g.
This law depends on G and the part order, not on the number of ranks. Each seed comes once an epoch, and G mini-batches with equal t are a
stratified sample of the seeds.

Equal groups, whose surplus other parts take over, follow `node_split(force_even=True)` of DistDGL: Zheng et al., IA3 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

import numpy as np

from ..errors import UsageError
from ..pickled import Rebuilt
from ..rng import Stream
from ..shuffle import Shuffle


@dataclass(frozen=True, eq=False)
class SeedGroups(Rebuilt):
    """The G groups of m seeds.

    Parameters
    ----------
    count : int
        G.
    places : integers, shape (m,)
        The place of each seed in part order. Seeds with equal places keep their order.

    Attributes
    ----------
    order : int64, shape (m,)
        The positions of the seeds in part order, group after group.

    Raises
    ------
    UsageError
        If there are fewer seeds than groups, or the count is not positive.
    """

    count: int
    places: np.ndarray
    order: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1:
            raise UsageError(f"seed_locality must be a positive whole number; got {self.count!r}")
        if self.count > len(self.places):
            raise UsageError(f"seed_locality {self.count} needs as many seeds; got {len(self.places)}: use a lower one")
        object.__setattr__(self, "order", np.argsort(self.places, kind="stable"))

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the groups in part order: int64, shape (G + 1,)."""
        each, more = divmod(len(self.places), self.count)
        group = np.arange(self.count + 1)
        return each * group + np.minimum(group, more)

    def members(self, groups: range) -> np.ndarray:
        """Return the positions of the seeds of consecutive groups: int64."""
        return self.order[self.bounds[groups.start] : self.bounds[groups.stop]]

    def minibatches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of mini-batches in an epoch. Larger groups come first, so their numbers have no gap."""
        sizes = np.diff(self.bounds)
        return int((sizes // batch_size if drop_last else -(-sizes // batch_size)).sum())

    def span(self, minibatch: int, batch_size: int) -> range:
        """Return the places of the seeds of a mini-batch in an epoch, which holds group after group."""
        t, g = divmod(minibatch, self.count)
        first = int(self.bounds[g]) + t * batch_size
        return range(first, min(first + batch_size, int(self.bounds[g + 1])))

    def in_order(self, places: np.ndarray) -> np.ndarray:
        """Return the positions of the seeds at some places of an epoch that is not shuffled: int64."""
        return np.asarray(self.order[places])

    def shuffled(self, stream: Stream, epoch: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return the order of an epoch in which each group is shuffled: the positions of the seeds at some places, int64."""

        @cache
        def of_group(group: int) -> Shuffle:
            return Shuffle(stream, int(self.bounds[group + 1] - self.bounds[group]), epoch, group)

        def at(places: np.ndarray) -> np.ndarray:
            groups = np.searchsorted(self.bounds, places, side="right") - 1
            within = places - self.bounds[groups]
            for group in np.unique(groups).tolist():
                own = np.flatnonzero(groups == group)
                within[own] = of_group(group).at(within[own])
            return self.in_order(self.bounds[groups] + within)

        return at

    @property
    def identity(self) -> str:
        """G and a hash of the groups: loaders with equal ones group the same seeds."""
        return f"{self.count} groups {hashlib.sha256(self.order.astype('<i8').tobytes()).hexdigest()}"


@dataclass(frozen=True)
class Ungrouped:
    """All m examples as one group, in the order of their list. No method takes time or memory that grows with m."""

    size: int
    count: ClassVar[int] = 1
    identity: ClassVar[None] = None

    def minibatches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of mini-batches in an epoch."""
        return self.size // batch_size if drop_last else -(-self.size // batch_size)

    def span(self, minibatch: int, batch_size: int) -> range:
        """Return the places of the examples of a mini-batch in an epoch."""
        return range(minibatch * batch_size, min((minibatch + 1) * batch_size, self.size))

    def in_order(self, places: np.ndarray) -> np.ndarray:
        """Return the positions of the examples at some places of an epoch that is not shuffled."""
        return places

    def shuffled(self, stream: Stream, epoch: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return the order of a shuffled epoch."""
        return Shuffle(stream, self.size, epoch).at
