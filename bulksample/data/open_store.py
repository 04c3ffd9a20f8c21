"""Open, check and describe a store of any kind: of a graph of one vertex type, or of a heterogeneous graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..graph import Graph
from . import edge_split, manifest, parts_manifest, store
from .describe import describe as describe_graph
from .files import folder_of
from .manifest_file import SignedManifest, read_manifest
from .parts import folders_of
from .relational import hetero_manifest, hetero_store
from .relational.held_out_links import HeldOutLinks
from .relational.hetero_describe import describe_relations, describe_types

PathLike = str | os.PathLike[str]


def is_heterogeneous(directory: PathLike) -> bool:
    """Return True if the store of a folder holds a heterogeneous graph; raises `DataError` if the folder is no store."""
    kinds: dict[str, type[SignedManifest]] = {
        manifest.FORMAT: manifest.Manifest,
        hetero_manifest.FORMAT: hetero_manifest.HeteroManifest,
        parts_manifest.PARTS: parts_manifest.PartsManifest,
    }
    return isinstance(read_manifest(folder_of(directory, "a store"), kinds), hetero_manifest.HeteroManifest)


def load(directory: PathLike, features: bool = True, check: str = "auto", structure: bool = True) -> Graph:
    """Open a store; see `data.store.load`. Without `structure`, adjacencies of a graph of several types are not read to be checked."""
    if is_heterogeneous(directory):
        return hetero_store.load(directory, features, check, structure)
    return store.load(directory, features, check)


def info(directory: PathLike) -> dict[str, Any]:
    """Describe a store from its manifest and the sizes of its files, without reading its arrays."""
    return hetero_store.info(directory) if is_heterogeneous(directory) else store.info(directory)


def describe(graph: Graph, figures: dict[str, Any]) -> dict[str, Any]:
    """Add statistics of a graph to what `info` returns of its store."""
    if graph.plain:
        return {**figures, **describe_graph(graph)}
    types = describe_types(graph)
    relations = zip(figures["relations"].items(), describe_relations(graph), strict=True)
    return {
        **figures,
        "types": {name: {**own, **types[name]} for name, own in figures["types"].items()},
        "relations": {title: {**own, **more} for (title, own), more in relations},
    }


def save(graph: Graph, directory: PathLike, overwrite: bool = False, beside: Callable[[Path, str], None] | None = None) -> SignedManifest:
    """Write a graph as a store and return its manifest; see `data.store.save`."""
    if not graph.plain:
        return hetero_store.save(graph, directory, overwrite, beside)
    return store.save(graph, directory, overwrite, beside)


def verify(directory: PathLike) -> SignedManifest:
    """Check every byte of a store, or of all parts of one, and return its manifest; see `data.store.verify`."""
    graph = load(directory, check="full")
    if (Path(directory) / edge_split.FILE).exists():
        if not graph.plain:
            HeldOutLinks.load(directory, graph)
        else:
            edge_split.HeldOutEdges.load(directory).check_absent(graph.adjacency)
    folder = folder_of(directory, "a store")
    return hetero_manifest.load_hetero_manifest(folder) if is_heterogeneous(folder) else parts_manifest.graph_manifest(folder)


def sums(directory: PathLike) -> dict[str, str]:
    """Return the sha256 of each file of a store, by its path below the folder."""
    folder = folder_of(directory, "a store")
    if parts_manifest.is_parts(folder):
        own = [(str(path.relative_to(folder)), made) for path, made in folders_of(folder, parts_manifest.load_parts(folder))]
    else:
        own = [("", hetero_manifest.load_hetero_manifest(folder) if is_heterogeneous(folder) else manifest.load_manifest(folder))]
    return {os.path.normpath(os.path.join(at, entry.file)): entry.sha256 for at, made in own for entry in made.arrays.values()}


def summary(written: SignedManifest) -> dict[str, Any]:
    """Return the entries that `bulksample data info` prints."""
    if isinstance(written, hetero_manifest.HeteroManifest):
        return hetero_manifest.hetero_summary(written)
    assert isinstance(written, manifest.Manifest)
    return manifest.summary(written)
