"""Minibatches of edges for link prediction: b edges of the training graph, and for each another destination that it is told from.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the vertices that u has no edge to, w != u

Every stored edge but a loop is an example once an epoch, an undirected one in both directions. The draw of w names (seed, epoch, edge,
attempt), so it depends on no rank, batch size or bulk; held-out edges are unknown here and may be drawn.

An edge that a minibatch is asked about may also be among the edges that it sampled, and gives its answer away. `exclude` takes such edges
out of its blocks: ``self`` those of its examples, ``both`` also their reverse ones. None are, unless asked, as in DGL and PyG. They are
taken out after the draws (as GraphBolt's `exclude_seed_edges` does): other edges keep their weights, and a row may have fewer than fanout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..config.train import TrainOptions
from ..data.random_words import scaled
from ..errors import UsageError
from ..loader import BulkLoader
from ..minibatch import Block, MiniBatch
from ..rng import Purpose
from ..samplers import Sampler
from ..selection import Selection
from ..sparse import CSR
from ..views.view import View

_ATTEMPTS = 100  # beyond them a vertex that is joined to nearly all others keeps what was drawn last


class EdgeLoader(BulkLoader):
    """A loader whose examples are the edges of a graph that lies in this process.

    Parameters
    ----------
    exclude : {"none", "self", "both"}
        Which edges of its examples a minibatch does not pass messages along.
    """

    def __init__(self, view: View, sampler: Sampler, exclude: str = "none", **options: Any) -> None:
        a = view.adjacency.whole_matrix
        if a is None:
            raise UsageError("link prediction needs the edges beside it; a replicated graph would fit")
        self._source, self._destination, self._size = a.indices, a.row_of_entry(), a.shape[0]
        self._keys = self._destination * self._size + self._source  # ascending, as A is canonical
        self._edges, self._exclude = edges_of(a), exclude
        super().__init__(view.adjacency, sampler, np.zeros(len(self._edges), np.int32), **options)

    def _order(self) -> np.ndarray:
        return self._edges[self._stream.permutation(len(self._edges), self.epoch)] if self._shuffle else self._edges

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[MiniBatch]:
        sampled = super()._sample_bulk(seeds, epoch)
        return sampled if self._exclude == "none" else [without_targets(m, self._exclude == "both", self._size) for m in sampled]

    def _seeds_of(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        return self.ends(examples, epoch)

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


def without_targets(minibatch: MiniBatch, reverse: bool, n: int) -> MiniBatch:
    """A minibatch of edges without those of its sampled edges that it is asked about, and without their reverse; all vertices stay."""
    source, destination, _ = minibatch.seeds.astype(np.int64).reshape(3, -1)
    targets = [destination * n + source, *([source * n + destination] if reverse else [])]
    left_out = np.concatenate(targets)
    return replace(minibatch, blocks=tuple(_without(block, minibatch.vertices.astype(np.int64), left_out, n) for block in minibatch.blocks))


def _without(block: Block, vertices: np.ndarray, keys: np.ndarray, n: int) -> Block:
    row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    keep = ~np.isin(vertices[row] * n + vertices[block.indices], keys)
    indptr = np.concatenate([[0], np.cumsum(keep)])[block.indptr]
    return replace(block, indptr=indptr, indices=block.indices[keep], weights=None if block.weights is None else block.weights[keep])


def edges_of(a: CSR) -> np.ndarray:
    """The entries of A that are no loops: int64."""
    return np.flatnonzero(a.indices != a.row_of_entry())


def examples(task: str, view: View) -> int:
    """How many examples a rank has: seeds, or edges."""
    if task == "links":
        assert view.adjacency.whole_matrix is not None
        return len(edges_of(view.adjacency.whole_matrix))
    return len(view.seeds)


def loader_of(config: TrainOptions, view: View, sampler: Sampler, **options: Any) -> BulkLoader:
    """A loader of the examples of the task of a run."""
    if config.task == "links":
        return EdgeLoader(view, sampler, config.exclude_targets, **options)
    return BulkLoader(view.adjacency, sampler, view.seeds, **options)
