"""Cut a part of a graph out as a graph of its own: the rows of some vertices, renumbered, with or without their halo."""

from __future__ import annotations

import os

import numpy as np

from ..distributed.matrix.graph_block import load_block
from ..graph import Graph
from ..sparse import CSR, row_pointers


def part_of(source: Graph | str | os.PathLike[str], vertices: np.ndarray, label: str | None = None, target: str | None = None) -> Graph:
    """Return the subgraph A[S, S] induced by S, with its features, labels and splits. Of a store, only the rows of S are read.

    Parameters
    ----------
    source : Graph, or the directory of a store
    vertices : int32, shape (m,)
        S, ascending.
    label, target : str, optional
        Another column to use as the label, and the target that the label shall be.

    Returns
    -------
    Graph
        Vertex i is ``vertices[i]``. Degrees are those within S; the classes are those of the whole graph.
    """
    if not isinstance(source, Graph):
        block = load_block(source, vertices, label=label, target=target)
        rows, features, labels, masks = block.adjacency, block.features, block.labels, block.masks
        unit, classes, name = block.weight_unit, block.num_classes, block.name
    else:
        graph = source.with_label(label, target)
        rows, features = graph.adjacency.take(vertices), _take(graph.features, vertices)
        labels = None if graph.labels is None else graph.labels[vertices]
        masks = {split: mask[vertices] for split, mask in graph.masks.items()}
        unit, classes, name = graph.weight_unit, graph.num_classes, graph.name
    _, matrix = local_graph(vertices, rows, 0)
    return Graph(matrix, unit, features, labels, classes, masks, {}, name)


def local_graph(seen: np.ndarray, rows: CSR, halo: int | None) -> tuple[np.ndarray, CSR]:
    """Renumber the vertices that a rank sees, and their halo.

    Parameters
    ----------
    seen : int32, shape (m,), ascending
    rows : CSR, shape (m, n)
        The rows of these vertices; columns are vertices of the whole graph.
    halo : int, optional
        Keep at most this many halo vertices: those whose edges complete most, an edge into v counting 1 / d_v. All by default.

    Returns
    -------
    vertices : int32, shape (m + h,)
        `seen`, then the halo vertices.
    matrix : CSR, shape (m + h, m + h)
        The rows of halo vertices are empty.
    """
    m = len(seen)
    inner, inside = _find(seen, rows.indices)
    outside = np.unique(rows.indices[~inside])
    if halo is not None and len(outside) > halo:
        outside = _most_completing(outside, rows, ~inside, halo)
    outer, known = _find(outside, rows.indices)
    keep = inside | known
    size, row = m + len(outside), rows.row_of_entry()[keep]
    column = np.where(inside, inner, m + outer)[keep]
    order = np.argsort(row * size + column, kind="stable")
    indptr = row_pointers(np.bincount(row, minlength=size))
    values = None if rows.values is None else rows.values[keep][order]
    matrix = CSR(indptr, column[order].astype(np.int32), values, (size, size))
    return np.concatenate([seen, outside]).astype(np.int32), matrix


def _find(ids: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each wanted id among ascending ids, and True for the ids that are there."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return at, ids[at] == wanted


def _most_completing(outside: np.ndarray, rows: CSR, away: np.ndarray, count: int) -> np.ndarray:
    """Choose the `count` outside vertices whose edges complete the largest share of rows; ascending. Ties go to the lower id."""
    share = np.repeat(1.0 / np.maximum(rows.degrees, 1), rows.degrees)[away]  # rows are complete wherever there is a halo
    gain = np.bincount(np.searchsorted(outside, rows.indices[away]), share, minlength=len(outside))
    return np.sort(outside[np.argsort(-gain, kind="stable")[:count]])


def _take(features: np.ndarray | CSR | None, vertices: np.ndarray) -> np.ndarray | CSR | None:
    if features is None:
        return None
    return features.take(vertices) if isinstance(features, CSR) else np.asarray(features[vertices])
