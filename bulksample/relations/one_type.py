"""Heterogeneous mini-batches in the form of homogeneous ones: one list of seeds, one block a layer.

The seeds are of one type, or they are ends of links, of one type or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from ..graph import Key
from ..minibatch import Block
from ..selection import Selection
from ..sparse import row_pointers
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


@dataclass(frozen=True, eq=False)
class LinkEndsMiniBatch(OneTypeMiniBatch):
    """A mini-batch whose seeds are ends of links.

    Parameters
    ----------
    whole, seed_type
        Of the `OneTypeMiniBatch`; the sources of the links are of that type.
    seed_types : tuple of str
        The types of the seeds, each once. The last layer gives the rows of their distinct seeds, type after type.
    """

    seed_types: tuple[str, ...] = ()

    @property
    def seeds(self) -> np.ndarray:
        """The seeds within their types, in the order asked for: int32, shape (b,)."""
        return self.whole.in_order_of_seeds({name: self.whole.rows[name].seeds for name in self.seed_types})

    @cached_property
    def seed_rows(self) -> np.ndarray:
        """The row of each seed in the output of the last layer: int32, shape (b,)."""
        sizes = row_pointers([int(self.whole.rows[name].sizes[0]) for name in self.seed_types]).tolist()
        columns = {name: self.whole.rows[name].seed_rows + first for name, first in zip(self.seed_types, sizes, strict=False)}
        return self.whole.in_order_of_seeds(columns)


class LinkEndsLoader(RelationLoader):
    """A `RelationLoader` that yields `LinkEndsMiniBatch`.

    Parameters
    ----------
    seed_types : tuple of str
        The types of the seeds, each once; that of the sources of the links first.
    *arguments, **options
        Those of `RelationLoader`.
    """

    def __init__(self, seed_types: tuple[str, ...], *arguments: Any, **options: Any) -> None:
        self._seed_types = seed_types
        super().__init__(*arguments, **options)

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[Any]:
        sampled = (cast(HeteroMiniBatch, one) for one in super()._sample_bulk(seeds, epoch))
        return [LinkEndsMiniBatch(one, self._seed_types[0], seed_types=self._seed_types) for one in sampled]
