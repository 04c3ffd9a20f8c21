"""The contract of all samplers, and the base of those that draw hop by hop: they sample k mini-batches in one call.

A sampler chooses the distribution of each hop. The adjacency draws, finds the frontiers and numbers the vertices. A sampler works alike on
a graph in this process and on one distributed over ranks, on one relation and on several.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ..adjacency import Adjacency
from ..backends.base import check_fanout
from ..errors import UsageError, check_switches, is_whole
from ..graph import Key
from ..graph.minibatch import MiniBatch
from ..graph.selection import Selection
from ..rng import MAX_LAYERS, Stream

Frontier = Literal["all", "new"]


def whole_fanouts(counts: Any, what: str = "fanouts") -> tuple[int, ...]:
    """Return fanouts as a tuple of int; raises `UsageError`, naming `what`, unless they are a list of whole numbers."""
    try:
        fanouts = [None if isinstance(fanout, bool) else operator.index(fanout) for fanout in counts]
    except TypeError:
        fanouts = [None]
    if None in fanouts:
        raise UsageError(f"{what} must be a list of whole numbers, one for each hop; got {counts!r}")
    return tuple(fanout for fanout in fanouts if fanout is not None)


class AnySampler(ABC):
    """A sampler of mini-batches.

    Attributes
    ----------
    name : str
    adds_seeds : bool
        True if seeds of its mini-batches are more than were asked for.
    coverage : int
        Above 0, a loader draws subgraphs first, from roots among all of its seeds; see `Saint`.
    time : TimeRule, optional
        The rule by which times count; None if they do not.
    by_relation : bool
        True if it has options of relations, times or trees.
    estimates_weighted_means : bool
        True if blocks of a weighted graph estimate means by edge weight; exact inference must take the same means.
    """

    name: ClassVar[str]
    adds_seeds: ClassVar[bool] = False
    coverage: Any = 0
    time: Any = None
    by_relation: Any = False
    estimates_weighted_means: Any = False

    @property
    @abstractmethod
    def identity(self) -> str:
        """The sampler and its options in one line: samplers with equal ones draw the same mini-batches of a plain graph."""

    @property
    def identity_by_type(self) -> str:
        """`identity`, of mini-batches by type and relation."""
        return self.identity

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The name of the sampler and its options, ready for JSON, for messages that compare two samplers."""

    @abstractmethod
    def most_drawn(self, relations: Sequence[Key]) -> tuple[int, ...]:
        """Return a fanout for each hop: the largest of those of some relations, -1 for all."""

    def check(self, adjacency: Adjacency) -> None:  # noqa: B027  # most samplers have a meaning everywhere
        """Raise `UsageError` if this sampler does not support this graph, such as one without weights."""

    def prepared(self, adjacency: Adjacency, seeds: np.ndarray, batch_size: int, stream: Stream) -> Self:
        """Return the sampler that a loader of these seeds uses; some samplers count before the first mini-batch."""
        return self

    def sample_bulk(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int = 0) -> list[MiniBatch]:
        """Sample k mini-batches in one call.

        Parameters
        ----------
        adjacency : Adjacency
        seeds : Selection
            The seeds of each mini-batch, in the numbering of all types; `SeedList.select` makes them, with their times. Empty lists and
            repeated seeds are legal.
        stream : Stream
        epoch : int

        Returns
        -------
        list of k MiniBatch
            Each depends on (graph, sampler, seed, epoch, mini-batch id, its seeds and their times) alone, not on its bulk, the back end,
            the threads or the ranks. With disjoint trees, what a seed draws depends on its tree's name alone, not on the other seeds.

        Raises
        ------
        UsageError
            If seeds lack times, a mini-batch has more seeds than `stride`, or seeds of one tree have different times.
        """
        self.check(adjacency)
        sampled = self._sample(adjacency, seeds, stream, epoch)
        for minibatch in sampled:
            object.__setattr__(minibatch, "seed", stream.seed)  # frozen, and new
        return sampled

    @abstractmethod
    def _sample(self, adjacency: Adjacency, seeds: Selection, stream: Stream, epoch: int) -> list[MiniBatch]:
        """Sample k mini-batches of a graph that has been checked."""

    def table_bytes(self, adjacency: Adjacency, k: int, like: MiniBatch) -> int:
        """Predict the bytes that sampling k > 0 mini-batches like this one takes beside the mini-batches; 0 if unknown."""
        return 0


@dataclass(frozen=True)
class Sampler(AnySampler):
    """A sampler of mini-batches of nested blocks, which draws hop by hop.

    Parameters
    ----------
    fanouts : tuple of int
        How many each hop draws, starting at the seeds: neighbors of a vertex (node-wise) or vertices of a layer
        (layer-wise). -1 takes all; by a law that reads weights, all of positive weight.
    frontier : {"all", "new"}
        ``all`` expands every vertex of the mini-batch so far, with new draws in each layer (the matrix form, DGL's blocks). ``new``
        expands only the vertices not expanded yet, and all lower layers share their draws (torch_geometric).
    """

    reads_frontier: ClassVar[bool] = True  # False: its subgraphs have one rule of their own
    fanouts: tuple[int, ...]
    frontier: Frontier = "all"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", whole_fanouts(self.fanouts))
        for field in self._options():
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

    @classmethod
    def _options(cls) -> list[Field[Any]]:
        """Return the fields of every graph; those by keyword alone are of relations, times and trees."""
        return [field for field in fields(cls) if not field.kw_only]

    @property
    def identity(self) -> str:
        return f"{type(self).__name__}{sorted((field.name, getattr(self, field.name)) for field in self._options())}"

    @property
    def settings(self) -> dict[str, Any]:
        options = {field.name: getattr(self, field.name) for field in self._options()}
        shown = (bool, int, float, str, tuple, type(None))
        return {"sampler": self.name, **{name: value if isinstance(value, shown) else repr(value) for name, value in options.items()}}

    @property
    def estimates_weighted_means(self) -> bool:
        return bool(getattr(self, "weighted", False))

    def most_drawn(self, relations: Sequence[Key]) -> tuple[int, ...]:
        return self.fanouts
