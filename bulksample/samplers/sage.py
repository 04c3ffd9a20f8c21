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
from .node_wise import NodeWise


@dataclass(frozen=True)
class Sage(NodeWise):
    """Node-wise neighbor sampling.

    Parameters
    ----------
    replace : bool
        Draw s independent neighbors, which may repeat.
    weighted : bool
        Draw with probability in proportion to the edge weight: each of the s draws among the neighbors that are left or, with
        `replace`, among all. An edge of weight 0 is none, also to a fanout of -1; see `Backend.sample_rows`.
    """

    name: ClassVar[str] = "sage"
    replace: bool = False
    weighted: bool = False

    @property
    def draws_evenly(self) -> bool:
        return not self.replace and not self.weighted

    def check(self, adjacency: Adjacency) -> None:
        super().check(adjacency)
        if self.weighted and not adjacency.weighted:
            without = "no relation has" if adjacency.by_type else "the graph has no"
            raise UsageError(f"weighted sampling was asked for, but {without} edge weights")

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        with_weights, without = (Law.WEIGHTED, Law.RACE), (Law.REPLACEMENT, Law.UNIFORM)
        law = (with_weights if self.weighted else without)[0 if self.replace else 1]
        return stream.draw(law, layer=hop, epoch=epoch)
