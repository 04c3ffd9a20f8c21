"""The loader of heterogeneous mini-batches: `BulkLoader` over a list of seeds of several types, with their times."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from functools import cached_property
from typing import Any, cast

import numpy as np

from ..errors import UsageError
from ..loader import BulkLoader
from .adjacency import RelationAdjacency
from .hgt import HGSampler
from .layers import UnionSampler
from .minibatch import HeteroMiniBatch
from .sampler import RelationSampler
from .seeds import HeteroSeeds, SeedList


class RelationLoader(BulkLoader):
    """A loader whose examples are the entries of a `SeedList`: one order over the seeds of all types.

    Parameters
    ----------
    adjacency : RelationAdjacency
    sampler : RelationSampler, UnionSampler or HGSampler
    seeds : SeedList
    **options
        Those of `BulkLoader`, from batch_size to transform.

    Raises
    ------
    UsageError
        If the sampler asks for times that the seeds lack, or an argument is out of range; see `BulkLoader`.
    """

    def __init__(
        self, adjacency: RelationAdjacency, sampler: RelationSampler | UnionSampler | HGSampler, seeds: SeedList, **options: Any
    ) -> None:
        if not isinstance(sampler, RelationSampler | UnionSampler | HGSampler):
            raise UsageError(f"sampler: got {sampler!r}; use a RelationSampler, a UnionSampler or an HGSampler")
        if isinstance(sampler, RelationSampler) and sampler.time is not None and seeds.times is None:
            raise UsageError("time counts in this sampler, but the seeds have no times; give the time of each seed")
        self._list = seeds
        super().__init__(adjacency, cast(Any, sampler), seeds.vertices, **options)

    def __iter__(self) -> Generator[HeteroMiniBatch | None, None, None]:  # type: ignore[override]
        """Iterate over the steps of one epoch; see `BulkLoader`."""
        return cast(Generator[HeteroMiniBatch | None, None, None], super().__iter__())

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        return positions

    def _selected(self, examples: list[np.ndarray], minibatches: np.ndarray, epoch: int) -> HeteroSeeds:
        return self._list.select(examples, minibatches)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        times = hashlib.sha256()
        for column in (self._list.times, self._list.starts):
            times.update(b"none" if column is None else column.tobytes())
        return {**super()._identity, "times": times.hexdigest()}
