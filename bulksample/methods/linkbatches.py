"""Minibatches of edges for link prediction: b edges of the training graph, and for each another destination that it is told from.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the vertices that u has no edge to, w != u

Every stored edge but a loop is an example once an epoch, an undirected one in both directions. The draw of w names (seed, epoch, edge,
attempt), so it depends on no rank, batch size or bulk; held-out edges are unknown here and may be drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..adjacency import LocalAdjacency
from ..data.words import scaled
from ..errors import UsageError
from ..gnn.view import View
from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..rng import Purpose
from ..samplers import Sampler
from ..selection import Selection
from ..sparse import CSR

_ATTEMPTS = 100  # beyond them a vertex that is joined to nearly all others keeps what was drawn last


class EdgeLoader(BulkLoader):
    """A loader whose examples are the edges of a graph that lies in this process."""

    def __init__(self, view: View, sampler: Sampler, **options: Any) -> None:
        if not isinstance(view.adjacency, LocalAdjacency):
            raise UsageError("link prediction needs the edges beside it; a replicated graph would fit")
        a = view.adjacency.matrix
        self._source, self._destination, self._size = a.indices, a.row_of_entry(), a.shape[0]
        self._keys = self._destination * self._size + self._source  # ascending, as A is canonical
        self._edges = edges_of(a)
        super().__init__(view.adjacency, sampler, np.zeros(len(self._edges), np.int32), **options)

    def _order(self) -> np.ndarray:
        return self._edges[self._stream.permutation(len(self._edges), self.epoch)] if self._shuffle else self._edges

    def _sample(self, order: np.ndarray, epoch: int, start: int) -> list[MiniBatch | None]:
        steps = range(start, min(start + self.bulk_size, self.steps))
        ids = [t * self._ranks + self._rank for t in steps]
        own = [i for i in ids if i < self._minibatches]
        lists = [self.ends(order[i * self._batch_size : (i + 1) * self._batch_size], epoch) for i in own]
        seeds = Selection.of(lists, self._adjacency.n, np.array(own, np.int64))
        sampled = self._sampler.sample_bulk(self._adjacency, seeds, self._stream, epoch)
        return [*sampled, *[None] * (len(ids) - len(own))]

    def ends(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """Sources, destinations and other destinations of some edges: int32, shape (3 b,)."""
        source, destination = self._source[edges], self._destination[edges]
        return np.concatenate([source, destination, self._others(edges, epoch)]).astype(np.int32)

    def _others(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """A destination for each edge that its source has no edge to: int64, shape (b,)."""
        source, drawn, open_ = self._source[edges].astype(np.int64), np.zeros(len(edges), np.int64), np.arange(len(edges))
        for attempt in range(_ATTEMPTS):
            words = self._stream.words(Purpose.NEGATIVE, attempt, vertex=edges[open_], epoch=epoch)
            drawn[open_] = scaled(words[..., 0], 32, self._size)
            key = drawn[open_] * self._size + source[open_]
            at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            open_ = open_[(self._keys[at] == key) | (drawn[open_] == source[open_])]
            if not len(open_):
                break
        return drawn


def edges_of(a: CSR) -> np.ndarray:
    """The entries of A that are no loops: int64."""
    return np.flatnonzero(a.indices != a.row_of_entry())


def examples(task: str, view: View) -> int:
    """How many examples a rank has: seeds, or edges."""
    if task == "links":
        assert isinstance(view.adjacency, LocalAdjacency)
        return len(edges_of(view.adjacency.matrix))
    return len(view.seeds)


def loader_of(task: str, view: View, sampler: Sampler, **options: Any) -> BulkLoader:
    """A loader of the examples of a task."""
    if task == "links":
        return EdgeLoader(view, sampler, **options)
    return BulkLoader(view.adjacency, sampler, view.seeds, **options)
