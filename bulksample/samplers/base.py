"""The base classes of all samplers: they sample k mini-batches, hop by hop, in one call.

A sampler chooses the distribution of each hop. The adjacency draws, finds the frontiers and numbers the vertices. This file cuts the
hops into the blocks of mini-batches. A sampler works alike on a graph in this process and on one distributed over ranks.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ..adjacency import Adjacency, LayerLaw
from ..backends.base import check_fanout
from ..backends.hops import Expansion
from ..backends.layer_draws import SharedDraws
from ..errors import UsageError, check_switches, is_whole
from ..minibatch import Block, MiniBatch
from ..rng import MAX_LAYERS, Draw, Stream
from ..selection import Selection

Frontier = Literal["all", "new"]


def whole_fanouts(given: Any, what: str = "fanouts") -> tuple[int, ...]:
    """Return fanouts as a tuple of int; raises `UsageError`, naming `what`, unless they are a list of whole numbers."""
    try:
        fanouts = [None if isinstance(fanout, bool) else operator.index(fanout) for fanout in given]
    except TypeError:
        fanouts = [None]
    if None in fanouts:
        raise UsageError(f"{what} must be a list of whole numbers, one for each hop; got {given!r}")
    return tuple(fanout for fanout in fanouts if fanout is not None)


@dataclass(frozen=True)
class Sampler(ABC):
    """A sampler of mini-batches of nested blocks.

    Parameters
    ----------
    fanouts : tuple of int
        How many each hop draws, starting at the seeds: neighbors of a vertex (node-wise) or vertices of a layer
        (layer-wise). -1 takes all; by a law that reads weights, all of positive weight.
    frontier : {"all", "new"}
        ``all`` expands every vertex of the mini-batch so far, with new draws in each layer (the matrix form, DGL's blocks). ``new``
        expands only the vertices not expanded yet, and all lower layers share their draws (torch_geometric).
    """

    name: ClassVar[str]
    reads_frontier: ClassVar[bool] = True  # False: its subgraphs have one rule of their own
    fanouts: tuple[int, ...]
    frontier: Frontier = "all"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", whole_fanouts(self.fanouts))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool":
                check_switches(**{field.name: value})
            if field.type == "int" and not is_whole(value, -inf):
                raise UsageError(f"{field.name} must be a whole number; got {value!r}")
        if not 1 <= len(self.fanouts) < MAX_LAYERS:
            raise UsageError(f"fanouts must name 1 to {MAX_LAYERS - 1} hops; got {self.fanouts}")
        if self.frontier not in ("all", "new"):
            raise UsageError(f"frontier must be 'all' or 'new'; got {self.frontier!r}")
        if self.frontier != "all" and not self.reads_frontier:
            raise UsageError(f"frontier is for samplers of nested blocks; got {self.frontier} with {self.name}, of subgraphs: leave it out")
        for fanout in self.fanouts:
            check_fanout(fanout)

    @property
    def identity(self) -> str:
        """The sampler and its options in one line: samplers with equal ones draw the same mini-batches."""
        return f"{type(self).__name__}{sorted((field.name, getattr(self, field.name)) for field in fields(self))}"

    @property
    def settings(self) -> dict[str, Any]:
        """The name of the sampler and its options, ready for JSON, for messages that compare two samplers."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = (bool, int, float, str, tuple, type(None))
        return {"sampler": self.name, **{name: value if isinstance(value, shown) else repr(value) for name, value in own.items()}}

    @property
    def estimates_weighted_means(self) -> bool:
        """True if blocks of a weighted graph estimate means by edge weight; exact inference must take the same means."""
        return bool(getattr(self, "weighted", False))

    def check(self, adjacency: Adjacency) -> None:  # noqa: B027  # most samplers have a meaning everywhere
        """Raise `UsageError` if this sampler does not support this graph, such as one without weights."""

    def prepared(self, adjacency: Adjacency, seeds: np.ndarray, batch_size: int, stream: Stream) -> Self:
        """Return the sampler that a loader of these seeds uses; some samplers count before the first mini-batch."""
        return self

    def sample_bulk(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[MiniBatch]:
        """Sample k mini-batches in one call.

        Parameters
        ----------
        seeds : Selection
            The seeds of each mini-batch; empty lists and repeated seeds are legal.
        stream : Stream
        epoch : int

        Returns
        -------
        list of k MiniBatch
            Each depends on (graph, sampler, seed, epoch, mini-batch id, its seeds) alone, not on its bulk, the
            back end, the threads or the ranks.
        """
        self.check(adjacency)
        return [self._minibatch(seeds, j, epoch, part) for j, part in enumerate(self.expand(adjacency, seeds, stream, epoch))]

    @abstractmethod
    def expand(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
        """Take k mini-batches through all hops, before they are cut into blocks."""

    @abstractmethod
    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        """Predict the bytes that sampling k > 0 mini-batches like this one takes beside the mini-batches; 0 if unknown."""

    def _minibatch(self, seeds: Selection, j: int, epoch: int, part: Expansion) -> MiniBatch:
        """Return mini-batch j of a bulk, with one block per hop. Its rows are the vertices held before the hop, its sources those after."""
        nested = self.frontier == "new"
        hops = part.hops * (len(self.fanouts) // len(part.hops))  # nested ones may be one that holds all others
        blocks = []
        for hop, rows, sources in zip(hops, part.held, part.held[1:], strict=False):
            edges = len(hop.columns) if len(hop.pointers) == rows + 1 else int(hop.pointers[rows])
            weights = None if hop.weights is None else hop.weights[:edges]
            blocks.append(Block(hop.pointers[: rows + 1], hop.columns[:edges], weights, sources))
        name = int(seeds.minibatches[j])
        return MiniBatch(name, epoch, seeds.part(j), part.seed_rows, part.vertices, tuple(reversed(blocks)), nested)


class NodeWise(Sampler):
    """A sampler with one row of Q per (mini-batch, vertex): every vertex of the frontier draws among its own neighbors."""

    @abstractmethod
    def draw(self, stream: Stream, hop: int, epoch: int) -> Draw:
        """Return the distribution and the random stream from which every row of a hop draws."""

    def expand(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
        draws = [self.draw(stream, hop, epoch) for hop in range(len(self.fanouts))]
        return adjacency.expand(seeds, self.fanouts, draws, self.frontier == "new")

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        return adjacency.expand_tables(k, len(like.seeds), self.fanouts, len(like.vertices))


@dataclass(frozen=True)
class LayerWise(Sampler):
    """A sampler with one row of Q per mini-batch: the frontier draws one set of vertices, and keeps all edges from them.

    Parameters
    ----------
    debias : bool
        Divide the row-normalised weight of each kept edge by the probability that its source was drawn, so that a
        sum over the draws estimates the full aggregation without bias. For draws without replacement this is the
        exact form of the published factor 1 / (s p), p the probability of one draw, which it approaches for small s p. If every
        candidate is drawn, the factor is 1 and the layer is the full aggregation.
    renormalise : bool
        Scale the weights of each row to sum to one afterwards (LADIES, section 3.3). This lowers the variance and adds
        a bias that vanishes as s grows; ``False`` is the unbiased estimator.
    """

    draws_from_frontier: ClassVar[bool] = True  # False: all frontiers draw from one distribution
    estimates_weighted_means = True
    debias: bool = True
    renormalise: bool = True

    @abstractmethod
    def law(self, adjacency: Adjacency, seeds: Selection, draws: Sequence[Draw]) -> LayerLaw | SharedDraws:
        """Return the distribution by which each hop draws from its frontier; or the picks of every hop, if they need no frontier."""

    def expand(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[Expansion]:
        draws = [stream.layer_draw(layer=hop, epoch=epoch) for hop in range(len(self.fanouts))]
        drawn, only_new = self.law(adjacency, seeds, draws), self.frontier == "new"
        return adjacency.expand_layers(seeds, drawn, self.fanouts, draws, only_new, self.debias, self.renormalise)

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        only_new, from_frontier = self.frontier == "new", self.draws_from_frontier
        known = adjacency.layer_bytes(k, k * len(like.seeds), self.fanouts, only_new, from_frontier)
        rows = like.vertices[: like.blocks[0].num_destinations if from_frontier else 0]
        return adjacency.layer_tables(k, len(like.seeds), rows) if known is None else known
