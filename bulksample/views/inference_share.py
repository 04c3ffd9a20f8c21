"""A rank's share of the rows in exact inference, and how the rank gets what the neighbors of these rows send.

A share is a range of consecutive rows of A. `evaluation.inference` computes the share layer by layer; the classes derived from
`InferenceShare` know where the graph is: `WholeShare`, `BlockShare`, and `DeviceShare` for a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.inference_memory import CHUNK_NUMBERS
from ..graph.minibatch import Block
from ..nn.layers import Input, Layer
from ..sparse import row_pointers, runs

_TABLE = 4  # entries of a table that cost as much as sorting one id

# From rows [a, b) of a share: their edges as a block, what the block's sources sent, and the slice of sources that are the rows themselves.
Neighborhood = Callable[[int, int], tuple[Block, torch.Tensor, slice]]


@dataclass(eq=False)
class ScoredRows:
    """Some vertices of a graph that this rank scores, with their labels and splits; by default none."""

    vertices: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))  # of each row
    labels: np.ndarray | None = None  # int64 of shape (rows,), or int8 or float32 of shape (rows, t)
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    streamed: bool = False  # the newest inference streamed its rows
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = len(self.vertices)


class InferenceShare(ScoredRows, ABC):
    """The rows of A that this rank computes in exact inference, counted from 0."""

    chunk_numbers = CHUNK_NUMBERS  # that may be held at once in addition to the rows themselves
    n: int  # vertices of the whole graph
    edges: int  # of the whole graph
    indptr: np.ndarray  # int64, shape (rows + 1,)
    degrees: torch.Tensor  # float32, shape (rows,): (weighted) degrees
    sparse: bool  # the features are
    holds_features: bool = False  # every rank has the features of all vertices
    comm: Comm  # the ranks whose shares together are the whole graph
    gathered: float  # the share of all sent rows that `distribute` holds in memory
    first: int  # the place of the first row, in an order of all vertices in which every share is a range
    _in_order: tuple[Comm, np.ndarray] | None = None

    @abstractmethod
    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the places of the sources, and the weights, of some entries; `indptr` counts the entries."""

    @property
    def in_order(self) -> tuple[Comm, np.ndarray]:
        """The ranks in the order of their places, and the places at which the shares begin and end: int64, shape (p + 1,); collective."""
        if self._in_order is None:  # no cached_property: its lock would be held during a collective call
            comm = self.comm.split(0, self.first)
            counts = comm.allgather(np.array([self.rows]), "control")[:, 0]
            self._in_order = comm, row_pointers(counts)
        return self._in_order

    def places(self, vertices: np.ndarray) -> np.ndarray:
        """Return the place of each vertex in that order."""
        return vertices

    def put(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows on the device that computes."""
        return rows

    def block_of(self, rows: np.ndarray) -> tuple[Block, np.ndarray]:
        """Return any own rows, ascending, as a block, and the places of its sources: those of the rows, then the others, ascending.

        A table of 5 n bytes numbers places in a few ns an entry, sorting in some 50; few entries are sorted.
        """
        begin, row_places = self.indptr[rows], self.first + rows
        counts = self.indptr[rows + 1] - begin
        sources, weights = self.entries(runs(begin, counts))
        if self.n > _TABLE * len(sources):
            places = np.concatenate([row_places, np.setdiff1d(sources, row_places)])
            order = np.argsort(places)
            local = order[np.searchsorted(places, sources, sorter=order)].astype(np.int32)
        else:
            named, number = np.zeros(self.n, bool), np.empty(self.n, np.int32)
            named[sources], named[row_places] = True, False
            places = np.concatenate([row_places, np.flatnonzero(named)])
            number[places] = np.arange(len(places), dtype=np.int32)
            local = number[sources]
        return Block(row_pointers(counts), local, weights, len(places)), places

    @abstractmethod
    def features(self, first: int, last: int) -> Input:
        """Return the features of rows `first` to `last` - 1."""

    @abstractmethod
    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        """Send the rows `sent`, one for each row of this share, to every rank that aggregates them; collective (kind "activations").

        The function returned takes (a, b) and returns the block of rows a to b - 1 of the share, the rows sent by the sources of the block,
        and the slice of the sources that are rows a to b - 1. Call it for the ranges of `steps`, in their order.
        """

    def distribute_features(self, layer: Layer) -> Neighborhood:
        """Do the same for a layer that aggregates raw features."""
        return self.distribute(self.sent(layer, None, False))

    def steps(self, width: int) -> list[tuple[int, int]]:
        """Cut the share into ranges whose edges, with `width` numbers each, fit in `chunk_numbers`: at least one row each."""
        return list(edge_steps(self.indptr, max(1, self.chunk_numbers // max(1, width))))

    def inputs(self, hidden: torch.Tensor | None, first: int, last: int) -> Input:
        """Return rows of the layer below: rows of `hidden`, or of the features if that is None."""
        return self.features(first, last) if hidden is None else hidden[first:last]

    def sent(self, layer: Layer, hidden: torch.Tensor | None, transforms: bool) -> torch.Tensor:
        """Compute what all rows of the share send to a layer; `hidden` as in `inputs`."""
        step = max(1, self.chunk_numbers // max(layer.width_in, layer.width_out))
        cuts = [(a, min(a + step, self.rows)) for a in range(0, self.rows, step)] or [(0, 0)]
        return torch.cat([layer.send(self.inputs(hidden, a, b), self.degrees[a:b], transforms) for a, b in cuts])


def edge_steps(indptr: np.ndarray, edges: int) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of about `edges` edges and rows together, at least one row each."""
    work, a, rows = indptr - indptr[0] + np.arange(len(indptr)), 0, len(indptr) - 1
    while a < rows:
        b = int(np.searchsorted(work, work[a] + edges, side="right")) - 1
        b = min(max(b, a + 1), rows)
        yield a, b
        a = b


def even_work(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Cut rows into `parts` ranges of about equal work, the number of edges and rows: int64, shape (parts + 1,)."""
    work = indptr - indptr[0] + np.arange(len(indptr))
    inner = np.searchsorted(work, np.linspace(0, work[-1], parts + 1)[1:-1])
    return np.array([0, *inner, len(indptr) - 1], np.int64)
