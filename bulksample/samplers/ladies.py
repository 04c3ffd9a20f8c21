"""LADIES: each layer draws s vertices from the neighborhood of the whole frontier, by importance.

    P = Q (A o A),  one row of Q per mini-batch, A row-normalised;   SAMPLE: s of each row;   EXTRACT: Q_R A Q_C

Zou, Hu, Wang, Jiang, Sun, Gu, "Layer-dependent importance sampling for training deep and large graph convolutional
networks", NeurIPS 2019; as a matrix product, Tripathy, Yelick, Buluc, MLSys 2024, section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..adjacency import Adjacency, LayerLaw
from ..errors import UsageError
from ..graph.selection import Selection
from ..rng import Draw
from .layer_wise import LayerWise


@dataclass(frozen=True)
class Ladies(LayerWise):
    """Layer-dependent importance sampling.

    Parameters
    ----------
    importance : {"sum_of_squares", "squared_sum"}
        The probability of vertex v is in proportion to the sum over the frontier of the squared row-normalised weight
        (the original), or to the square of the number (weight) of its edges into the frontier (the text of MLSys 2024).
    """

    name: ClassVar[str] = "ladies"
    importance: Literal["sum_of_squares", "squared_sum"] = "sum_of_squares"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.importance not in ("sum_of_squares", "squared_sum"):
            raise UsageError(f"importance must be 'sum_of_squares' or 'squared_sum'; got {self.importance!r}")

    def law(self, adjacency: Adjacency, seeds: Selection, draws: Sequence[Draw]) -> LayerLaw:
        return LayerLaw("squares", 1) if self.importance == "sum_of_squares" else LayerLaw("weights", 2)
