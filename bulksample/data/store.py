"""The store: a graph as a folder of `.npy` files and a manifest.

Arrays are opened as memmaps, so a graph larger than memory can be sampled. Features and structure are separate files,
and either is read without the other. `data.atomic` writes a store completely or not at all.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError
from ..graph import SPLITS, Graph
from ..sparse import CSR
from .atomic import check_writable, new_folder
from .files import folder_of, write_npy, write_synced
from .manifest import FILE, ArrayEntry, Manifest, file_of, load_manifest, summary
from .store_files import check_size, check_sums, open_array, wanted


def save(graph: Graph, directory: str | os.PathLike[str], overwrite: bool = False) -> Manifest:
    """Write a graph as a store and return its manifest.

    Parameters
    ----------
    graph : Graph
        It is validated again before a file is written.
    directory : path
        Missing parents are created.
    overwrite : bool
        Replace an existing store. Only a store or an empty folder is ever replaced.

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
    target = Path(os.path.abspath(folder_of(directory, "a store")))
    check_target(target, overwrite)
    graph.validate()
    arrays = _arrays(graph)
    try:
        with new_folder(target) as made:
            entries = {role: _entry(made / file_of(role), array) for role, array in arrays.items()}
            manifest = Manifest(
                name=graph.name,
                vertices=graph.n,
                edges=graph.adjacency.nnz,
                weight_unit=float(graph.weight_unit) if graph.adjacency.values is not None else 1.0,
                num_features=graph.num_features,
                num_classes=int(graph.num_classes),
                arrays=entries,
            ).with_digest()
            write_synced(made / FILE, manifest.dumps())
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
        raise UsageError(f"{target} exists already; use another folder, or --overwrite")
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
        Its arrays are read-only memmaps.

    Raises
    ------
    DataError
        If the store is damaged; the message names the file, and the row if there is one.
    """
    folder = folder_of(directory, "a store")
    manifest = load_manifest(folder)
    entries = wanted(manifest, features)
    check_sums(folder, entries.values(), check)
    arrays = {role: open_array(folder, entry) for role, entry in entries.items()}
    try:
        return _graph(manifest, arrays, check == "full")
    except DataError as error:
        raise DataError(f"{folder.name}: {error}") from error


def load_features(directory: str | os.PathLike[str]) -> np.ndarray | CSR | None:
    """Open the features of a store as read-only memmaps, without its other arrays; None if it has none. No hashes are checked."""
    folder = folder_of(directory, "a store")
    manifest = load_manifest(folder)
    roles = [role for role in manifest.arrays if role.startswith("features")]
    return _features(manifest, {role: open_array(folder, manifest.arrays[role]) for role in roles})


def load_edge_features(directory: str | os.PathLike[str]) -> np.ndarray | None:
    """Open the edge features of a store as a read-only memmap; None if it has none. No hashes are checked."""
    folder = folder_of(directory, "a store")
    entry = load_manifest(folder).arrays.get("edge_features")
    return None if entry is None else open_array(folder, entry)


def verify(directory: str | os.PathLike[str]) -> Manifest:
    """Check every byte of a store and return its manifest.

    Raises
    ------
    DataError
        If files are damaged: the message names each with its expected and its actual sha256. If all files are intact
        but hold an invalid graph: the message names the first invalid value.
    """
    load(directory, check="full")
    return load_manifest(Path(directory))


def info(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a store from its manifest and the sizes of its files, without reading its arrays."""
    folder = Path(directory)
    manifest = load_manifest(folder)
    for entry in manifest.arrays.values():
        check_size(folder, entry)
    return summary(manifest)


def _arrays(graph: Graph) -> dict[str, np.ndarray]:
    """Return the arrays of a graph by role."""
    arrays: dict[str, np.ndarray | None] = {"indptr": graph.adjacency.indptr, "indices": graph.adjacency.indices}
    arrays["weights"] = graph.adjacency.values
    if isinstance(graph.features, CSR):
        arrays |= {f"features_{part}": getattr(graph.features, part) for part in ("indptr", "indices", "values")}
    else:
        arrays["features"] = graph.features
    arrays["edge_features"] = graph.edge_features
    arrays["labels"] = graph.labels
    arrays |= {f"mask.{name}": mask for name, mask in graph.masks.items()}
    for name, column in graph.extra.items():
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
    features = _features(manifest, arrays)
    dense = isinstance(features, np.ndarray)
    graph = Graph(
        CSR(arrays["indptr"], arrays["indices"], arrays.get("weights"), (n, n)),
        weight_unit=manifest.weight_unit,
        features=None if dense and not whole else features,
        labels=arrays.get("labels"),
        num_classes=manifest.num_classes,
        masks={split: arrays[f"mask.{split}"] for split in SPLITS if f"mask.{split}" in arrays},
        extra={name: arrays[f"extra.{name}"] for name in manifest.extras()},
        name=manifest.name,
        edge_features=arrays.get("edge_features") if whole else None,
    ).validate()
    return replace(graph, features=features, edge_features=arrays.get("edge_features"))


def _features(manifest: Manifest, arrays: dict[str, np.ndarray]) -> np.ndarray | CSR | None:
    """Return the features of a store, dense or sparse, from its arrays by role."""
    if "features_values" not in arrays:
        return arrays.get("features")
    indptr, indices, values = (arrays[f"features_{part}"] for part in ("indptr", "indices", "values"))
    return CSR(indptr, indices, values, (manifest.vertices, manifest.num_features))
