"""Compute statistics of a graph: degrees, directions, homophily, labels, splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph
from ..labels import has_label, is_known, unused_classes
from ..sparse import CSR

_STEP = 2**22


def describe(graph: Graph) -> dict[str, Any]:
    """Return statistics of a graph, with edge homophily if it has labels. Reads the adjacency once, in pieces."""
    degrees = graph.adjacency.degrees
    figures: dict[str, Any] = {
        "degree_mean": float(degrees.mean()) if graph.n else 0.0,
        "degree_median": float(np.median(degrees)) if graph.n else 0.0,
        "degree_max": int(degrees.max(initial=0)),
        **_of_directions(graph.adjacency),
    }
    if graph.labels is not None:
        figures |= _of_labels(graph, graph.labels)
    figures["split_sizes"] = {name: int(mask.sum()) for name, mask in graph.masks.items()}
    return figures


def _of_directions(a: CSR) -> dict[str, Any]:
    """Count edges by direction; the counts show if edges were read in the wrong direction.

    Returns
    -------
    dict
        `symmetric`, True if every edge has its reverse; `edges_with_reverse`, the share of such edges; and the numbers of `self_loops`,
        of vertices `without_in_edges`, and of `isolated` vertices, which no edge touches.
    """
    touched, loops, reversed_too = a.degrees > 0, 0, 0
    for first in range(0, a.nnz, _STEP):
        entries = np.arange(first, min(first + _STEP, a.nnz))
        rows, columns = np.searchsorted(a.indptr, entries, side="right") - 1, np.asarray(a.indices[entries], np.int64)
        touched[columns] = True
        loops += int((rows == columns).sum())
        reversed_too += int(_holds(a, columns, rows).sum())
    return {
        "symmetric": reversed_too == a.nnz,
        "edges_with_reverse": reversed_too / a.nnz if a.nnz else 1.0,
        "self_loops": loops,
        "without_in_edges": int((a.degrees == 0).sum()),
        "isolated": int((~touched).sum()),
    }


def _holds(a: CSR, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return True for each entry (row, column) that the matrix holds, by a binary search in each row."""
    low, high = a.indptr[rows].astype(np.int64), a.indptr[rows + 1].astype(np.int64)
    ends = high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        below = open_ & (a.indices[np.minimum(middle, a.nnz - 1)] < columns)
        low, high = np.where(below, middle + 1, low), np.where(open_ & ~below, middle, high)
    found: np.ndarray = (low < ends) & (a.indices[np.minimum(low, a.nnz - 1)] == columns)
    return found


def _of_labels(graph: Graph, labels: np.ndarray) -> dict[str, Any]:
    """Return the number of labelled vertices; for classes also homophily and unused classes, for other labels the known share."""
    figures: dict[str, Any] = {"labelled": int(has_label(labels).sum())}
    if graph.target == "class":
        return figures | {"classes_without_vertex": unused_classes(labels, graph.num_classes), "homophily": edge_homophily(graph)}
    return figures | {"known_labels": float(is_known(labels).mean()) if labels.size else 0.0}


def edge_homophily(graph: Graph) -> float:
    """Return the share of edges within a class, among edges with a label at both ends; NaN if there is no such edge."""
    labels, a = graph.labels, graph.adjacency
    if labels is None:
        return float("nan")
    same = both = 0
    for first in range(0, a.nnz, _STEP):
        entries = np.arange(first, min(first + _STEP, a.nnz))
        rows = np.searchsorted(a.indptr, entries, side="right") - 1
        y, z = labels[rows], labels[a.indices[entries]]
        known = (y >= 0) & (z >= 0)
        same += int(((y == z) & known).sum())
        both += int(known.sum())
    return same / both if both else float("nan")
