"""The whole neighborhood: every vertex of the frontier keeps all its neighbors.

    A_l = Q A with its empty columns dropped

Every sampler becomes this one as its fanout grows; it evaluates a mini-batch exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..rng import Draw, Law, Stream
from .node_wise import NodeWise


@dataclass(frozen=True)
class Full(NodeWise):
    """Sampler of all neighbors in every hop; only the number of fanouts matters. It reads no weights: edges of weight 0 are taken too."""

    name: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", (-1,) * len(self.fanouts))
        super().__post_init__()

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        return stream.draw(Law.UNIFORM, layer=hop, epoch=epoch)
