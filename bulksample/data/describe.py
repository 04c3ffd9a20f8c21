"""Compute statistics of a graph: degrees, homophily, labels, splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph
from ..labels import has_label, is_known, unused_classes

_STEP = 2**22


def describe(graph: Graph) -> dict[str, Any]:
    """Return statistics of a graph, with edge homophily if it has labels. Reads the adjacency once, in pieces."""
    degrees = graph.adjacency.degrees
    figures: dict[str, Any] = {
        "degree_mean": float(degrees.mean()) if graph.n else 0.0,
        "degree_median": float(np.median(degrees)) if graph.n else 0.0,
        "degree_max": int(degrees.max(initial=0)),
        "isolated": int((degrees == 0).sum()),
    }
    if graph.labels is not None:
        figures |= _of_labels(graph, graph.labels)
    figures["split_sizes"] = {name: int(mask.sum()) for name, mask in graph.masks.items()}
    return figures


def _of_labels(graph: Graph, labels: np.ndarray) -> dict[str, Any]:
    """Return the number of vertices with a label, and what describes labels of its kind."""
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
