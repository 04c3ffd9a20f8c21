"""The graph that some vertices induce, as a graph of its own: what a trainer sees that talks to nobody."""

from __future__ import annotations

import os

import numpy as np

from ..distributed.matrix.graph_block import load_block
from ..graph import Graph
from ..sparse import CSR
from .local import local_graph


def part_of(source: Graph | str | os.PathLike[str], vertices: np.ndarray, label: str | None = None) -> Graph:
    """A[S, S] with the features, labels and splits of S; of a store nothing but the rows of S is read.

    Parameters
    ----------
    source : Graph, or the directory of a store
    vertices : int32, shape (m,)
        S, ascending.
    label : str, optional
        Another column as the label.

    Returns
    -------
    Graph
        Vertex i is ``vertices[i]``. Degrees are those within S; the classes are those of the whole graph.
    """
    if not isinstance(source, Graph):
        block = load_block(source, vertices, label=label)
        rows, features, labels, masks = block.adjacency, block.features, block.labels, block.masks
        unit, classes, name = block.weight_unit, block.num_classes, block.name
    else:
        graph = source.with_label(label) if label else source
        rows, features = graph.adjacency.take(vertices), _rows(graph.features, vertices)
        labels = None if graph.labels is None else graph.labels[vertices]
        masks = {split: mask[vertices] for split, mask in graph.masks.items()}
        unit, classes, name = graph.weight_unit, graph.num_classes, graph.name
    _, matrix = local_graph(vertices, rows, 0)
    return Graph(matrix, unit, features, labels, classes, masks, {}, name)


def _rows(features: np.ndarray | CSR | None, vertices: np.ndarray) -> np.ndarray | CSR | None:
    if features is None:
        return None
    return features.take(vertices) if isinstance(features, CSR) else np.asarray(features[vertices])
