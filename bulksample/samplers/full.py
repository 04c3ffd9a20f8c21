"""The whole neighbourhood: every vertex of the frontier keeps all its neighbours.

    A_l = Q A with its empty columns dropped

The limit of every sampler as its fanout grows, and the way to evaluate a minibatch exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..rng import Draw, Law, Stream
from .base import NodeWise


@dataclass(frozen=True)
class Full(NodeWise):
    """All neighbours of every hop; the fanouts only say how many hops there are."""

    name: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", (-1,) * len(self.fanouts))
        super().__post_init__()

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        return stream.draw(Law.UNIFORM, layer=hop, epoch=epoch)
