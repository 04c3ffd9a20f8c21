"""A graph in block rows over a process grid: each rank holds c n / p rows of A and of the features.

Every rank also holds the seeds with their labels (12 bytes each, if these are classes) and, if the model uses them, the degrees of
all vertices (4 n bytes).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ..backends.base import Backend
from ..distributed.matrix.feature_exchange import RowExchange
from ..distributed.matrix.graph_block import GraphBlock, load_feature_rows
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.layout import Layout
from ..distributed.matrix.open_graph import OpenBlock
from ..errors import UsageError
from ..minibatch import Block
from ..nn.layers import Input
from ..sparse import CSR
from .features import FeatureSource, checked_features, normalized
from .inference_share import InferenceShare, Neighborhood, compact, even_work
from .remote_features import RemoteFeatures, as_input
from .view import View, mean_weights

OwnRows = Callable[[int, int], Input]  # features of rows a to b - 1 of a block


class OtherFeatures(NamedTuple):
    """Features that do not lie in the block rows of the topology, and the access to those of this rank's block."""

    source: FeatureSource
    own_rows: OwnRows


def rows_of_block(features: RemoteFeatures) -> OwnRows:
    """Return a function that reads the features of own vertices from the block of rows that this rank holds."""
    return lambda a, b: as_input(_consecutive(features.block, a, b))


def fetched_rows(source: FeatureSource, vertices: np.ndarray) -> OwnRows:
    """Return a function that reads the features of the vertices of a block, where this rank or its machine holds all features."""
    return lambda a, b: source.now(vertices[a:b])


def stored_rows(directory: str | os.PathLike[str], vertices: np.ndarray, norm: str) -> OwnRows:
    """Return the access to features in the files of a store, for the vertices of a block."""

    def read(a: int, b: int) -> Input:
        x = load_feature_rows(directory, vertices[a:b])
        assert x is not None
        return as_input(normalized(x, norm))

    return read


class BlockView(View):
    """A view of one block row of a graph.

    Parameters
    ----------
    opened : OpenBlock
        With labels, on a grid of its own: sampling uses its communicators from another thread. With the features of the block, unless
        there are `other` ones.
    grid : ProcessGrid
        Another grid of the same shape, for features and inference.
    split, norm, weighted
        See `WholeView`.
    codec, cache_bytes, access_count, wanted
        The encoding of features on their way, and the cache of frequent rows; see `RowExchange`.
    degrees : bool
        True if the model uses the degrees of all vertices.
    other : OtherFeatures, optional
        Features that lie elsewhere; their norm, codec and cache are their own.

    Attributes
    ----------
    grid : ProcessGrid
    layout : Layout
    block : GraphBlock
    weights : float32, shape (entries of the block,), optional
        The weights of a weighted mean.

    Notes
    -----
    Collective. Each rank sends every other member of the process column its seeds and their labels, and 4 per own row if the model uses
    degrees (kind "topology"). `RowExchange` states the cost of a cache.
    """

    def __init__(
        self, opened: OpenBlock, grid: ProcessGrid, backend: Backend, fingerprint: str, split: str | None = None, norm: str = "none",
        weighted: bool = False, codec: str = "fp32", cache_bytes: int = 0, access_count: np.ndarray | None = None, degrees: bool = True,
        other: OtherFeatures | None = None, wanted: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        block, layout = opened.block, opened.layout
        if block.labels is None:
            raise UsageError(f"training needs labels, and graph {block.name!r} has no labels to train on; import them with the graph")
        self.fingerprint, self.sampling = fingerprint, opened.grid.comm
        self.grid, self.layout, self.block = grid, layout, block
        self.name, self.num_classes = block.name, block.num_classes
        self.adjacency = opened.adjacency(backend)
        self.seeds, self.labels = opened.seeds(split, training=True), opened.labels(split)
        if other is None:
            x = checked_features(block.features, norm, block.name)
            features = RemoteFeatures(grid.column_comm, layout, x, norm, codec, cache_bytes, access_count, wanted)
            other = OtherFeatures(features, rows_of_block(features))
        self.features, self.num_features = other.source, other.source.width
        self._parts = other.source.layout if isinstance(other.source, RemoteFeatures) else layout
        own_degrees, self.weights = mean_weights(block.adjacency.indptr, block.adjacency.values, block.weight_unit, weighted)
        self.all_degrees = None
        if degrees:
            self.all_degrees = torch.from_numpy(opened.gather(own_degrees)[layout.places(np.arange(block.n, dtype=np.int32))])
        self.share = BlockShare(block, layout, grid, other.own_rows, self.features.is_sparse, own_degrees, self.weights)
        tables = layout.nbytes + (0 if self._parts is layout else self._parts.nbytes)
        self.read_bytes = block.read_bytes
        self.memory = {
            "adjacency": block.adjacency.nbytes(),
            "features": self.features.nbytes(),
            "replicated": self.seeds.nbytes + self.labels.nbytes + (4 * block.n if degrees else 0) + tables,
        }

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        return self._parts.part_order(vertices)


class BlockShare(InferenceShare):
    """A share of a block row, which the c members of the process row divide. Ranks fetch sent rows from their owners.

    Rows are numbered by `Layout.places`, which puts the rows of a block next to each other.

    Parameters
    ----------
    block : GraphBlock
    layout : Layout
    grid : ProcessGrid
        Its column fetches hidden rows, its row gathers those of a block.
    own_rows : OwnRows
        The features of rows of the block; sends nothing.
    sparse : bool
        True if they are sparse.
    degrees : float32, shape (m,)
    weights : float32, shape (entries of the block,), optional
    """

    def __init__(
        self, block: GraphBlock, layout: Layout, grid: ProcessGrid, own_rows: OwnRows, sparse: bool, degrees: np.ndarray,
        weights: np.ndarray | None,
    ) -> None:  # fmt: skip
        self._layout, self._grid, self._own_rows = layout, grid, own_rows
        self.comm, self.gathered = grid.comm, grid.replication / grid.comm.size
        self.bounds = even_work(block.adjacency.indptr, grid.replication)
        own = slice(int(self.bounds[grid.column]), int(self.bounds[grid.column + 1]))
        self._own, self._indices, self._weights = own, block.adjacency.indices, weights
        self.n, self.rows, self.sparse = block.n, own.stop - own.start, sparse
        self.edges = int(grid.column_comm.allreduce(np.array([block.adjacency.nnz]), "control")[0])
        self.indptr = block.adjacency.indptr[own.start : own.stop + 1]
        self.degrees = torch.from_numpy(degrees[own])
        self.vertices = block.vertices[own]
        self.labels = None if block.labels is None else block.labels[own]
        self.masks = {split: mask[own] for split, mask in block.masks.items()}
        self.first = int(self._layout.bounds[grid.row]) + own.start

    def places(self, vertices: np.ndarray) -> np.ndarray:
        return self._layout.places(vertices)

    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self._layout.places(self._indices[at]), None if self._weights is None else self._weights[at]

    def features(self, first: int, last: int) -> Input:
        return self._own_rows(self._own.start + first, self._own.start + last)

    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        """Gather the block's rows in the process row; `Neighborhood` fetches rows of other blocks in the process column."""
        grid, rows = self._grid, sent.contiguous().cpu().numpy()
        if grid.replication > 1:
            rows = grid.row_comm.allgather_rows(rows, np.diff(self.bounds), "activations")
        exchange = RowExchange(grid.column_comm, self._layout.bounds, rows, kind="activations")

        def neighborhood(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            entries = slice(self.indptr[a], self.indptr[b])
            sources = self._layout.places(self._indices[entries])
            weights = None if self._weights is None else self._weights[entries]
            own = np.arange(self.first + a, self.first + b)
            block, source_rows, own_slice = compact(self.indptr[a : b + 1] - self.indptr[a], sources, weights, own, self.n)
            return block, torch.from_numpy(exchange.fetch(source_rows)), own_slice

        return neighborhood

    def steps(self, width: int) -> list[tuple[int, int]]:
        """Cut the share into as many ranges as every other member of the process column; the last ones may be empty."""
        own = super().steps(width)
        most = max(self._grid.column_comm.gather_control(len(own)))
        return own + [(self.rows, self.rows)] * (most - len(own))


def _consecutive(x: np.ndarray | CSR, first: int, last: int) -> np.ndarray | CSR:
    return x.take(np.arange(first, last)) if isinstance(x, CSR) else x[first:last]
