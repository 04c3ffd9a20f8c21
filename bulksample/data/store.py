"""The store: a graph as a folder of `.npy` files and a manifest.

Arrays are opened as memmaps, so a graph larger than memory can be sampled. Features and structure are separate files,
and either is read without the other. `data.atomic` writes a store completely or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph
from ..sparse import CSR
from ..vertex_table import SPLITS, VertexTable
from .atomic import check_writable, new_folder
from .files import folder_of, write_npy, write_synced
from .manifest import Manifest, load_manifest, summary
from .manifest_file import FILE, AnyManifest, ArrayEntry, file_of, signed
from .parts import check_parts, gathered, parts_info
from .parts_manifest import graph_manifest, is_parts
from .result_places import check_ending, holding
from .store_files import check_size, check_sums, open_array, wanted

AnyTable = TypeVar("AnyTable", bound=VertexTable)


def save(
    graph: Graph, directory: str | os.PathLike[str], overwrite: bool = False, beside: Callable[[Path, str], None] | None = None
) -> Manifest:
    """Write a graph as a store and return its manifest.

    Parameters
    ----------
    graph : Graph
        It is validated again before a file is written.
    directory : path
        Missing parents are created.
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

    Notes
    -----
    The digest of the manifest is a digest of the graph: the same graph always gives the same files.
    """
    target = free_target(directory, overwrite)
    graph.validate()

    def describe(entries: dict[str, ArrayEntry]) -> Manifest:
        return Manifest(
            name=graph.name,
            vertices=graph.n,
            edges=graph.adjacency.nnz,
            weight_unit=float(graph.weight_unit) if graph.adjacency.values is not None else 1.0,
            num_features=graph.num_features,
            num_classes=int(graph.num_classes),
            arrays=entries,
        )

    return write_store(target, {**edge_arrays(graph.adjacency, graph.edge_features), **column_arrays(graph)}, describe, beside)


def free_target(directory: str | os.PathLike[str], overwrite: bool) -> Path:
    """Return the absolute path of a new store; raises `UsageError` unless it may be written there."""
    check_ending("a store", folder_of(directory, "a store"))
    target = Path(os.path.abspath(folder_of(directory, "a store")))
    check_target(target, overwrite)
    return target


def write_store(
    target: Path, arrays: dict[str, np.ndarray], describe: Callable[[dict[str, ArrayEntry]], AnyManifest],
    beside: Callable[[Path, str], None] | None = None,
) -> AnyManifest:  # fmt: skip
    """Write arrays by role and the manifest that `describe` makes of their entries, completely or not at all; return it with its digest.

    `beside` writes more files into the new folder. Raises `UsageError` if the folder cannot be written, or another run writes it.
    """
    try:
        with holding(target), new_folder(target) as made:
            manifest = signed(describe({role: _entry(made / file_of(role), array) for role, array in arrays.items()}))
            write_synced(made / FILE, manifest.dumps())
            if beside is not None:
                beside(made, manifest.digest)
    except OSError as error:
        kept = f"; the old store is unchanged at {target}" if (target / FILE).is_file() else ""
        raise UsageError(f"cannot write a store at {target}: {error.strerror or error}{kept}") from error
    return manifest


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


def load(directory: str | os.PathLike[str], features: bool = True, check: str = "auto") -> Graph:
    """Open a store.

    Parameters
    ----------
    directory : path
    features : bool
        Read the features; with False their files may be missing.
    check : {"auto", "full", "none"}
        Hashes to check. "auto": of the files that are opened for the first time since they changed; the user's cache remembers the
        size, times and inode of each file (see `data.verified`). "full": of every file, and that features are finite. "none": no
        hashes. In each case the manifest is checked, the size and header of every file, and all values that kernels rely on: row
        pointers, columns, weights, labels, splits.

    Returns
    -------
    Graph
        Its arrays are read-only memmaps; those of a folder of parts are read into memory, in the order of the whole store.

    Raises
    ------
    DataError
        If the store is damaged; the message names the file, and the row if there is one.
    """
    folder = folder_of(directory, "a store")
    manifest = graph_manifest(folder)
    entries = wanted(manifest, features)
    if is_parts(folder):
        check_parts(folder, features, check)
        arrays = gathered(folder, entries)
    else:
        check_sums(folder, entries.values(), check)
        arrays = {role: open_array(folder, entry) for role, entry in entries.items()}
    try:
        return _graph(manifest, arrays, check == "full")
    except DataError as error:
        raise DataError(f"{folder.name}: {error}") from error


def load_features(directory: str | os.PathLike[str]) -> np.ndarray | CSR | None:
    """Open the features of a store as read-only memmaps, without its other arrays; None if it has none. No hashes are checked.

    Those of a folder of parts are read into memory.
    """
    folder = folder_of(directory, "a store")
    manifest = graph_manifest(folder)
    arrays = _opened(folder, {role: entry for role, entry in manifest.arrays.items() if role.startswith("features")})
    return _features(arrays, manifest.vertices, manifest.num_features)


def load_edge_features(directory: str | os.PathLike[str]) -> np.ndarray | None:
    """Open the edge features of a store as a read-only memmap, or of parts in memory; None if it has none. No hashes are checked."""
    folder = folder_of(directory, "a store")
    entry = graph_manifest(folder).arrays.get("edge_features")
    return None if entry is None else _opened(folder, {"edge_features": entry})["edge_features"]


def load_column(directory: str | os.PathLike[str], role: str) -> np.ndarray:
    """Open one array of all vertices as a read-only memmap, or of parts in memory. No hashes are checked."""
    folder = folder_of(directory, "a store")
    return _opened(folder, {role: graph_manifest(folder).arrays[role]})[role]


def _opened(folder: Path, entries: dict[str, ArrayEntry]) -> dict[str, np.ndarray]:
    return gathered(folder, entries) if is_parts(folder) else {role: open_array(folder, entry) for role, entry in entries.items()}


def verify(directory: str | os.PathLike[str]) -> Manifest:
    """Check every byte of a store and return its manifest.

    Raises
    ------
    DataError
        If files are damaged: the message names each with its expected and its actual sha256. If all files are intact
        but hold an invalid graph: the message names the first invalid value.
    """
    load(directory, check="full")
    return graph_manifest(Path(directory))


def info(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a store from its manifest and the sizes of its files, without reading its arrays."""
    folder = Path(directory)
    if is_parts(folder):
        return parts_info(folder)
    manifest = load_manifest(folder)
    for entry in manifest.arrays.values():
        check_size(folder, entry)
    return summary(manifest)


def edge_arrays(adjacency: CSR, features: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return the arrays of edges by role."""
    arrays = {"indptr": adjacency.indptr, "indices": adjacency.indices, "weights": adjacency.values, "edge_features": features}
    return {role: array for role, array in arrays.items() if array is not None}


def column_arrays(table: VertexTable) -> dict[str, np.ndarray]:
    """Return the columns of vertices by role; raises `DataError` for one that cannot be stored."""
    arrays: dict[str, np.ndarray | None] = {"features": None, "labels": table.labels}
    if isinstance(table.features, CSR):
        arrays |= {f"features_{part}": getattr(table.features, part) for part in ("indptr", "indices", "values")}
    else:
        arrays["features"] = table.features
    arrays |= {f"mask.{name}": mask for name, mask in table.masks.items()}
    for name, column in table.extra.items():
        if column.dtype.kind not in "biufU":
            raise DataError(f"column {name!r} holds {column.dtype}; use numbers, booleans or text")
        arrays[f"extra.{name}"] = column
    return {role: array for role, array in arrays.items() if array is not None}


def _entry(path: Path, array: np.ndarray) -> ArrayEntry:
    """Write one array and return its entry of the manifest."""
    dtype, size, sha256 = write_npy(path, array)
    return ArrayEntry(file=path.name, dtype=dtype, shape=tuple(array.shape), bytes=size, sha256=sha256)


def _graph(manifest: Manifest, arrays: dict[str, np.ndarray], whole: bool) -> Graph:
    """Return the graph of the arrays, validated; dense features are checked only if `whole`."""
    n = manifest.vertices
    graph = Graph(
        CSR(arrays["indptr"], arrays["indices"], arrays.get("weights"), (n, n)),
        weight_unit=manifest.weight_unit,
        num_classes=manifest.num_classes,
        name=manifest.name,
        edge_features=arrays.get("edge_features"),
        **columns_from(arrays, n, manifest.num_features),
    )
    (graph if whole else without_dense(graph).replace(edge_features=None)).validate()
    return graph


def columns_from(arrays: dict[str, np.ndarray], n: int, f: int) -> dict[str, Any]:
    """Return the columns of vertices, by the names of `VertexTable`, from their arrays by role."""
    return {
        "features": _features(arrays, n, f),
        "labels": arrays.get("labels"),
        "masks": {split: arrays[f"mask.{split}"] for split in SPLITS if f"mask.{split}" in arrays},
        "extra": {role.removeprefix("extra."): array for role, array in arrays.items() if role.startswith("extra.")},
    }


def without_dense(table: AnyTable) -> AnyTable:
    """Return the columns of vertices without dense features, whose values need not be read to draw mini-batches."""
    return replace(table, features=None) if isinstance(table.features, np.ndarray) else table


def _features(arrays: dict[str, np.ndarray], n: int, f: int) -> np.ndarray | CSR | None:
    """Return the features of n vertices, dense or sparse, from their arrays by role."""
    if "features_values" not in arrays:
        return arrays.get("features")
    indptr, indices, values = (arrays[f"features_{part}"] for part in ("indptr", "indices", "values"))
    return CSR(indptr, indices, values, (n, f))
