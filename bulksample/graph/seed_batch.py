"""Mini-batches by type whose seeds are one list, as models of one output read them: one list of seeds, one entry a layer.

The seeds are of one type, or they are ends of links, of one type or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..sparse import row_pointers
from . import Key
from .minibatch import Block, MiniBatch


class LayerBlocks(NamedTuple):
    """The edges of one layer."""

    relations: Mapping[Key, Block]
    destinations: Mapping[str, int]  # how many vertices of each type get new rows; they are the first of its list


@dataclass(frozen=True, eq=False)
class SeedBatch:
    """A mini-batch by type with one list of seeds; its attributes mean what those of a `MiniBatch` of a plain graph mean."""

    whole: MiniBatch
    seed_types: tuple[str, ...]  # each once; the last layer gives the rows of their distinct seeds, type after type
    seed_weights: None = None

    @property
    def id(self) -> int:
        return self.whole.id

    @property
    def epoch(self) -> int:
        return self.whole.epoch

    @cached_property
    def seeds(self) -> np.ndarray:
        """The seeds within their types, in the order asked for: int32, shape (b,)."""
        return self._in_order({name: self.whole.rows[name].seeds for name in self.seed_types})

    @cached_property
    def seed_rows(self) -> np.ndarray:
        """The row of each seed in the output of the last layer: int32, shape (b,)."""
        firsts = row_pointers([int(self.whole.rows[name].sizes[0]) for name in self.seed_types]).tolist()
        by_type = {name: self.whole.rows[name].seed_rows for name in self.seed_types}
        return self._in_order({name: rows + first if first else rows for (name, rows), first in zip(by_type.items(), firsts, strict=False)})

    def _in_order(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        (only, *others) = columns.values()
        return self.whole.in_order_of_seeds(columns) if others else only

    @property
    def vertices(self) -> dict[str, np.ndarray]:
        """The vertices of each type: int32."""
        vertices: dict[str, np.ndarray] = self.whole.vertices
        return vertices

    @property
    def num_edges(self) -> int:
        """Number of sampled edges of all relations."""
        return self.whole.num_edges

    @cached_property
    def blocks(self) -> tuple[LayerBlocks, ...]:
        """From the input layer to the output layer."""
        hops = len(self.whole.layers)
        sizes = [{name: int(rows.sizes[hops - 1 - layer]) for name, rows in self.whole.rows.items()} for layer in range(hops)]
        return tuple(LayerBlocks(*pair) for pair in zip(self.whole.layers, sizes, strict=True))

    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return self.whole.nbytes()

    def digest(self) -> str:
        """Return the SHA-256 of the mini-batch; see `MiniBatch.digest`."""
        return self.whole.digest()
