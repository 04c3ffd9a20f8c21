"""A graph that every rank holds whole: sampling and features need no communication."""

from __future__ import annotations

import numpy as np
import torch

from ..adjacency import LocalAdjacency
from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..graph import Graph
from ..minibatch import Block
from ..nn.layers import Input, Layer
from ..sparse import CSR
from .features import Features, FeatureSource
from .inference_share import InferenceShare, Neighborhood, compact, even_work
from .view import View, as_index, as_weighed, mean_weights


class WholeView(View):
    """A view of the whole graph.

    Parameters
    ----------
    graph : Graph
        With features and labels.
    comm : Comm
        The ranks that divide the rows in exact inference.
    split : str, optional
        The vertices to train on; by default the training split, which must hold some.
    weighted : bool
        Weight every mean by the edge weights. Edges of weight 0 are left out, also of the adjacency that mini-batches are drawn from.
    storage, gathering, shared_by
        `storage`, `threads` and `shared_by` of `Features`.
    part_places : int32, shape (n,), optional
        The place of each vertex in part order; ids by default.
    """

    def __init__(
        self, graph: Graph, comm: Comm, backend: Backend, fingerprint: str, split: str | None = None, norm: str = "none",
        weighted: bool = False, storage: str = "given", gathering: int = 0, shared_by: Comm | None = None,
        part_places: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        graph = as_weighed(graph, weighted)
        assert graph.labels is not None
        self.graph, self.fingerprint = graph, fingerprint
        self.name, self.num_features, self.num_classes = graph.name, graph.num_features, graph.num_classes
        self.features = Features(graph, norm, storage, gathering, shared_by)
        self.adjacency = LocalAdjacency(graph.adjacency, backend)
        self.seeds = graph.seeds(split) if split else graph.default_seeds(training=True)
        self.labels = graph.labels[self.seeds]
        self.share = WholeShare(graph, self.features, comm, weighted)
        self.all_degrees = self.share.all_degrees
        self.memory = {
            "adjacency": graph.adjacency.nbytes(),
            "features": self.features.nbytes(),
            "replicated": 4 * graph.n + self.seeds.nbytes + self.labels.nbytes + (0 if part_places is None else part_places.nbytes),
        }
        self._part_places = part_places

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        return vertices if self._part_places is None else self._part_places[vertices]


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

    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self._matrix.indices[at], None if self._weights is None else self._weights[at]

    def features(self, first: int, last: int) -> Input:
        return self._features.now(np.arange(self.first + first, self.first + last))

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
        entries = slice(self.indptr[a], self.indptr[b])
        weights = None if self._weights is None else self._weights[entries]
        return Block(self.indptr[a : b + 1] - self.indptr[a], self._matrix.indices[entries], weights, self.n)
