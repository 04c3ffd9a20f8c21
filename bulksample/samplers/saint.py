"""GraphSAINT with random walks: keeps the vertices that short walks from the seeds visit, and all edges among them.

    x_0 = seeds;   x_{h+1} = SAMPLE(NORM(Q_h A), 1), one row of Q per walker;   B = Q_V A Q_V^T, V = all visited vertices

A walker at an isolated vertex stays. The loss runs over every vertex of the subgraph, so all of them are seeds of the
mini-batch. The coefficients that undo the sampling bias are left out, as common libraries do by default.

Zeng, Zhou, Srivastava, Kannan, Prasanna, "GraphSAINT: graph sampling based inductive learning method", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import Picks
from ..errors import UsageError
from ..minibatch import MiniBatch
from ..rng import Draw, Law, Stream
from ..selection import Selection
from .base import NodeWise
from .subgraph import induced, square


@dataclass(frozen=True)
class Saint(NodeWise):
    """Random-walk subgraphs; one block for each entry of `fanouts`, whose values are not used.

    Parameters
    ----------
    walk_length : int
        Steps of each walk.
    """

    name: ClassVar[str] = "saint"
    walk_length: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.walk_length < 256:
            raise UsageError(f"walk_length must be in 1 .. 255; got {self.walk_length}")

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        return stream.draw(Law.REPLACEMENT, layer=hop, epoch=epoch)

    def sample_bulk(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[MiniBatch]:
        pointers, visited = walk(lambda at, step: adjacency.sample_rows(at, 1, self.draw(stream, step, epoch)), seeds, self.walk_length)
        held, _ = adjacency.backend.relabel(seeds.none_of(), pointers, visited)
        pointers, columns = induced(adjacency, held)
        minibatches = []
        for j, name in enumerate(seeds.minibatches):
            rows = pointers[held.pointers[j] : held.pointers[j + 1] + 1]
            block = square(rows, columns[rows[0] : rows[-1]])
            blocks = (block,) * len(self.fanouts)
            vertices = held.part(j)
            minibatches.append(MiniBatch(int(name), epoch, vertices, np.arange(len(vertices)), vertices, blocks, nested=True))
        return minibatches


def walk(draw: Callable[[Selection, int], Picks], roots: Selection, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Walk from every root; a walker that cannot go on stays.

    Parameters
    ----------
    draw : callable
        ``draw(at, step)`` draws the next vertex of each walker, or none.
    roots : Selection

    Returns
    -------
    pointers : int64, shape (k + 1,)
    visited : int32
        The places of the walkers of each mini-batch, step by step.
    """
    walker = np.arange(len(roots.vertices)) - np.repeat(roots.pointers[:-1], roots.sizes)
    places = [roots.vertices]
    for step in range(length):
        at = Selection(roots.minibatches, roots.pointers, places[-1], roots.n, walker)
        picks = draw(at, step)
        there = places[-1].copy()
        there[np.diff(picks.pointers) > 0] = picks.columns
        places.append(there)
    visited = [step[roots.pointers[j] : roots.pointers[j + 1]] for j in range(len(roots)) for step in places]
    return roots.pointers * len(places), np.concatenate(visited or places)
