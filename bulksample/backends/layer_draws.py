"""Arguments and results of the draws of layers: `Backend.smallest_keys` and `Backend.expand_layers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..rng import Draw
from ..sparse import CSR


class LayerPicks(NamedTuple):
    """The columns drawn from each weighted row, and their inclusion probabilities."""

    pointers: np.ndarray  # int64, shape (rows + 1,)
    columns: np.ndarray  # int32, shape (E,), ascending within a row
    inclusion: np.ndarray  # float64, shape (E,): probability of the draw, given the other keys of the row


class LayerRace(NamedTuple):
    """The distribution of layer-wise hops: a column is drawn by its sum over the frontier's rows of a matrix."""

    entries: CSR  # of A's pattern: the entries to sum
    factors: np.ndarray | None  # int64, shape (n,): the factor of each row
    power: int  # 1, or 2 for a race by the squares of the sums
    fanouts: Sequence[int]
    draws: Sequence[Draw]


class SharedDraws(Sequence[LayerPicks]):
    """The picks of hops that all draw from one row of weights. A back end may draw them itself; otherwise a hop is drawn when it is read.

    `columns` (int32, ascending) and `weights` (float64) are those of positive weight, `ends` (int64) the running sums of the weights,
    shortened for `Backend.first_arrivals`: all of shape (C,). Hops draw `by_arrivals`, or else by `Backend.smallest_keys`; `draw_hop` draws
    one on the host.
    """

    def __init__(
        self, columns: np.ndarray, weights: np.ndarray, ends: np.ndarray, fanouts: Sequence[int], draws: Sequence[Draw],
        by_arrivals: Sequence[bool], draw_hop: Callable[[int], LayerPicks],
    ) -> None:  # fmt: skip
        self.columns, self.weights, self.ends = columns, weights, ends
        self.fanouts, self.draws, self.by_arrivals = fanouts, draws, by_arrivals
        self._draw_hop = cache(draw_hop)

    def __len__(self) -> int:
        return len(self.fanouts)

    def __getitem__(self, hop: Any) -> Any:
        return self._draw_hop(range(len(self))[hop])


class LayerWeights(NamedTuple):
    """The weights of the edges that a layer-wise sampler keeps; see `samplers.layer_wise.LayerWise`."""

    row_sums: np.ndarray  # float64, shape (n,)
    debias: bool
    renormalise: bool
