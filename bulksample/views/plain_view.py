"""Views of a plain graph: its topology whole on every rank, or in block rows over a process grid.

Sampling from a whole topology sends nothing. Its features lie on every rank, in the memory of its machine, or in block rows: the published
main placement, in which the features of a mini-batch arrive by an all-to-all in the process column, and a rank infers the rows of which it
holds the features. In block rows each rank holds c n / p rows of A and of the features.

Every rank also holds the seeds with their labels (12 bytes each, if these are classes) and, if the model uses them, the degrees of
all vertices (4 n bytes).

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ..backends.base import Backend
from ..distributed.comm.base import Comm
from ..distributed.matrix.feature_exchange import RowExchange
from ..distributed.matrix.graph_block import GraphBlock
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.open_graph import OpenBlock
from ..graph import Graph
from ..graph.minibatch import Block
from ..local_adjacency import LocalAdjacency
from ..nn.layers import Input, Layer
from ..sparse import CSR
from .features import Features, FeatureSource, checked_features
from .inference_share import InferenceShare, Neighborhood, even_work
from .type_features import RemoteFeatures
from .view import BlockRows, Targets, View, as_index, as_weighed, mean_weights, memory

RowReader = Callable[[int, int], Input]  # features of rows a to b - 1 of a block


class BlockFeatures(NamedTuple):
    """Features for a view in block rows."""

    source: FeatureSource
    own_rows: RowReader  # of this rank's block, which sends nothing


def features_of_block(
    opened: OpenBlock, grid: ProcessGrid, norm: str = "none", codec: str = "fp32", cache_bytes: int = 0,
    access_count: np.ndarray | None = None, wanted: np.ndarray | None = None,
) -> BlockFeatures:  # fmt: skip
    """Return features that lie in the block rows of the topology; see `RemoteFeatures` for the options. Collective with a cache."""
    x = checked_features(opened.block.features, norm, opened.block.name)
    features = RemoteFeatures(grid.column_comm, opened.layout, x, norm, codec, cache_bytes, access_count, wanted)
    return BlockFeatures(features, features.own_rows)


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
    replicated = 4 * graph.n + targets.nbytes + (0 if part_places is None else part_places.nbytes)
    made.memory = memory(graph.adjacency.nbytes(), features, replicated)
    if part_places is not None:
        made.part_order = part_places.__getitem__
    return made


def feature_block_view(
    graph: Graph, targets: Targets, adjacency: LocalAdjacency, grid: ProcessGrid, features: RemoteFeatures, fingerprint: str, weighted: bool
) -> View:  # fmt: skip
    """Return a view of the whole topology and of one block row of the features, in the block rows of a grid; collective."""
    matrix, layout = graph.adjacency, features.layout
    degrees = mean_weights(matrix.indptr, matrix.values, graph.weight_unit, weighted)[0]
    members = layout.members(grid.row)
    labels, masks = None if graph.labels is None else graph.labels[members], {split: mask[members] for split, mask in graph.masks.items()}
    block = GraphBlock(members, matrix.take(members), graph.weight_unit, None, labels, graph.num_classes, masks, graph.name)
    block_degrees, weights = mean_weights(block.adjacency.indptr, block.adjacency.values, graph.weight_unit, weighted)
    share = BlockShare(BlockRows(grid, layout, block, weights), features.own_rows, features.is_sparse, block_degrees)
    sizes = memory(matrix.nbytes() + block.adjacency.nbytes(), features, 4 * graph.n + targets.nbytes + layout.nbytes)
    return View(graph.name, fingerprint, adjacency, features, targets, share, sizes, torch.from_numpy(degrees), layout.part_order)


def targets_of(graph: Graph, split: str | None) -> Targets:
    """Return the vertices of a split of a plain graph with labels; by default those of the training split, which must hold some."""
    assert graph.labels is not None
    seeds = graph.seeds(split) if split else graph.default_seeds(training=True)
    return Targets(seeds, graph.labels[seeds], graph.num_classes)


def block_view(
    opened: OpenBlock, grid: ProcessGrid, backend: Backend, features: BlockFeatures, fingerprint: str, split: str | None = None,
    weighted: bool = False, degrees: bool = True,
) -> View:  # fmt: skip
    """Return a view of one block row of a graph with labels; collective.

    Sampling uses the communicators of `opened` from another thread; `grid`, of the same shape, is for features and inference. `split` and
    `weighted` are those of `whole_view`; `degrees` is True if the model uses the degrees of all vertices. Each rank sends every other
    member of the process column its seeds and their labels, and 4 bytes per own row if the model uses degrees (kind "topology").
    """
    block, layout = opened.block, opened.layout
    adjacency = opened.adjacency(backend)
    targets = Targets(opened.seeds(split, training=True), opened.labels(split), block.num_classes)
    parts = features.source.layout if isinstance(features.source, RemoteFeatures) else layout
    own_degrees, weights = mean_weights(block.adjacency.indptr, block.adjacency.values, block.weight_unit, weighted)
    all_degrees = None
    if degrees:
        all_degrees = torch.from_numpy(opened.gather(own_degrees)[layout.places(np.arange(block.n, dtype=np.int32))])
    rows = BlockRows(grid, layout, block, weights)
    replicated = targets.nbytes + (4 * block.n if degrees else 0) + layout.nbytes + (0 if parts is layout else parts.nbytes)
    share = BlockShare(rows, features.own_rows, features.source.is_sparse, own_degrees)
    sizes = memory(block.adjacency.nbytes(), features.source, replicated)
    return View(
        block.name, fingerprint, adjacency, features.source, targets, share, sizes, all_degrees, parts.part_order, rows,
        read_bytes=block.read_bytes, sampling=opened.grid.comm,
    )  # fmt: skip


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
        self.rows, share = last - self.first, slice(self.first, last)
        self.vertices = np.arange(self.first, last, dtype=np.int32)
        self.indptr, self.degrees = self._matrix.indptr[self.first : last + 1], self.all_degrees[share]
        self.labels = None if graph.labels is None else graph.labels[share]
        self.masks = {split: mask[share] for split, mask in graph.masks.items()}

    def compute_on(self, features: FeatureSource, all_degrees: torch.Tensor) -> None:
        """Take features and degrees from another device from now on."""
        self._features, self.all_degrees = features, all_degrees
        self.degrees = all_degrees[self.first : self.first + self.rows]

    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self._matrix.indices[at], None if self._weights is None else self._weights[at]

    def features(self, first: int, last: int) -> Input:
        rows: Input = self._features.now(np.arange(self.first + first, self.first + last))
        return rows

    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        rows = sent
        if self.comm.size > 1:
            rows = torch.from_numpy(self.comm.allgather_rows(sent.contiguous().cpu().numpy(), np.diff(self.bounds), "activations"))

        def neighborhood(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            entries = slice(self.indptr[a], self.indptr[b])  # the sources of a block are all vertices, and its arrays are views
            weights = None if self._weights is None else self._weights[entries]
            block = Block(self.indptr[a : b + 1] - self.indptr[a], self._matrix.indices[entries], weights, self.n)
            return block, rows, slice(self.first + a, self.first + b)

        return neighborhood

    def distribute_features(self, layer: Layer) -> Neighborhood:
        """Send nothing: each range of rows fetches the features of its own neighbors."""

        def neighborhood(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            block, vertices = self.block_of(np.arange(a, b))
            return block, layer.send(self._features.now(vertices), self.all_degrees[as_index(vertices)], False), slice(0, b - a)

        return neighborhood


class BlockShare(InferenceShare):
    """A share of a block row, which the c members of the process row divide. Ranks fetch sent rows from their owners.

    Rows are numbered by `Layout.places`, which puts the rows of a block next to each other. The column of the grid fetches hidden rows, its
    row gathers those of a block.
    """

    def __init__(self, rows: BlockRows, own_rows: RowReader, sparse: bool, degrees: np.ndarray) -> None:
        grid, block = rows.grid, rows.block
        self._layout, self._grid, self._own_rows = rows.layout, grid, own_rows
        self.comm, self.gathered = grid.comm, grid.replication / grid.comm.size
        self.bounds = even_work(block.adjacency.indptr, grid.replication)
        share = slice(int(self.bounds[grid.column]), int(self.bounds[grid.column + 1]))
        self._own, self._indices, self._weights = share, block.adjacency.indices, rows.weights
        self.n, self.rows, self.sparse = block.n, share.stop - share.start, sparse
        self.edges = int(grid.column_comm.allreduce(np.array([block.adjacency.nnz]), "control")[0])
        self.indptr = block.adjacency.indptr[share.start : share.stop + 1]
        self.degrees = torch.from_numpy(degrees[share])
        self.vertices = block.vertices[share]
        self.labels = None if block.labels is None else block.labels[share]
        self.masks = {split: mask[share] for split, mask in block.masks.items()}
        self.first = int(self._layout.bounds[grid.row]) + share.start

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
            block, places = self.block_of(np.arange(a, b))
            return block, torch.from_numpy(exchange.fetch(places)), slice(0, b - a)

        return neighborhood

    def steps(self, width: int) -> list[tuple[int, int]]:
        """Cut the share into as many ranges as every other member of the process column; the last ones may be empty."""
        cuts = super().steps(width)
        most = max(self._grid.column_comm.gather_control(len(cuts)))
        return cuts + [(self.rows, self.rows)] * (most - len(cuts))
