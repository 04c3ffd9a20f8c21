"""The store: a graph as a folder of `.npy` files and a manifest.

Arrays are opened as memmaps, so a graph larger than memory can be sampled. Features and structure are separate files,
and either is read without the other. `data.atomic` writes a store completely or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, named
from ..graph import Graph, Relation, VertexType
from ..graph.vertex_table import SPLITS
from ..sparse import CSR
from .atomic import check_writable, folder_of, new_folder, write_synced
from .describe import summary
from .held_out_links import FILE as LINKS
from .held_out_links import HeldOutLinks
from .manifest import Manifest, layout_of, manifest_of
from .manifest_file import FILE, ArrayEntry, file_of, signed
from .parts_manifest import describe_parts, folders_of, graph_manifest, is_parts, load_parts
from .result_places import check_ending, holding
from .store_files import check_size, check_sums, open_array, wanted, write_npy
from .stored_rows import gathered

Arrays = dict[str, np.ndarray]


def save(
    graph: Graph, directory: str | os.PathLike[str], overwrite: bool = False, beside: Callable[[Path, str], None] | None = None
) -> Manifest:
    """Write a graph as a store and return its manifest, whose digest is one of the graph: the same graph always gives the same files.

    Parameters
    ----------
    graph : Graph
        It is validated again before a file is written.
    overwrite : bool
        Replace an existing store. Only a store or an empty folder is ever replaced.
    beside : function of a path and a digest, optional
        Writes more files of the store into its folder, before the folder appears at `directory`. The digest is that of the manifest.

    Raises
    ------
    DataError
        If the graph is not valid, or a column cannot be stored.
    UsageError
        If the folder exists, or cannot be written (a full disk, missing permission). No partial store stays, and an older
        one stays as it was.

    """
    check_ending("a store", folder_of(directory, "a store"))
    target = Path(os.path.abspath(folder_of(directory, "a store")))
    check_target(target, overwrite)
    graph.validate()
    arrays = arrays_of(graph)
    try:
        with holding(target), new_folder(target) as made:
            entries = {role: write_npy(made / file_of(role), array) for role, array in arrays.items()}
            layout = signed(layout_of(Manifest.of(graph, entries)))
            write_synced(made / FILE, layout.dumps())
            if beside is not None:
                beside(made, layout.digest)
    except OSError as error:
        kept = f"; the old store is unchanged at {target}" if (target / FILE).is_file() else ""
        raise UsageError(f"cannot write a store at {target}: {error.strerror or error}{kept}") from error
    return manifest_of(layout)


def check_target(directory: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Raise `UsageError` unless a store may be written to this folder; call it before long work."""
    target, place = Path(directory), Path(os.path.abspath(directory))
    if os.path.ismount(place):
        raise UsageError(f"{target} is a mount point, which no new folder can replace; use a folder in it")
    check_writable(place.with_name(f"{place.name}.new") if target.is_dir() else place)  # a store is completed beside its target
    if not (target.exists() or target.is_symlink()) or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise UsageError(f"{target} exists already; use another folder, or overwrite=True")
    if target.is_symlink() or not (target / FILE).is_file():
        raise UsageError(f"{target} is not a store, so it is not overwritten")


def manifest(directory: str | os.PathLike[str]) -> Manifest:
    """Read the manifest of a store, whole or divided; raises `DataError` if the folder is no store."""
    return graph_manifest(folder_of(directory, "a store"), plain=False)


def load(directory: str | os.PathLike[str], features: bool = True, check: str = "auto", structure: bool = True) -> Graph:
    """Open a store. Arrays are read-only memmaps; those of a folder of parts are read into memory, in the order of the whole store.

    Parameters
    ----------
    features : bool
        Read the features; with False their files may be missing.
    check : {"auto", "full", "none"}
        Hashes to check. "auto": of the files that are opened for the first time since they changed; the user's cache remembers the
        size, times and inode of each file (see `data.store_files`). "full": of every file, and that features are finite. "none": no
        hashes. In each case the manifest is checked, the size and header of every file, and all values that kernels rely on: row
        pointers, columns, weights, labels, splits.
    structure : bool
        Check the adjacencies; else they stay unread.

    Raises
    ------
    DataError
        If the store is damaged; the message names the file, and the row if there is one.
    """
    folder = folder_of(directory, "a store")
    schema = graph_manifest(folder, plain=False)
    for part_folder, entries in folders_of(folder, schema):
        check_sums(part_folder, wanted(entries, features).values(), check)
    arrays = _opened(folder, wanted(schema.arrays, features))
    graph = named(folder.name, lambda: _graph(schema, arrays))
    checked = graph
    if check != "full" or not structure:  # without dense features, whose values need not be read to draw mini-batches
        types = tuple(replace(kind, features=None) if isinstance(kind.features, np.ndarray) else kind for kind in graph.types)
        checked = graph.replace(types=types, relations=tuple(replace(relation, features=None) for relation in graph.relations))
    named(folder.name, checked.validate if structure else checked.check_columns)
    return graph


def load_features(directory: str | os.PathLike[str]) -> np.ndarray | CSR | None:
    """Open the features of a store as read-only memmaps, without its other arrays; None if it has none. No hashes are checked.

    Those of a folder of parts are read into memory.
    """
    folder = folder_of(directory, "a store")
    schema = graph_manifest(folder)
    arrays = _opened(folder, {role: entry for role, entry in schema.arrays.items() if role.startswith("features")})
    return _features(arrays, schema.vertices, schema.num_features)


def load_column(directory: str | os.PathLike[str], role: str) -> np.ndarray:
    """Open one array of a plain graph as a read-only memmap, or of parts in memory. No hashes are checked."""
    folder = folder_of(directory, "a store")
    return _opened(folder, {role: graph_manifest(folder).arrays[role]})[role]


def _opened(folder: Path, entries: dict[str, ArrayEntry]) -> dict[str, np.ndarray]:
    return gathered(folder, entries) if is_parts(folder) else {role: open_array(folder, entry) for role, entry in entries.items()}


def verify(directory: str | os.PathLike[str]) -> Manifest:
    """Check every byte of a store, also of its held-out edges, and return its manifest.

    Raises
    ------
    DataError
        Naming each damaged file with its expected and its actual sha256, or the first invalid value of a graph whose files are intact.
    """
    graph = load(directory, check="full")
    if (Path(directory) / LINKS).exists():
        HeldOutLinks.load(directory).check_absent(graph)
    return manifest(directory)


def sums(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Return the sha256 of each file of a store, by its path below the folder."""
    folder, by_path = folder_of(directory, "a store"), dict[str, str]()
    for part_folder, arrays in folders_of(folder, manifest(folder)):
        by_path |= {str((part_folder / entry.file).relative_to(folder)): entry.sha256 for entry in arrays.values()}
    return by_path


def info(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a store from its manifest and the sizes of its files, without reading its arrays."""
    folder = folder_of(directory, "a store")
    schema = manifest(folder)
    for part_folder, arrays in folders_of(folder, schema):
        for entry in arrays.values():
            check_size(part_folder, entry)
    return {**summary(schema), **(describe_parts(load_parts(folder)) if is_parts(folder) else {})}


def arrays_of(graph: Graph) -> Arrays:
    """Return all arrays of a graph by role, in the order of the manifest; raises `DataError` for a column that cannot be stored."""
    if graph.plain:
        return {**_edge_arrays(graph.relations[0]), **_column_arrays(graph.types[0])}
    arrays: Arrays = {}
    for i, kind in enumerate(graph.types):
        columns = named(f"type {kind.name!r}", partial(_column_arrays, kind))
        arrays |= {f"types.{i}.{role}": array for role, array in columns.items()}
    for i, relation in enumerate(graph.relations):
        arrays |= {f"relations.{i}.{role}": array for role, array in _edge_arrays(relation).items()}
    return arrays


def _edge_arrays(relation: Relation) -> Arrays:
    """Return the arrays of a relation by role within it."""
    a = relation.adjacency
    arrays = {
        "indptr": a.indptr, "indices": a.indices, "weights": a.values, "edge_features": relation.features, "edge_ids": relation.edge_ids,
        "times": relation.times,
    }  # fmt: skip
    return {role: array for role, array in arrays.items() if array is not None}


def _column_arrays(kind: VertexType) -> Arrays:
    """Return the columns of a type by role within it; raises `DataError` for one that cannot be stored."""
    arrays: dict[str, np.ndarray | None] = {"features": None, "labels": kind.labels}
    if isinstance(kind.features, CSR):
        arrays |= {f"features_{part}": getattr(kind.features, part) for part in ("indptr", "indices", "values")}
    else:
        arrays["features"] = kind.features
    arrays |= {f"mask.{name}": mask for name, mask in kind.masks.items()}
    for name, column in kind.extra.items():
        if column.dtype.kind not in "biufU":
            raise DataError(f"column {name!r} holds {column.dtype}; use numbers, booleans or text")
        arrays[f"extra.{name}"] = column
    arrays["times"] = kind.times
    return {role: array for role, array in arrays.items() if array is not None}


def _graph(schema: Manifest, arrays: Arrays) -> Graph:
    """Return the graph of the arrays that were opened."""
    types, relations, counts = [], [], {kind.name: kind.vertices for kind in schema.types}
    for i, kind in enumerate(schema.types):
        columns = schema.within("types", i, arrays)
        masks = {split: columns[f"mask.{split}"] for split in SPLITS if f"mask.{split}" in columns}
        extra = {role.removeprefix("extra."): array for role, array in columns.items() if role.startswith("extra.")}
        x, n = _features(columns, kind.vertices, kind.num_features), kind.vertices
        types.append(VertexType(kind.name, n, x, columns.get("labels"), kind.num_classes, masks, columns.get("times"), extra))
    for i, one in enumerate(schema.relations):
        columns = schema.within("relations", i, arrays)
        matrix = CSR(columns["indptr"], columns["indices"], columns.get("weights"), (counts[one.destination], counts[one.source]))
        ids, times, rows = (columns.get(role) for role in ("edge_ids", "times", "edge_features"))
        relations.append(Relation(*one.key, matrix, one.weight_unit, ids, times, rows, one.parallel))
    return Graph.of(types, relations, schema.name)


def _features(arrays: Arrays, n: int, f: int) -> np.ndarray | CSR | None:
    """Return the features of n vertices, dense or sparse, from their arrays by role."""
    if "features_values" not in arrays:
        return arrays.get("features")
    indptr, indices, values = (arrays[f"features_{part}"] for part in ("indptr", "indices", "values"))
    return CSR(indptr, indices, values, (n, f))
