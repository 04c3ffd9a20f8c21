"""Describe a graph: its schema, from the manifest of its store, and statistics of its types and relations, from the graph itself.

The entries of a plain graph are those of its only type and its only relation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph, Relation, VertexType
from ..graph.labels import has_label, is_known, target_of, unused_classes
from .manifest import Manifest, TypeEntry
from .manifest_file import ArrayEntry

_STEP = 2**22
_Figures = dict[str, Any]


def summary(manifest: Manifest) -> _Figures:
    """Return the entries that `bulksample data info` prints: the schema of the graph."""
    types = {kind.name: _type_entry(kind, manifest.of_type(i)) for i, kind in enumerate(manifest.types)}
    relations = {}
    for i, one in enumerate(manifest.relations):
        arrays = manifest.of_relation(i)
        features = arrays.get("edge_features")
        relations[" ".join(one.key)] = {
            "edges": one.edges, "weighted": "weights" in arrays, "times": "times" in arrays,
            "edge_features": features.shape[1] if features else 0,
        }  # fmt: skip
    parts: _Figures = {"types": types, "relations": relations}
    if manifest.plain:
        ((kind,), (relation,)) = types.values(), relations.values()
        parts = {name: value for name, value in {**relation, **kind}.items() if name != "times"}
    sizes = {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}
    return {**sizes, **parts, "bytes": sum(entry.bytes for entry in manifest.arrays.values()), "digest": manifest.digest}


def _type_entry(kind: TypeEntry, arrays: dict[str, ArrayEntry]) -> _Figures:
    dense, labels = arrays.get("features"), arrays.get("labels")
    return {
        "vertices": kind.vertices, "features": kind.num_features,
        "feature_kind": np.dtype(dense.dtype).name if dense else "sparse" if "features_values" in arrays else "none",
        "classes": kind.num_classes, "target": target_of(labels.dtype, len(labels.shape)) if labels else None,
        "splits": [role.removeprefix("mask.") for role in arrays if role.startswith("mask.")],
        "times": "times" in arrays, "extra": [role.removeprefix("extra.") for role in arrays if role.startswith("extra.")],
    }  # fmt: skip


def describe(graph: Graph, schema: _Figures | None = None) -> _Figures:
    """Return statistics of a graph, added to what `summary` returns of its store. Reads each adjacency once, in pieces.

    Of a type: the first and last time; the numbers of vertices with a label, and of `isolated` ones, which no edge touches; the sizes of
    its splits. Of a relation: the first and last time; degrees; the numbers of parallel edges, and of vertices at either end without an
    edge. Of a relation within one type, which may have been read in the wrong direction: `symmetric`, True if every edge has its reverse;
    `edges_with_reverse`, the share of such edges; the number of `self_loops`; with classes, the `homophily`, the share of edges within a
    class among those with a label at both ends (NaN if there is none). In a plain graph vertices without an edge at their end are those
    `without_in_edges`.
    """
    figures = schema or {}
    touched = {kind.name: np.zeros(kind.count, bool) for kind in graph.types}
    relations = {" ".join(one.key): _of_relation(graph, one, touched) for one in graph.relations}
    types = {kind.name: {**_of_type(kind), "isolated": int((~touched[kind.name]).sum())} for kind in graph.types}
    if graph.plain:
        ((kind,), (relation,)) = types.values(), relations.values()
        relation["without_in_edges"] = relation.pop("destinations_without_edge")
        del relation["sources_without_edge"], relation["parallel_edges"]
        return {**figures, **relation, **kind}
    made = {"types": types, "relations": relations}
    return {
        **figures,
        **{
            group: {name: {**figures.get(group, {}).get(name, {}), **more} for name, more in parts.items()} for group, parts in made.items()
        },
    }


def _of_type(kind: VertexType) -> _Figures:
    """Return times, the number of labelled vertices, unused classes or the share of other labels that are known, and sizes of splits."""
    figures: _Figures = _range(kind.times)
    if kind.labels is not None:
        figures["labelled"] = int(has_label(kind.labels).sum())
        if kind.target == "class":
            figures["classes_without_vertex"] = unused_classes(kind.labels, kind.num_classes)
        else:
            figures["known_labels"] = float(is_known(kind.labels).mean()) if kind.labels.size else 0.0
    return {**figures, "split_sizes": {name: int(mask.sum()) for name, mask in kind.masks.items()}}


def _of_relation(graph: Graph, relation: Relation, touched: dict[str, np.ndarray]) -> _Figures:
    """Return the figures of a relation, and mark the vertices that its edges touch."""
    a, degrees, within = relation.adjacency, relation.adjacency.degrees, relation.source == relation.destination
    kind = graph.type(relation.source)
    labels = kind.labels if within and kind.target == "class" else None
    used = np.zeros(a.shape[1], bool)
    repeats = loops = reverses = alike = labelled = 0
    for first in range(0, a.nnz, _STEP):
        entries = np.arange(first, min(first + _STEP, a.nnz))
        rows, columns = np.searchsorted(a.indptr, entries, side="right") - 1, np.asarray(a.indices[entries], np.int64)
        used[columns] = True
        repeats += int(((a.indices[entries - 1] == columns) & (a.indptr[rows] != entries)).sum())  # the first of a row repeats none
        if within:
            loops += int((rows == columns).sum())
            reverses += int((a.find(columns, rows) >= 0).sum())
        if labels is not None:
            y, z = labels[rows], labels[columns]
            known = (y >= 0) & (z >= 0)
            alike, labelled = alike + int(((y == z) & known).sum()), labelled + int(known.sum())
    touched[relation.destination] |= degrees > 0
    touched[relation.source] |= used
    figures = {
        **_range(relation.times),
        "degree_mean": float(degrees.mean()) if len(degrees) else 0.0,
        "degree_median": float(np.median(degrees)) if len(degrees) else 0.0,
        "degree_max": int(degrees.max(initial=0)),
        "parallel_edges": repeats,
        "destinations_without_edge": int((degrees == 0).sum()),
        "sources_without_edge": int((~used).sum()),
    }
    if within:
        share = reverses / a.nnz if a.nnz else 1.0
        figures |= {"symmetric": reverses == a.nnz, "edges_with_reverse": share, "self_loops": loops}
    return figures if labels is None else {**figures, "homophily": alike / labelled if labelled else float("nan")}


def _range(times: np.ndarray | None) -> _Figures:
    """Return the first and the last time; nothing without times or without an element."""
    return {} if times is None or not len(times) else {"first_time": int(times.min()), "last_time": int(times.max())}
