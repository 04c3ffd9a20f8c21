"""Compute statistics of a heterogeneous graph: time ranges, degrees, and vertices without edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Graph, Relation, VertexType
from ..columns import Array

_STEP = 2**22


def describe_types(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return for each type its first and last time, the sizes of its splits, and the number of vertices that no edge touches."""
    touched = {kind.name: np.zeros(kind.count, bool) for kind in graph.types}
    for relation in graph.relations:
        touched[relation.destination] |= relation.adjacency.degrees > 0
        touched[relation.source] |= _used(relation)
    return {kind.name: {**_of_type(kind), "isolated": int((~touched[kind.name]).sum())} for kind in graph.types}


def describe_relations(graph: Graph) -> list[dict[str, Any]]:
    """Return for each relation its degrees, first and last time, and the numbers of vertices at either end without an edge of it."""
    return [_of_relation(relation) for relation in graph.relations]


def _of_type(kind: VertexType) -> dict[str, Any]:
    return {**_range(kind.times), "split_sizes": {name: int(mask.sum()) for name, mask in kind.masks.items()}}


def _of_relation(relation: Relation) -> dict[str, Any]:
    degrees = relation.adjacency.degrees
    return {
        **_range(relation.times),
        "degree_mean": float(degrees.mean()) if len(degrees) else 0.0,
        "degree_max": int(degrees.max(initial=0)),
        "parallel_edges": _repeats(relation),
        "destinations_without_edge": int((degrees == 0).sum()),
        "sources_without_edge": int((~_used(relation)).sum()),
    }


def _range(times: Array | None) -> dict[str, int]:
    """Return the first and the last time; nothing without times or without an element."""
    return {} if times is None or not len(times) else {"first_time": int(times.min()), "last_time": int(times.max())}


def _used(relation: Relation) -> Array:
    """Return True for the sources of an edge: bool, shape (sources,)."""
    used = np.zeros(relation.adjacency.shape[1], bool)
    used[relation.adjacency.indices] = True
    return used


def _repeats(relation: Relation) -> int:
    """Count the edges that join the same two vertices as the edge before them."""
    matrix, count = relation.adjacency, 0
    for first in range(1, matrix.nnz, _STEP):
        entries = np.arange(first, min(first + _STEP, matrix.nnz))
        same = entries[matrix.indices[entries] == matrix.indices[entries - 1]]
        rows = np.searchsorted(matrix.indptr, same, side="right")
        count += int((matrix.indptr[rows - 1] != same).sum())  # the first entry of a row repeats none
    return count
