"""A mini-batch whose last hop is numbered when somebody asks for the numbers.

The numbers of the vertices that the last hop finds are a function of its draws. An input layer that averages features where they lie
reads the vertices themselves, so such a step never needs them; see `MiniBatch.input_hop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import EDGE, NODE
from .minibatch import Block, InputHop, MiniBatch

# Numbers the columns of an input hop, given the vertices that are known: all vertices, and the position of each column among them.
Numbering = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class LateMiniBatch(MiniBatch):
    """A mini-batch of a plain graph that is made of all hops but the last, and of the draws of this one.

    It is the `MiniBatch` that they make together. Its vertices, its first block and what is made of them, such as its digest, are made
    when they are first read.
    """

    _inner: MiniBatch
    _number: Numbering

    def __new__(cls, *parts: Any, **columns: Any) -> Any:
        """Return a `MiniBatch` of given fields, as `dataclasses.replace` asks for."""
        return MiniBatch(**columns) if columns else object.__new__(cls)

    def __init__(self, inner: MiniBatch, hop: InputHop, number: Numbering) -> None:
        kept = {field.name: getattr(inner, field.name) for field in fields(MiniBatch) if field.name not in ("rows", "layers")}
        vars(self).update(kept, _inner=inner, input_hop=hop, _number=number)

    def __reduce__(self) -> Any:
        return self.numbered.__reduce__()

    @cached_property
    def inner(self) -> MiniBatch:
        return replace(self._inner, seed=self.seed)

    @cached_property
    def numbered(self) -> MiniBatch:
        """The same mini-batch, with numbers."""
        hop, part = self.input_hop, self._inner.rows[NODE]
        vertices, local = self._number(part.vertices, hop.vertices)
        rows = replace(part, vertices=vertices, sizes=np.append(part.sizes, len(vertices)))
        block = Block(hop.pointers, local, hop.weights, len(vertices))
        return replace(self._inner, seed=self.seed, rows={NODE: rows}, layers=({(NODE, EDGE, NODE): block}, *self._inner.layers))

    @cached_property
    def rows(self) -> Any:
        return self.numbered.rows

    @cached_property
    def layers(self) -> Any:
        return self.numbered.layers

    @property
    def seeds(self) -> np.ndarray:
        seeds: np.ndarray = self._inner.seeds
        return seeds

    @property
    def seed_rows(self) -> np.ndarray:
        rows: np.ndarray = self._inner.seed_rows
        return rows

    @property
    def num_seeds(self) -> int:
        return self._inner.num_seeds

    def on_host(self) -> MiniBatch:
        return self
