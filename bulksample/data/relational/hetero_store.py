"""The store of a heterogeneous graph: a folder of `.npy` files and one manifest, as for a graph of one vertex type.

It keeps the promises of `data.store`: a store is written completely or not at all, its arrays are mapped from their files, and files are
compared with their SHA-256 when they are first opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...graph import Graph, Relation, VertexType
from ...sparse import CSR
from ..files import folder_of
from ..manifest_file import ArrayEntry
from ..store import column_arrays, columns_from, edge_arrays, free_target, without_dense, write_store
from ..store_files import check_size, check_sums, open_array, wanted
from .hetero_manifest import HeteroManifest, RelationEntry, TypeEntry, hetero_summary, load_hetero_manifest
from .hetero_parts import named

_Arrays = dict[str, np.ndarray]


def save(
    graph: Graph, directory: str | os.PathLike[str], overwrite: bool = False, beside: Callable[[Path, str], None] | None = None
) -> HeteroManifest:
    """Write a heterogeneous graph as a store and return its manifest; see `data.store.save`, also for what is raised."""
    target = free_target(directory, overwrite)
    graph.validate()
    arrays: _Arrays = {}
    for i, kind in enumerate(graph.types):
        arrays |= {f"types.{i}.{role}": array for role, array in _of_type(kind).items()}
    for i, relation in enumerate(graph.relations):
        arrays |= {f"relations.{i}.{role}": array for role, array in _of_relation(relation).items()}
    types, relations = tuple(map(_type_entry, graph.types)), tuple(map(_relation_entry, graph.relations))

    def describe(entries: dict[str, ArrayEntry]) -> HeteroManifest:
        return HeteroManifest(name=graph.name, types=types, relations=relations, arrays=entries)

    return write_store(target, arrays, describe, beside)


def load(directory: str | os.PathLike[str], features: bool = True, check: str = "auto", structure: bool = True) -> Graph:
    """Open the store of a heterogeneous graph; the arguments and errors are those of `data.store.load`.

    Without `structure` the adjacencies stay unread, and unchecked.
    """
    folder = folder_of(directory, "a store")
    manifest = load_hetero_manifest(folder)
    entries = wanted(manifest, features)
    check_sums(folder, entries.values(), check)
    arrays = {role: open_array(folder, entry) for role, entry in entries.items()}
    try:
        graph = _graph(manifest, arrays)
        if structure:
            (graph if check == "full" else _without_dense(graph)).validate()
        else:
            _without_dense(graph).check_columns()
    except DataError as error:
        raise DataError(f"{folder.name}: {error}") from error
    return graph


def info(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the schema of a store from its manifest and the sizes of its files, without reading its arrays."""
    folder = folder_of(directory, "a store")
    manifest = load_hetero_manifest(folder)
    for entry in manifest.arrays.values():
        check_size(folder, entry)
    return hetero_summary(manifest)


def _of_type(kind: VertexType) -> _Arrays:
    arrays = named(f"type {kind.name!r}", lambda: column_arrays(kind))
    return arrays if kind.times is None else {**arrays, "times": kind.times}


def _of_relation(relation: Relation) -> _Arrays:
    arrays = edge_arrays(relation.adjacency, relation.features)
    more = {"edge_ids": relation.edge_ids, "times": relation.times}
    return {**arrays, **{role: array for role, array in more.items() if array is not None}}


def _type_entry(kind: VertexType) -> TypeEntry:
    return TypeEntry(name=kind.name, vertices=kind.count, num_features=kind.num_features, num_classes=int(kind.num_classes))


def _relation_entry(relation: Relation) -> RelationEntry:
    unit = 1.0 if relation.adjacency.values is None else float(relation.weight_unit)
    source, name, destination = relation.key
    return RelationEntry(source=source, name=name, destination=destination, edges=relation.edges, weight_unit=unit)


def _graph(manifest: HeteroManifest, arrays: _Arrays) -> Graph:
    """Return the graph of the arrays."""
    types = []
    for i, kind in enumerate(manifest.types):
        own = {role: arrays[f"types.{i}.{role}"] for role in manifest.of_type(i) if f"types.{i}.{role}" in arrays}
        columns = columns_from(own, kind.vertices, kind.num_features)
        types.append(VertexType(kind.name, kind.vertices, num_classes=kind.num_classes, times=own.get("times"), **columns))
    counts = {kind.name: kind.vertices for kind in manifest.types}
    relations = []
    for i, entry in enumerate(manifest.relations):
        own = {role: arrays[f"relations.{i}.{role}"] for role in manifest.of_relation(i) if f"relations.{i}.{role}" in arrays}
        matrix = CSR(own["indptr"], own["indices"], own.get("weights"), (counts[entry.destination], counts[entry.source]))
        key = (entry.source, entry.name, entry.destination)
        relations.append(Relation(*key, matrix, entry.weight_unit, own.get("edge_ids"), own.get("times"), own.get("edge_features")))
    return Graph.of(tuple(types), tuple(relations), manifest.name)


def _without_dense(graph: Graph) -> Graph:
    """Return the graph without features whose values need not be read to draw mini-batches."""
    relations = tuple(replace(relation, features=None) for relation in graph.relations)
    return replace(graph, types=tuple(map(without_dense, graph.types)), relations=relations)
