"""Mini-batches of edges for link prediction: b edges of the training graph, and a negative destination for each of them.

    seeds   u_1 .. u_b,  v_1 .. v_b,  w_1 .. w_b        edges u -> v;  w uniform among the vertices that u has no edge to, w != u

Every stored edge except loops is an example once an epoch; an undirected edge is one in both directions. The draw of w names (seed,
epoch, edge, attempt), so it depends on no rank, batch size or bulk. Held-out edges are unknown here and may be drawn as negatives.

An example of a mini-batch may also be among its sampled edges, which gives the answer away. `exclude` removes such edges from the
blocks: ``self`` the examples of the mini-batch, ``both`` also their reverse edges. The default removes none, as DGL and PyG do. Edges
are removed after the draws (as GraphBolt's `exclude_seed_edges` does): the others keep their weights, and a row may have fewer edges
than the fanout.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data.random_words import scaled
from ..errors import UsageError
from ..loader import BulkLoader
from ..minibatch import Block, MiniBatch
from ..rng import Substream
from ..samplers import Sampler
from ..selection import Selection
from ..sparse import CSR, row_pointers
from ..views.view import View

_ATTEMPTS = 100  # after these, a vertex with edges to nearly all others keeps the last draw


class EdgeLoader(BulkLoader):
    """A loader whose examples are the edges of a replicated graph.

    Parameters
    ----------
    exclude : {"none", "self", "both"}
        The edges removed from the blocks of a mini-batch; see above.
    """

    def __init__(self, view: View, sampler: Sampler, exclude: str = "none", **options: Any) -> None:
        a = view.adjacency.whole_matrix
        if a is None:
            raise UsageError("link prediction reads the edges on every rank; got a partitioned graph: use graph replicated")
        if getattr(sampler, "coverage", 0):
            raise UsageError("coverage counts subgraphs whose roots are seeds, but the examples here are edges; use coverage=0")
        self._source, self._destination, self._size = a.indices, a.row_of_entry(), a.shape[0]
        self._keys = self._destination * self._size + self._source  # ascending, as A is canonical
        self._edges, self._exclude = edges_of(a), exclude
        super().__init__(view.adjacency, sampler, np.zeros(len(self._edges), np.int32), **options)

    def _examples(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self._edges[positions])

    def _sample_bulk(self, seeds: Selection, epoch: int) -> list[MiniBatch]:
        sampled = super()._sample_bulk(seeds, epoch)
        return sampled if self._exclude == "none" else [without_targets(m, self._exclude == "both", self._size) for m in sampled]

    def _seeds_of(self, examples: np.ndarray, epoch: int) -> np.ndarray:
        return self.ends(examples, epoch)

    def ends(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """Return the sources, destinations and negative destinations of some edges: int32, shape (3 b,)."""
        source, destination = self._source[edges], self._destination[edges]
        return np.concatenate([source, destination, self._negatives(edges, epoch)]).astype(np.int32)

    def _negatives(self, edges: np.ndarray, epoch: int) -> np.ndarray:
        """Draw for each edge a destination that its source has no edge to: int64, shape (b,)."""
        source, drawn, open_ = self._source[edges].astype(np.int64), np.zeros(len(edges), np.int64), np.arange(len(edges))
        for attempt in range(_ATTEMPTS):
            words = self._stream.words(Substream.EDGE_NEGATIVE.tag(epoch), attempt, vertex=edges[open_])
            drawn[open_] = scaled(words[..., 0], 32, self._size)
            key = drawn[open_] * self._size + source[open_]
            at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            open_ = open_[(self._keys[at] == key) | (drawn[open_] == source[open_])]
            if not len(open_):
                break
        return drawn


def without_targets(minibatch: MiniBatch, reverse: bool, n: int) -> MiniBatch:
    """Return a mini-batch without the sampled edges that are its examples, or their reverse; all vertices stay."""
    source, destination, _ = minibatch.seeds.astype(np.int64).reshape(3, -1)
    targets = [destination * n + source, *([source * n + destination] if reverse else [])]
    left_out = np.concatenate(targets)
    return replace(minibatch, blocks=tuple(_without(block, minibatch.vertices.astype(np.int64), left_out, n) for block in minibatch.blocks))


def _without(block: Block, vertices: np.ndarray, keys: np.ndarray, n: int) -> Block:
    row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    return kept_edges(block, ~np.isin(vertices[row] * n + vertices[block.indices], keys))


def kept_edges(block: Block, keep: np.ndarray) -> Block:
    """Return a block of the edges where a mask is True."""
    indptr = row_pointers(keep)[block.indptr]
    return replace(block, indptr=indptr, indices=block.indices[keep], weights=None if block.weights is None else block.weights[keep])


def edges_of(a: CSR) -> np.ndarray:
    """Return the positions of the entries of A that are no loops: int64."""
    return np.flatnonzero(a.indices != a.row_of_entry())
