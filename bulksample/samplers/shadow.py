"""ShaDow: each seed gets a small subgraph of its own, and the model may be as deep as it likes inside it.

    V_r = k hops of draws from root r;   B_r = Q_V A Q_V^T;   the mini-batch is the block diagonal of its B_r

Q_V is the selection matrix of V: one row for each vertex, with a one in its column. A model runs all its layers on the square block B.

Roots of a mini-batch share random numbers: if two subgraphs expand the same vertex in the same hop, they draw the same neighbors.

Zeng, Zhang, Xia, Srivastava, Malevich, Kannan, Prasanna, Jin, Chen, "Decoupling the depth and scope of graph neural
networks", NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..adjacency import Adjacency
from ..errors import UsageError
from ..graph.minibatch import Block, MiniBatch
from ..graph.selection import Selection
from ..rng import Stream
from ..sparse import row_pointers, runs
from .sage import Sage


@dataclass(frozen=True)
class Shadow(Sage):
    """k-hop subgraphs, one per seed.

    The fanouts are the scope: hops and draws of each subgraph. A vertex is expanded once. Repeated seeds get a subgraph each.

    Parameters
    ----------
    layers : int, optional
        Layers of the model that runs on the subgraphs; by default one for each fanout.
    """

    name: ClassVar[str] = "shadow"
    reads_frontier: ClassVar[bool] = False
    draws_by_row: ClassVar[bool] = False
    layers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 0:
            raise UsageError(f"layers must not be negative; got {self.layers}")

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        roots = len(seeds.vertices)
        minibatch = seeds.minibatch_of_row()
        held = frontier = Selection(seeds.minibatches[minibatch], np.arange(roots + 1), seeds.vertices, seeds.n)
        for hop in range(len(self.fanouts)):
            picks = adjacency.sample_rows(frontier, self.fanouts[hop], self.draw(stream, hop, epoch))
            grown, _ = adjacency.backend.relabel(held, picks.pointers[frontier.pointers], picks.columns)
            frontier, held = grown.added_since(held), grown
        pointers, columns, _ = adjacency.restrict(held, held, shares=self.weighted)  # by weight, edges of weight 0 are left out
        place, order = self._roots_first(seeds, held)
        edges = np.diff(pointers)
        stacked = row_pointers(edges[order])
        entry = runs(pointers[order], edges[order])
        local = place[(np.repeat(held.pointers[held.minibatch_of_row()], edges) + columns)[entry]]
        vertices, ends = held.vertices[order], held.pointers[seeds.pointers]
        minibatches = []
        for j, name in enumerate(seeds.minibatches):
            rows = stacked[ends[j] : ends[j + 1] + 1]
            block = Block(rows - rows[0], local[rows[0] : rows[-1]], None, len(rows) - 1)
            blocks = (block,) * (self.layers or len(self.fanouts))
            seeds_here, held_here = seeds.part(j), vertices[ends[j] : ends[j + 1]]
            minibatches.append(MiniBatch.plain(int(name), epoch, seeds_here, np.arange(len(seeds_here)), held_here, blocks, nested=True))
        return minibatches

    @staticmethod
    def _roots_first(seeds: Selection, held: Selection) -> tuple[np.ndarray, np.ndarray]:
        """Order the held vertices so that the roots of a mini-batch come first; return each vertex's place, and the order."""
        minibatch = seeds.minibatch_of_row()[held.minibatch_of_row()]
        other = np.ones(len(held.vertices), bool)
        other[held.pointers[:-1]] = False
        order = np.lexsort((other, minibatch))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return place - held.pointers[seeds.pointers[minibatch]], order
