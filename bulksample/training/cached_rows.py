"""The rows of features that a rank caches: by degree, by counts of first mini-batches, or by the probability of inclusion."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from ..adjacency import Adjacency
from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.matrix.layout import Layout
from ..distributed.matrix.open_graph import count_references
from ..distributed.matrix.placement import Placement
from ..errors import UsageError
from ..loader import BulkLoader
from ..position import EpochShare
from ..samplers import Sampler
from ..samplers.inclusion import check_inclusion, inclusion_probability
from ..seed_groups import SeedGroups
from ..sparse import CSR

COUNTED = 8  # mini-batches that each rank samples to count accesses of features


class CachedRows(NamedTuple):
    """The choice of cached rows, as `RowExchange` takes it: the same on all ranks by their counts, or the places that this rank wants."""

    access_count: np.ndarray | None = None
    wanted: np.ndarray | None = None


class Share(NamedTuple):
    """This rank's share of the mini-batches: the ranks, W, the sampler, and the layout of the features."""

    config: TrainOptions
    placement: Placement
    comm: Comm
    virtual_ranks: int
    sampler: Sampler
    layout: Layout

    def groups(self, seeds: np.ndarray) -> SeedGroups | None:
        """Return the groups of the seeds, if mini-batches are drawn from groups."""
        count = self.config.seed_locality
        return SeedGroups(count, self.layout.part_order(seeds)) if count else None

    @property
    def place(self) -> int:
        """The number of this rank among those that share the mini-batches; see `TrainingContext`."""
        return self.placement.place(self.comm) if self.config.seed_locality else self.comm.rank


def check_cache(config: TrainOptions, placement: Placement, sampler: Sampler) -> None:
    """Raise `UsageError` if the rows of a cache cannot be chosen as asked."""
    if config.cache_bytes and config.task == "links" and config.cache_by != "degree":
        raise UsageError(f"cache_by {config.cache_by} counts mini-batches of seeds; got task links: use cache_by degree")
    if config.cache_bytes and config.cache_by == "inclusion":
        check_inclusion(sampler)
        if placement.partitioned:
            raise UsageError(
                "cache_by inclusion multiplies with the whole adjacency; got topology partitioned: use topology replicated with features "
                "partitioned, or cache_by frequency"
            )


def rows_by_frequency(share: Share, adjacency: Adjacency, seeds: np.ndarray, column: Comm) -> CachedRows:
    """Count the vertices of this rank's first mini-batches; collective if the adjacency is.

    Without groups of seeds all ranks cache the same rows: each sends 8 n bytes of counts to the owners in the process column.
    """
    config, groups = share.config, share.groups(seeds)
    loader = BulkLoader(
        adjacency, share.sampler, seeds, batch_size=config.batch_size, bulk_size=COUNTED, seed=config.seed, rank=share.place,
        ranks=share.comm.size, virtual_ranks=share.virtual_ranks if groups else None, groups=groups, prefetch=False,
    )  # fmt: skip
    first = [minibatch.vertices for minibatch in islice(loader, COUNTED) if minibatch is not None]
    drawn = np.concatenate([np.empty(0, np.int32), *first])
    if groups is None:
        return CachedRows(count_references(column, share.layout, drawn))
    places, counts = np.unique(share.layout.places(drawn), return_counts=True)
    return CachedRows(wanted=places[_by_score(counts)])


def rows_by_inclusion(share: Share, a: CSR, seeds: np.ndarray) -> CachedRows:
    """Order the vertices by the probability to be in a mini-batch of this rank; sends nothing."""
    groups, ranks = share.groups(seeds), share.comm.size
    if groups is not None:
        own = EpochShare(0, share.place, ranks, virtual=share.virtual_ranks, groups=groups.count).own_groups
        seeds = seeds[groups.members(own)]
    score = inclusion_probability(a, share.sampler, seeds, share.config.batch_size)
    return CachedRows(wanted=share.layout.places(_by_score(score)))


def _by_score(score: np.ndarray) -> np.ndarray:
    """Return the rows with positive scores, the highest first; of equal ones the lower id first: int64."""
    order = np.argsort(-score, kind="stable")
    return order[: np.count_nonzero(score > 0)]
