"""Views of a graph whose topology every rank holds whole: sampling sends nothing.

Features lie on every rank, in the memory of its machine, or in block rows: the published main placement, in which the features of a
mini-batch arrive by an all-to-all in the process column, and a rank infers the rows of which it holds the features.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.1.
"""

from __future__ import annotations

import numpy as np
import torch

from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..distributed.matrix.grid import ProcessGrid
from ..graph import Graph
from ..graph.minibatch import Block
from ..local_adjacency import LocalAdjacency
from ..nn.layers import Input, Layer
from ..sparse import CSR
from .features import Features, FeatureSource
from .inference_share import InferenceShare, Neighborhood, compact, even_work
from .local import rows_of_graph
from .partitioned import BlockShare, rows_of_block
from .type_features import RemoteFeatures
from .view import BlockRows, Targets, View, as_index, as_weighed, mean_weights


def whole_view(
    graph: Graph, comm: Comm, backend: Backend, fingerprint: str, split: str | None = None, norm: str = "none", weighted: bool = False,
    storage: str = "given", gathering: int = 0, shared_by: Comm | None = None, part_places: np.ndarray | None = None,
) -> View:  # fmt: skip
    """Return a view of the whole graph, with features and labels, whose rows the ranks of `comm` divide in exact inference.

    The vertices to train on are those of a split, by default of the training split, which must hold some. With `weighted`, every mean is
    weighted by the edge weights, and edges of weight 0 are left out, also of the adjacency that mini-batches are drawn from. `storage`,
    `gathering` and `shared_by` are those of `Features`; `part_places` has the place of each vertex in part order, ids by default.
    """
    graph = as_weighed(graph, weighted)
    features = Features(graph, norm, storage, gathering, shared_by)
    targets, share = targets_of(graph, split), WholeShare(graph, features, comm, weighted)
    adjacency = LocalAdjacency(graph.adjacency, backend)
    made = View(graph.name, fingerprint, adjacency, features, targets, share, all_degrees=share.all_degrees)
    made.memory = {
        "adjacency": graph.adjacency.nbytes(),
        "features": features.nbytes(),
        "replicated": 4 * graph.n + targets.nbytes + (0 if part_places is None else part_places.nbytes),
    }
    if part_places is not None:
        made.part_order = part_places.__getitem__
    return made


def feature_block_view(
    graph: Graph, targets: Targets, adjacency: LocalAdjacency, grid: ProcessGrid, features: RemoteFeatures, fingerprint: str, weighted: bool
) -> View:  # fmt: skip
    """Return a view of the whole topology and of one block row of the features, in the block rows of a grid; collective."""
    matrix, layout = graph.adjacency, features.layout
    degrees = mean_weights(matrix.indptr, matrix.values, graph.weight_unit, weighted)[0]
    block = rows_of_graph(graph, layout.members(grid.row))
    own, weights = mean_weights(block.adjacency.indptr, block.adjacency.values, graph.weight_unit, weighted)
    share = BlockShare(BlockRows(grid, layout, block, weights), rows_of_block(features), features.is_sparse, own)
    memory = {
        "adjacency": matrix.nbytes() + block.adjacency.nbytes(),
        "features": features.nbytes(),
        "replicated": 4 * graph.n + targets.nbytes + layout.nbytes,
    }
    all_degrees = torch.from_numpy(degrees)
    return View(graph.name, fingerprint, adjacency, features, targets, share, memory, all_degrees, layout.part_order)


def targets_of(graph: Graph, split: str | None) -> Targets:
    """Return the vertices of a split of a plain graph with labels; by default those of the training split, which must hold some."""
    assert graph.labels is not None
    seeds = graph.seeds(split) if split else graph.default_seeds(training=True)
    return Targets(seeds, graph.labels[seeds], graph.num_classes)


class WholeShare(InferenceShare):
    """An even share of the rows of a graph that every rank holds whole. Sent rows are all-gathered: n rows on every rank."""

    holds_features, gathered = True, 1.0

    def __init__(self, graph: Graph, features: Features, comm: Comm, weighted: bool = False) -> None:
        self._matrix: CSR = as_weighed(graph, weighted).adjacency
        self._features: FeatureSource = features
        self.comm = comm
        self.n, self.edges, self.sparse = graph.n, self._matrix.nnz, features.is_sparse
        degrees, self._weights = mean_weights(self._matrix.indptr, self._matrix.values, graph.weight_unit, weighted)
        self.all_degrees = torch.from_numpy(degrees)
        self.bounds = even_work(self._matrix.indptr, comm.size)
        self.first, last = int(self.bounds[comm.rank]), int(self.bounds[comm.rank + 1])
        self.rows, own = last - self.first, slice(self.first, last)
        self.vertices = np.arange(self.first, last, dtype=np.int32)
        self.indptr, self.degrees = self._matrix.indptr[self.first : last + 1], self.all_degrees[own]
        self.labels = None if graph.labels is None else graph.labels[own]
        self.masks = {split: mask[own] for split, mask in graph.masks.items()}

    def compute_on(self, features: FeatureSource, all_degrees: torch.Tensor) -> None:
        """Take features and degrees from another device from now on."""
        self._features, self.all_degrees = features, all_degrees
        self.degrees = all_degrees[self.first : self.first + self.rows]

    def entries(self, at: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray | None]:
        return self._matrix.indices[at], None if self._weights is None else self._weights[at]

    def features(self, first: int, last: int) -> Input:
        rows: Input = self._features.now(np.arange(self.first + first, self.first + last))
        return rows

    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        rows = sent
        if self.comm.size > 1:
            rows = torch.from_numpy(self.comm.allgather_rows(sent.contiguous().cpu().numpy(), np.diff(self.bounds), "activations"))
        return lambda a, b: (self._block(a, b), rows, slice(self.first + a, self.first + b))

    def distribute_features(self, layer: Layer) -> Neighborhood:
        """Send nothing: each range of rows fetches the features of its own neighbors."""

        def neighborhood(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            rows = self._block(a, b)
            own = np.arange(self.first + a, self.first + b)
            block, vertices, own_slice = compact(rows.indptr, rows.indices, rows.weights, own, self.n)
            return block, layer.send(self._features.now(vertices), self.all_degrees[as_index(vertices)], False), own_slice

        return neighborhood

    def _block(self, a: int, b: int) -> Block:
        """Return rows of the share as a block whose sources are all vertices; its arrays are views."""
        sources, weights = self.entries(slice(self.indptr[a], self.indptr[b]))
        return Block(self.indptr[a : b + 1] - self.indptr[a], sources, weights, self.n)
