"""Vertex types and relations from arrays of other libraries and files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ...errors import DataError
from ...graph import Graph, Relation, VertexType, spelled
from ...graph.from_edges import relation_from_edges
from ...graph.times import as_times
from ...sparse import CSR, row_pointers
from ..columns import Array, as_array, column_fields, dense_features

Made = TypeVar("Made")


def make_type(
    name: str, count: int, x: Any = None, y: Any = None, masks: Mapping[str, Any] | None = None, times: Any = None,
    extra: Mapping[str, Array] | None = None, num_classes: int | None = None, target: str | None = None,
) -> VertexType:  # fmt: skip
    """Return a vertex type of lists, arrays or tensors; see `bulksample.data.columns.with_columns`.

    Raises `DataError`, naming the type, if a column has the wrong dtype; `Graph.validate` checks lengths and values.
    """
    fields = named(f"type {name!r}", lambda: column_fields(count, x, y, masks, num_classes, target))
    stamps = None if times is None else as_times(f"times of type {name!r}", _on_host(times), count)
    return VertexType(name, count, times=stamps, extra=dict(extra or {}), **fields)


def make_relation(
    source: VertexType, name: str, destination: VertexType, ends: tuple[Any, Any], weights: Any = None, times: Any = None,
    features: Any = None,
) -> Relation:  # fmt: skip
    """Return a relation of lists, arrays or tensors; see `bulksample.relation_from_edges`."""
    what = f"relation {spelled((source.name, name, destination.name))}"
    rows = None if features is None else dense_features(f"{what}: edge features", as_array(f"{what}: edge features", features))
    real = None if weights is None else as_array(f"{what}: weights", weights).reshape(-1)
    stamps = None if times is None else _on_host(times)
    return relation_from_edges(source, name, destination, _on_host(ends[0]), _on_host(ends[1]), weights=real, times=stamps, features=rows)


def named(what: str, make: Callable[[], Made]) -> Made:
    """Return what `make` makes; its `DataError` begins with `what`."""
    try:
        return make()
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def _on_host(array: Any) -> Any:
    return array.detach().cpu().numpy() if hasattr(array, "detach") else array


def add_reverses(graph: Graph) -> Graph:
    """Return the graph with a relation ``(D, rev_NAME, S)`` after each relation (S, NAME, D), unless there is one of that key.

    Weights, times, features and edge ids go with the edges.
    """
    keys = {relation.key for relation in graph.relations}
    relations = []
    for relation in graph.relations:
        relations.append(relation)
        if (relation.destination, f"rev_{relation.name}", relation.source) not in keys:
            relations.append(_reverse(relation))
    return Graph.of(graph.types, tuple(relations), graph.name)


def _reverse(relation: Relation) -> Relation:
    """Return a relation with its edges turned around."""
    matrix = relation.adjacency
    order = np.argsort(matrix.indices, kind="stable")  # rows ascend already, and ids of parallel edges with them
    indptr = row_pointers(np.bincount(matrix.indices, minlength=matrix.shape[1]))
    values = None if matrix.values is None else matrix.values[order]
    turned = CSR(indptr, matrix.row_of_entry()[order].astype(np.int32), values, matrix.shape[::-1])
    times, features = (None if column is None else column[order] for column in (relation.times, relation.features))
    name = f"rev_{relation.name}"
    return Relation(relation.destination, name, relation.source, turned, relation.weight_unit, relation.ids_of(order), times, features)
