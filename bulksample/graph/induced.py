"""Cut a part of a heterogeneous graph out as a graph of its own: the vertices of a set, renumbered, and the edges among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..sparse import CSR, row_pointers, runs
from .graph import Graph
from .types import Relation, VertexType


def induced(graph: Graph, vertices: np.ndarray, drawing: np.ndarray | None = None) -> Graph:
    """Return the subgraph induced by a set S of vertices: A_r[S_D, S_S] for each relation r = (S, name, D).

    `vertices` are S in the numbering of all types, ascending: int32. Those where `drawing` is True keep their rows, by default all. The
    subgraph has the same types and relations in the same order; vertex i of a type is the i-th of S in it. Columns of vertices and edges
    keep their rows of S, classes are those of the whole graph, and edges keep the ids that they have in it. Only rows of S are copied.
    """
    inside = by_type(graph, vertices)
    kept = None if drawing is None else by_type(graph, vertices[drawing])
    types = tuple(_type_of(kind, inside[kind.name]) for kind in graph.types)
    relations = tuple(
        _relation_of(one, inside[one.destination], inside[one.source], None if kept is None else kept[one.destination])
        for one in graph.relations
    )
    return Graph.of(types, relations, graph.name)


def by_type(graph: Graph, vertices: np.ndarray) -> dict[str, np.ndarray]:
    """Return ascending vertices in the numbering of all types as vertices of each type: int32."""
    parts = np.split(vertices, np.searchsorted(vertices, graph.offsets[1:-1]))
    return {kind.name: (part - first).astype(np.int32) for kind, part, first in zip(graph.types, parts, graph.offsets, strict=False)}


def _type_of(kind: VertexType, rows: np.ndarray) -> VertexType:
    """Return some vertices of a type."""
    x = kind.features
    return replace(
        kind, count=len(rows), features=x.take(rows) if isinstance(x, CSR) else _take(x, rows), labels=_take(kind.labels, rows),
        masks={split: mask[rows] for split, mask in kind.masks.items()}, times=_take(kind.times, rows),
        extra={name: np.asarray(column[rows]) for name, column in kind.extra.items()},
    )  # fmt: skip


def _relation_of(relation: Relation, rows: np.ndarray, columns: np.ndarray, kept: np.ndarray | None) -> Relation:
    """Return the edges of a relation between some of its destinations, or those `kept` among them, and some of its sources."""
    matrix = relation.adjacency
    place = np.full(matrix.shape[1], -1, np.int32)
    place[columns] = np.arange(len(columns), dtype=np.int32)
    counts = matrix.degrees[rows] if kept is None else np.where(np.isin(rows, kept, assume_unique=True), matrix.degrees[rows], 0)
    entries = runs(matrix.indptr[rows], counts)
    near = place[matrix.indices[entries]] >= 0
    indptr, entries = row_pointers(near)[row_pointers(counts)], entries[near]
    return replace(
        relation, adjacency=CSR(indptr, place[matrix.indices[entries]], _take(matrix.values, entries), (len(rows), len(columns))),
        edge_ids=relation.ids_of(entries), times=_take(relation.times, entries), features=_take(relation.features, entries),
    )  # fmt: skip


def _take(column: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if column is None else np.asarray(column[rows])
