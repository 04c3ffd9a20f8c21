"""GraphSAGE: every vertex of the frontier draws s of its neighbors.

    P = Q A,  one nonzero a row in Q;   NORM: rows of P by their sums;   SAMPLE: s of each row;   EXTRACT: the picks

Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017; as a matrix product,
Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..adjacency import Adjacency
from ..errors import UsageError
from ..rng import Draw, Law, Stream
from .base import NodeWise


@dataclass(frozen=True)
class Sage(NodeWise):
    """Node-wise neighbor sampling.

    Parameters
    ----------
    replace : bool
        Draw s independent neighbors, which may repeat.
    weighted : bool
        Draw without replacement, each draw with probability in proportion to the edge weight.
    """

    name: ClassVar[str] = "sage"
    replace: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replace and self.weighted:
            raise UsageError("weighted draws are made without replacement: replace and weighted cannot both be set")

    def check(self, adjacency: Adjacency) -> None:
        if self.weighted and not adjacency.weighted:
            raise UsageError("weighted sampling was asked for, but the graph has no edge weights")

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        law = Law.REPLACEMENT if self.replace else Law.RACE if self.weighted else Law.UNIFORM
        return stream.draw(law, layer=hop, epoch=epoch)
