"""A graph whose topology every rank holds whole, with features in block rows: the published main placement.

Sampling sends nothing. Features of a mini-batch arrive by an all-to-all in the process column. In exact inference a rank computes the rows
of which it holds the features.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.1.
"""

from __future__ import annotations

import numpy as np
import torch

from ..adjacency import LocalAdjacency
from ..backends.base import Backend
from ..distributed.matrix.graph_block import GraphBlock
from ..distributed.matrix.grid import ProcessGrid
from ..graph import Graph
from .partitioned import BlockShare, rows_of_block
from .remote_features import RemoteFeatures
from .view import View, mean_weights


class FeatureBlockView(View):
    """A view of the whole topology and of one block row of the features; `take_features` completes it.

    Parameters
    ----------
    graph : Graph
        With labels, without features.
    split : str, optional
        The vertices to train on; by default the training split, which must hold some.
    """

    def __init__(self, graph: Graph, backend: Backend, fingerprint: str, split: str | None = None) -> None:
        assert graph.labels is not None
        self.graph, self.name, self.num_classes, self.fingerprint = graph, graph.name, graph.num_classes, fingerprint
        self.adjacency = LocalAdjacency(graph.adjacency, backend)
        self.seeds = graph.seeds(split) if split else graph.default_seeds(training=True)
        self.labels = graph.labels[self.seeds]

    def take_features(self, grid: ProcessGrid, features: RemoteFeatures, weighted: bool) -> None:
        """Fetch features from the ranks of a process column from now on; collective.

        Parameters
        ----------
        grid : ProcessGrid
        features : RemoteFeatures
            In block rows of that grid.
        weighted : bool
            Weight every mean by the edge weights.
        """
        graph, matrix = self.graph, self.graph.adjacency
        self.features, self.num_features, self._parts = features, features.width, features.layout
        self.all_degrees = torch.from_numpy(mean_weights(matrix.indptr, matrix.values, graph.weight_unit, weighted)[0])
        block = rows_of_graph(graph, features.layout.members(grid.row))
        own, of_entries = mean_weights(block.adjacency.indptr, block.adjacency.values, graph.weight_unit, weighted)
        self.share = BlockShare(block, features.layout, grid, rows_of_block(features), features.is_sparse, own, of_entries)
        self.memory = {
            "adjacency": matrix.nbytes() + block.adjacency.nbytes(),
            "features": features.nbytes(),
            "replicated": 4 * graph.n + self.seeds.nbytes + self.labels.nbytes + features.layout.nbytes,
        }

    def part_order(self, vertices: np.ndarray) -> np.ndarray:
        return self._parts.part_order(vertices)


def rows_of_graph(graph: Graph, vertices: np.ndarray) -> GraphBlock:
    """Return the rows of some vertices, ascending, of a graph in memory, without features."""
    return GraphBlock(
        vertices, graph.adjacency.take(vertices), graph.weight_unit, None, None if graph.labels is None else graph.labels[vertices],
        graph.num_classes, {split: mask[vertices] for split, mask in graph.masks.items()}, graph.name,
    )  # fmt: skip
