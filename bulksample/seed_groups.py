"""Groups of seeds that lie near each other: the choice that mini-batches are local to a part of the graph.

The m seeds, sorted by their places in part order, are cut into G groups of sizes that differ by one at most; larger groups come first.
Every group permutes its own seeds in each epoch, and mini-batch number t G + g takes seeds t b .. (t + 1) b - 1 of group g. This law
depends on G and the part order, not on the number of ranks. Each seed comes once an epoch, and G mini-batches with equal t are a
stratified sample of the seeds.

Equal groups, whose surplus other parts take over, follow `node_split(force_even=True)` of DistDGL: Zheng et al., IA3 2020.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .errors import UsageError


@dataclass(frozen=True, eq=False)
class SeedGroups:
    """The G groups of m seeds.

    Parameters
    ----------
    count : int
        G.
    places : integers, shape (m,)
        The place of each seed in part order. Seeds with equal places keep their order.

    Raises
    ------
    UsageError
        If there are fewer seeds than groups, or the count is not positive.
    """

    count: int
    places: np.ndarray

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int | np.integer) or self.count < 1:
            raise UsageError(f"seed_locality must be a positive whole number; got {self.count!r}")
        if self.count > len(self.places):
            raise UsageError(f"seed_locality {self.count} needs as many seeds; got {len(self.places)}: use a lower one")

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the groups in part order: int64, shape (G + 1,)."""
        each, more = divmod(len(self.places), self.count)
        group = np.arange(self.count + 1)
        return each * group + np.minimum(group, more)

    @cached_property
    def order(self) -> np.ndarray:
        """The positions of the seeds in part order, group after group: int64, shape (m,)."""
        return np.argsort(self.places, kind="stable")

    def members(self, groups: range) -> np.ndarray:
        """Return the positions of the seeds of consecutive groups: int64."""
        return self.order[self.bounds[groups.start] : self.bounds[groups.stop]]

    def minibatches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of mini-batches in an epoch. Larger groups come first, so their numbers have no gap."""
        sizes = np.diff(self.bounds)
        return int((sizes // batch_size if drop_last else -(-sizes // batch_size)).sum())

    def permuted(self, permutation: np.ndarray) -> np.ndarray:
        """Return the positions of a permutation of 0 .. m - 1, group after group, in the order of the permutation: int64, shape (m,)."""
        group = np.empty(len(permutation), np.int64)
        group[self.order] = np.repeat(np.arange(self.count), np.diff(self.bounds))
        return np.asarray(permutation[np.argsort(group[permutation], kind="stable")])

    def span(self, minibatch: int, batch_size: int) -> slice:
        """Return where the seeds of a mini-batch lie in what `permuted` returns, or in `order`."""
        t, g = divmod(minibatch, self.count)
        first = int(self.bounds[g]) + t * batch_size
        return slice(first, min(first + batch_size, int(self.bounds[g + 1])))

    @property
    def identity(self) -> str:
        """G and a hash of the groups: loaders with equal ones group the same seeds."""
        return f"{self.count} groups {hashlib.sha256(self.order.astype('<i8').tobytes()).hexdigest()}"
