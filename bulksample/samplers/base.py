"""The shape every sampler shares: k minibatches, layer by layer, in one call.

A sampler says what one layer draws (`sample_layer`); the loop here finds the frontier, numbers what was found
and cuts the bulk into minibatches. It never asks where the graph lies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import LayerPicks, check_fanout
from ..errors import UsageError
from ..minibatch import Block, MiniBatch
from ..rng import MAX_LAYERS, Draw, Stream
from ..selection import Selection

Frontier = Literal["all", "new"]


class Layer(NamedTuple):
    """What one layer drew: for each row of the frontier, global columns and perhaps a weight for each."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,)
    weights: np.ndarray | None  # float32, shape (E,); None stands for the mean


@dataclass(frozen=True)
class Sampler(ABC):
    """Draws minibatches of nested blocks.

    Parameters
    ----------
    fanouts : tuple of int
        What each hop draws, starting at the seeds: neighbours of a vertex (node-wise) or vertices of a layer
        (layer-wise). -1 takes all.
    frontier : {"all", "new"}
        Which vertices a hop expands: every vertex of the minibatch so far, drawn afresh in each layer (the matrix
        form, DGL's blocks), or only those not expanded yet, whose draws all lower layers share (torch_geometric).
    """

    name: ClassVar[str]
    fanouts: tuple[int, ...]
    frontier: Frontier = "all"

    def __post_init__(self) -> None:
        if not 1 <= len(self.fanouts) < MAX_LAYERS:
            raise UsageError(f"fanouts must name 1 to {MAX_LAYERS - 1} hops; got {self.fanouts}")
        if self.frontier not in ("all", "new"):
            raise UsageError(f"frontier must be 'all' or 'new'; got {self.frontier!r}")
        for fanout in self.fanouts:
            check_fanout(fanout)

    @abstractmethod
    def sample_layer(self, adjacency: Adjacency, frontier: Selection, hop: int, stream: Stream, epoch: int) -> Layer:
        """The draws of one hop, for all rows of the frontier of k minibatches."""

    def check(self, adjacency: Adjacency) -> None:  # noqa: B027  # most samplers have a meaning everywhere
        """Raise `UsageError` where this sampler has no meaning on this graph."""

    def sample_bulk(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[MiniBatch]:
        """Sample k minibatches in one call.

        Parameters
        ----------
        seeds : Selection
            The seeds of each minibatch; empty lists and repeated seeds are legal.
        stream : Stream
        epoch : int

        Returns
        -------
        list of k MiniBatch
            Each a function of (graph, sampler, seed, epoch, minibatch id, its seeds) alone: not of its bulk, the
            back end, the threads or the ranks.
        """
        self.check(adjacency)
        relabel = adjacency.backend.relabel
        held, seed_rows = relabel(seeds.none_of(), seeds.pointers, seeds.vertices)
        frontier, hops = held, []
        for hop in range(len(self.fanouts)):
            layer = self.sample_layer(adjacency, frontier, hop, stream, epoch)
            grown, local = relabel(held, layer.pointers[frontier.pointers], layer.columns)
            hops.append((frontier, layer, local, grown))
            frontier = grown if self.frontier == "all" else grown.added_since(held)
            held = grown
        return self._cut(seeds, seed_rows, hops, epoch)

    def _cut(self, seeds: Selection, seed_rows: np.ndarray, hops: list[tuple], epoch: int) -> list[MiniBatch]:
        """The bulk as minibatches; their arrays are views of the bulk's wherever they can be."""
        minibatches = []
        for j, name in enumerate(seeds.minibatches):
            pieces = []
            for frontier, layer, local, grown in hops:
                indptr = layer.pointers[frontier.pointers[j] : frontier.pointers[j + 1] + 1]
                edges = slice(indptr[0], indptr[-1])
                weights = None if layer.weights is None else layer.weights[edges]
                pieces.append((indptr - indptr[0], local[edges], weights, int(grown.sizes[j])))
            nested = self.frontier == "new"
            blocks = tuple(reversed(_nested(pieces) if nested else [Block(*piece) for piece in pieces]))
            rows = seed_rows[seeds.pointers[j] : seeds.pointers[j + 1]]
            minibatches.append(MiniBatch(int(name), epoch, seeds.part(j), rows, hops[-1][3].part(j), blocks, nested))
        return minibatches


def _nested(pieces: list[tuple]) -> list[Block]:
    """Blocks under the rule `new`: rows are drawn once, and each lower layer holds those of the layers above it."""
    starts = np.cumsum([0] + [len(indices) for _, indices, _, _ in pieces])
    indptr = np.concatenate([[0]] + [piece[0][1:] + start for piece, start in zip(pieces, starts, strict=False)])
    indices = np.concatenate([piece[1] for piece in pieces])
    weights = None if pieces[0][2] is None else np.concatenate([piece[2] for piece in pieces])
    rows = np.cumsum([len(piece[0]) - 1 for piece in pieces])
    return [
        Block(indptr[: r + 1], indices[: indptr[r]], None if weights is None else weights[: indptr[r]], piece[3])
        for r, piece in zip(rows, pieces, strict=True)
    ]


class NodeWise(Sampler):
    """One row of Q per (minibatch, vertex): every vertex of the frontier draws among its own neighbours."""

    @abstractmethod
    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        """The law of a hop."""

    def sample_layer(self, adjacency: Adjacency, frontier: Selection, hop: int, stream: Stream, epoch: int) -> Layer:
        picks = adjacency.sample_rows(frontier, self.fanouts[hop], self.draw(stream, hop, epoch))
        return Layer(picks.pointers, picks.columns, None)


@dataclass(frozen=True)
class LayerWise(Sampler):
    """One row of Q per minibatch: the frontier draws one set of vertices together, and keeps all edges to it.

    Parameters
    ----------
    debias : bool
        Divide the row-normalised weight of each kept edge by the probability that its source was drawn, so that a
        sum over the draws estimates the full aggregation without bias. For draws without replacement this is the
        exact form of the published 1 / (s p), which it approaches where s p is small; where every candidate is
        drawn it is 1, and the layer is the full aggregation.
    renormalise : bool
        Let the weights of each row add up to one afterwards (LADIES, section 3.3). Lower variance, at the price of
        a bias that vanishes as s grows; ``False`` is the unbiased estimator.
    """

    debias: bool = True
    renormalise: bool = True

    @abstractmethod
    def draw_layer(self, adjacency: Adjacency, frontier: Selection, fanout: int, draw: Draw) -> LayerPicks:
        """SAMPLE(NORM(Q A), s): the vertices that each minibatch draws."""

    def sample_layer(self, adjacency: Adjacency, frontier: Selection, hop: int, stream: Stream, epoch: int) -> Layer:
        drawn = self.draw_layer(adjacency, frontier, self.fanouts[hop], stream.layer_draw(layer=hop, epoch=epoch))
        columns = Selection(frontier.minibatches, drawn.pointers, drawn.columns, frontier.n)
        kept = adjacency.restrict(frontier, columns)  # EXTRACT: Q_R A Q_C
        edges = np.diff(kept.pointers)
        source = np.repeat(columns.pointers[frontier.minibatch_of_row()], edges) + kept.columns
        weights = kept.shares
        assert weights is not None  # they were asked for
        if self.debias:
            weights = weights / drawn.inclusion[source]
        if self.renormalise:
            row = np.repeat(np.arange(len(edges)), edges)
            total = np.bincount(row, weights, minlength=len(edges))[row]  # sums run left to right, alike everywhere
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        return Layer(kept.pointers, columns.vertices[source], weights.astype(np.float32))
