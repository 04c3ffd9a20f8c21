"""GraphSAINT with random walks: keeps the vertices that short walks from the seeds visit, and all edges among them.

    x_0 = seeds;   x_{h+1} = SAMPLE(NORM(Q_h A), 1), one row of Q per walker;   B = Q_V A Q_V^T, V = all visited vertices

A walker at an isolated vertex stays. The loss runs over every vertex of the subgraph, so all of them are seeds of the
mini-batch. `coverage` adds the coefficients that undo the bias of the draw (section 3.2), counted in M subgraphs that are drawn for this
purpose alone:

    C_v, C_uv = how many of M subgraphs hold the vertex v, the edge u -> v
    loss:         1 / (n p_v),   p_v = C_v / M           so that the weighted sum over a subgraph estimates the mean over all n vertices
    aggregation:  C_v / C_uv                             so that the weighted sum over the edges into v estimates that over all of them

Zeng, Zhou, Srivastava, Kannan, Prasanna, "GraphSAINT: graph sampling based inductive learning method", ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import Picks
from ..errors import UsageError
from ..graph.minibatch import Block, MiniBatch
from ..graph.selection import Selection
from ..rng import MAX_EPOCHS, Draw, Law, Stream
from ..shuffle import Shuffle
from .node_wise import NodeWise

TOGETHER = 32  # subgraphs drawn in one call
NEVER = 0.1  # the count of a vertex, and the coefficient of an edge, that no subgraph held
MOST = 1e4  # the largest coefficient of an edge


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The coefficients that undo the bias of GraphSAINT's subgraphs."""

    vertices: np.ndarray  # float32, shape (n,): the weight of each vertex in the loss
    edges: np.ndarray  # float32, shape (m,): the factor of each edge in the aggregation of its destination
    size: float = 0.0  # the mean number of vertices of a subgraph


@dataclass(frozen=True)
class Saint(NodeWise):
    """Random-walk subgraphs; one block for each entry of `fanouts`, whose values are not used.

    Parameters
    ----------
    walk_length : int
        Steps of each walk.
    coverage : int
        0: no coefficients. Else a loader first draws subgraphs until they hold each vertex this often on average, and counts p_v and p_uv
        in them. The edge u -> v of a block then weighs p_v / (p_uv deg(v)), so that the sum over a row estimates
        the mean over all neighbors of v, and a seed weighs E|V| / (n p_v) in the loss.
    """

    name: ClassVar[str] = "saint"
    reads_frontier: ClassVar[bool] = False
    draws_by_row: ClassVar[bool] = False
    adds_seeds: ClassVar[bool] = True
    counted: ClassVar[Coefficients | None] = None
    walk_length: int = 2
    coverage: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.walk_length < 256:
            raise UsageError(f"walk_length must be in 1 .. 255; got {self.walk_length}")
        if self.coverage < 0:
            raise UsageError(f"coverage must not be negative; got {self.coverage}")

    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        return stream.draw(Law.REPLACEMENT, layer=hop, epoch=epoch)

    def check(self, adjacency: Adjacency) -> None:
        super().check(adjacency)
        if self.coverage and (adjacency.whole_matrix is None or adjacency.collective):
            raise UsageError("coverage counts edges of the whole graph; got a partitioned one: use topology replicated, or coverage=0")

    def prepared(self, adjacency: Adjacency, seeds: np.ndarray, batch_size: int, stream: Stream) -> Self:
        """Return the sampler with its coefficients, counted on epochs of shuffled seeds that training does not use."""
        matrix = adjacency.whole_matrix
        if not self.coverage or not len(seeds) or matrix is None:
            return self
        subgraphs, epoch = -(-len(seeds) // batch_size), MAX_EPOCHS - 1

        def draw(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            orders = {int(e): Shuffle(stream, len(seeds), epoch - int(e)) for e in np.unique(ids // subgraphs)}
            starts = [i % subgraphs * batch_size for i in ids.tolist()]
            places = [np.arange(start, min(start + batch_size, len(seeds))) for start in starts]
            roots = [seeds[orders[i // subgraphs].at(chosen)] for i, chosen in zip(ids.tolist(), places, strict=True)]
            visited = self._visited(adjacency, Selection.of(roots, adjacency.n, ids), stream, epoch)
            return visited.vertices, adjacency.backend.restrict(matrix, visited, visited).entries

        made = replace(self)
        object.__setattr__(made, "counted", count(draw, adjacency.n, matrix.row_of_entry(), self.coverage))
        return made

    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        visited, counted, matrix = self._visited(adjacency, seeds, stream, epoch), self.counted, adjacency.whole_matrix
        if counted is None or matrix is None:
            pointers, columns, _ = adjacency.restrict(visited, visited, shares=False)
        else:
            pointers, columns, entries = adjacency.backend.restrict(matrix, visited, visited)
        minibatches = []
        for j, name in enumerate(seeds.minibatches):
            vertices, rows = visited.part(j), pointers[visited.pointers[j] : visited.pointers[j + 1] + 1]
            edges, shares, weights = slice(rows[0], rows[-1]), None, None
            if counted is not None and matrix is not None:
                degree = np.repeat(matrix.degrees[vertices], np.diff(rows)).astype(np.float32)
                shares = counted.edges[entries[edges]] / degree
                weights = counted.vertices[vertices] * np.float32(counted.size)
            blocks = (Block(rows - rows[0], columns[edges], shares, len(vertices)),) * len(self.fanouts)
            minibatches.append(MiniBatch.plain(int(name), epoch, vertices, np.arange(len(vertices)), vertices, blocks, True, weights))
        return minibatches

    def _visited(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> Selection:
        """Return the vertices that the walks from the seeds of each mini-batch visit, in the order of discovery."""
        pointers, visited = walk(lambda at, step: adjacency.sample_rows(at, 1, self.draw(stream, step, epoch)), seeds, self.walk_length)
        return adjacency.backend.relabel(seeds.none_of(), pointers, visited)[0]


def walk(draw: Callable[[Selection, int], Picks], roots: Selection, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Walk from every root; a walker that cannot go on stays. ``draw(at, step)`` draws the next vertex of each walker, or none.

    Returns pointers, int64 of shape (k + 1,), and the places of the walkers of each mini-batch, step by step: int32.
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


def count(draw: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], n: int, destinations: np.ndarray, coverage: int) -> Coefficients:
    """Count in subgraphs 0, 1, 2, ... until they hold n `coverage` vertices; the relative error of p_v falls as 1 / sqrt(M p_v).

    `draw` draws the subgraphs with these ids; it returns the vertices and the edges that they hold, each as often as it is held.
    `destinations` are those of all edges: int64, shape (m,).
    """
    vertices, edges, drawn = np.zeros(n, np.int64), np.zeros(len(destinations), np.int64), 0
    while vertices.sum() < n * coverage:
        held, within = draw(np.arange(drawn, drawn + TOGETHER))
        vertices += np.bincount(held, minlength=n)
        edges += np.bincount(within, minlength=len(edges))
        drawn += TOGETHER
    of_vertex = drawn / (n * np.where(vertices, vertices, NEVER))
    at_end = vertices[destinations]
    of_edge = np.where(edges > 0, at_end / np.maximum(edges, 1), np.where(at_end > 0, MOST, NEVER))
    return Coefficients(of_vertex.astype(np.float32), np.minimum(of_edge, MOST).astype(np.float32), vertices.sum() / max(drawn, 1))
