"""Measure what training on single parts of a partition loses: edges between parts, label proportions, isolated vertices.

Parts with few cut edges keep neighborhoods but differ in their labels. Random parts have equal labels but lose neighbors. A method
that averages the models of parts suffers from both losses, so they are reported before it starts.
"""

from __future__ import annotations

import numpy as np

from ...sparse import CSR, row_pieces

_PIECE = 2**22


def tradeoff(adjacency: CSR, labels: np.ndarray | None, assignment: np.ndarray, parts: int) -> dict[str, float]:
    """Return three shares that describe a partition, given the part of each vertex (int32, shape (n,)).

    "edges_kept" is the share of edges within a part. "label_distance" is the total variation, 1/2 sum over classes of |share in the part -
    share in the graph|, averaged over parts that have labels; numbers have no proportions, and count as no labels. "isolated" is the share
    of vertices that have in-neighbors in the graph but none in their part. A random partition keeps 1 / parts of the edges in expectation,
    and isolates the mean of (1 - 1 / parts)**degree over vertices of positive degree.
    """
    kept, alone = 0, 0
    for first, last in row_pieces(adjacency.indptr, _PIECE):
        degrees = np.diff(adjacency.indptr[first : last + 1])
        entries = slice(int(adjacency.indptr[first]), int(adjacency.indptr[last]))
        row = np.repeat(np.arange(last - first), degrees)
        near = assignment[first:last][row] == assignment[adjacency.indices[entries]]
        kept += int(near.sum())
        alone += int(((degrees > 0) & (np.bincount(row[near], minlength=last - first) == 0)).sum())
    counts = _count_labels(labels, assignment, parts)
    some = counts.sum(1) > 0
    shares = counts[some] / counts[some].sum(1, keepdims=True)
    whole = counts.sum(0) / max(1.0, counts.sum())
    return {
        "edges_kept": kept / adjacency.nnz if adjacency.nnz else 1.0,
        "label_distance": float(np.abs(shares - whole).sum(1).mean() / 2) if some.any() else 0.0,
        "isolated": alone / len(assignment) if len(assignment) else 0.0,
    }


def balances(adjacency: CSR, assignment: np.ndarray, parts: int, train: np.ndarray | None = None) -> dict[str, float]:
    """Return the largest part over the mean, 1 at best: of vertices, of entries of A, and of training vertices if there are any."""
    loads = np.zeros((3, parts), np.int64)
    for first in range(0, len(assignment), _PIECE):
        part_of_each, at = assignment[first : first + _PIECE], slice(first, first + _PIECE)
        degrees = np.diff(adjacency.indptr[first : first + len(part_of_each) + 1])
        for load, weight in zip(loads, (None, degrees, None if train is None else train[at]), strict=True):
            load += np.bincount(part_of_each, weight, parts).astype(np.int64)
    names = ("vertices", "entries", "training_vertices")[: 2 if train is None else 3]
    return {name: float(load.max() / load.mean()) if load.any() else 1.0 for name, load in zip(names, loads, strict=False)}


def _count_labels(labels: np.ndarray | None, assignment: np.ndarray, parts: int) -> np.ndarray:
    """Count the vertices of each class in each part: shape (parts, classes)."""
    if labels is None or labels.dtype.kind == "f":
        return np.zeros((parts, 1))
    vertices, classes = np.nonzero(labels == 1) if labels.ndim == 2 else (np.flatnonzero(labels >= 0), labels[labels >= 0])
    counts = np.zeros((parts, labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=0)) + 1))
    np.add.at(counts, (assignment[vertices], classes), 1)
    return counts
