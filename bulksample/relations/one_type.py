"""Heterogeneous mini-batches whose seeds are of one type, in the form of homogeneous ones: one list of seeds, one block a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from ..minibatch import Block
from ..selection import Selection
from .graph import Key
from .loader import RelationLoader
from .minibatch import HeteroMiniBatch, TypeRows


class RelationBlock(NamedTuple):
    """The edges of one layer.

    Parameters
    ----------
    relations : dict of Block by (source, name, destination)
    destinations : dict of int by type
        How many vertices of each type get new rows; they are the first of its list.
    """

    relations: Mapping[Key, Block]
    destinations: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class OneTypeMiniBatch:
    """A mini-batch of a heterogeneous graph with seeds of one type; its attributes mean what those of `MiniBatch` mean.

    Parameters
    ----------
    whole : HeteroMiniBatch
    seed_type : str
    """

    whole: HeteroMiniBatch
    seed_type: str
    seed_weights: None = None

    @property
    def id(self) -> int:
        return self.whole.id

    @property
    def epoch(self) -> int:
        return self.whole.epoch

    @property
    def _own(self) -> TypeRows:
        return self.whole.rows[self.seed_type]

    @property
    def seeds(self) -> np.ndarray:
        """The seeds within their type: int32, shape (b,)."""
        return self._own.seeds

    @property
    def seed_rows(self) -> np.ndarray:
        """The row of each seed in the output of the last layer: int32, shape (b,)."""
        return self._own.seed_rows

    @property
    def vertices(self) -> dict[str, np.ndarray]:
        """The vertices of each type: int32."""
        return self.whole.vertices

    @property
    def num_edges(self) -> int:
        """Number of sampled edges of all relations."""
        return self.whole.num_edges

    @cached_property
    def blocks(self) -> tuple[RelationBlock, ...]:
        """From the input layer to the output layer."""
        hops = len(self.whole.blocks)
        sizes = [{name: int(rows.sizes[hops - 1 - layer]) for name, rows in self.whole.rows.items()} for layer in range(hops)]
        return tuple(RelationBlock(*pair) for pair in zip(self.whole.blocks, sizes, strict=True))

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return self.whole.nbytes()

    def digest(self) -> str:
        """Return the SHA-256 of the mini-batch; see `HeteroMiniBatch.digest`."""
        return self.whole.digest()


class OneTypeLoader(RelationLoader):
    """A `RelationLoader` that yields `OneTypeMiniBatch`.

    Parameters
    ----------
    seed_type : str
        The type of all seeds.
    *arguments, **options
        Those of `RelationLoader`.
    """

    def __init__(self, seed_type: str, *arguments: Any, **options: Any) -> None:
        self._seed_type = seed_type
        super().__init__(*arguments, **options)

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        return [OneTypeMiniBatch(cast(HeteroMiniBatch, one), self._seed_type) for one in super()._sample_bulk(seeds, epoch)]
