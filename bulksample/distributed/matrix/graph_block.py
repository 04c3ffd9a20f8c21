"""One rank's rows of a stored graph, read from its files without the other rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...data.manifest import Manifest
from ...data.parts_manifest import graph_manifest
from ...data.store import load_column
from ...data.stored_rows import StoredRows, open_rows
from ...errors import DataError, UsageError
from ...graph.labels import as_labels, check_labels, has_label, outputs_of, target_of
from ...graph.vertex_table import SPLITS, fits_label
from ...sparse import CSR, frozen


@dataclass(frozen=True, eq=False)
class GraphBlock:
    """The rows of m vertices of a graph with n vertices. All arrays are in memory."""

    vertices: np.ndarray  # int32, shape (m,), ascending
    adjacency: CSR  # shape (m, n): columns are global ids
    weight_unit: float = 1.0
    features: np.ndarray | CSR | None = None  # float32 or float16 of shape (m, f), or a float32 CSR of that shape
    labels: np.ndarray | None = None  # int64 of shape (m,), or int8 or float32 of shape (m, t): see `bulksample.graph.labels`
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)  # bool, shape (m,)
    name: str = "graph"
    read_bytes: int = 0  # from the store

    @property
    def n(self) -> int:
        """Number of vertices of the whole graph."""
        return self.adjacency.shape[1]


def load_block(
    directory: str | os.PathLike[str], vertices: np.ndarray, features: bool = True, label: str | None = None, target: str | None = None
) -> GraphBlock:
    """Read the rows of some vertices of a stored graph, ascending; not collective. Nothing but copies of these rows stays in memory.

    `label` is another column of the store to use as the label, and `target` what it shall be, by default what its dtype says; see
    `Graph.with_label`. Raises `UsageError` if a vertex is out of range or not ascending, or the store has no such label. Raises `DataError`
    if the files that were read are damaged: the manifest, the size or header of a file, or row pointers, columns, weights, labels, features
    of these rows.
    """
    folder = Path(directory)
    manifest = graph_manifest(folder)
    vertices = np.asarray(vertices)
    ascending = vertices.dtype.kind in "iu" and vertices.ndim == 1 and bool((np.diff(vertices) > 0).all())
    if not ascending or (len(vertices) and not 0 <= vertices[0] <= vertices[-1] < manifest.vertices):
        raise UsageError(
            f"vertices must be ascending integers from 0 to {manifest.vertices - 1}; got {vertices.dtype} {vertices.tolist()[:8]}"
        )
    if label is not None and not _fits(manifest, label):
        extras = (role.removeprefix("extra.") for role in manifest.arrays if role.startswith("extra."))
        fit = [name for name in extras if _fits(manifest, name)]
        use = f"use one of {', '.join(fit)}" if fit else "it has no other label"
        raise UsageError(f"graph {manifest.name!r} has no label {label!r}; {use}")
    with _naming(f"{folder.name}: {f'rows {vertices[0]} to {vertices[-1]}' if len(vertices) else 'no rows'}"):
        return _block(open_rows(folder, vertices), features, label, target)


def load_feature_rows(directory: str | os.PathLike[str], vertices: np.ndarray) -> np.ndarray | CSR | None:
    """Read the features of some vertices of a stored graph, ascending; None if it has none. Raises `DataError` if they are damaged."""
    with _naming(Path(directory).name):
        return _features(open_rows(Path(directory), vertices))


def load_edge_rows(
    directory: str | os.PathLike[str], vertices: np.ndarray, features: bool = True
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """Return the position in the adjacency of the first entry of each row of some vertices, ascending, and the features of the rows' edges.

    They are int64 of shape (m,), and float32 or float16 of shape (entries of the rows, d), or None. Raises `DataError` if the files are
    damaged.
    """
    with _naming(Path(directory).name):
        stored = open_rows(Path(directory), vertices)
        starts, of_edges = stored.first_entries(), stored.edge_features() if features else None
        if of_edges is not None and not np.isfinite(of_edges).all():
            raise DataError("edge features must be finite")
        return starts, of_edges


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Begin the message of a `DataError` with a name."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _fits(manifest: Manifest, name: str) -> bool:
    entry = manifest.arrays.get(f"extra.{name}")
    return entry is not None and fits_label(np.dtype(entry.dtype), len(entry.shape))


def _block(stored: StoredRows, with_features: bool, label: str | None, target: str | None) -> GraphBlock:
    manifest = stored.manifest
    masks = {split: mask for split in SPLITS if (mask := stored.rows(f"mask.{split}")) is not None}
    labels, classes = _labels(stored, label, target)
    if label and labels is not None:
        masks = {split: mask & has_label(labels) for split, mask in masks.items()}
    adjacency = stored.matrix("", "weights", manifest.vertices, "adjacency")
    if adjacency.values is not None and adjacency.values.min(initial=0) < 0:
        raise DataError("weights must not be negative")
    features, vertices = _features(stored) if with_features else None, frozen(stored.vertices, np.int32)
    return GraphBlock(vertices, adjacency, manifest.weight_unit, features, labels, classes, masks, manifest.name, stored.read_bytes)


def _labels(stored: StoredRows, label: str | None, target: str | None) -> tuple[np.ndarray | None, int]:
    """Return the labels of the rows as a target, and the outputs of a model, which are those of the whole graph."""
    role, name, classes = f"extra.{label}" if label else "labels", label or "labels", stored.manifest.num_classes
    column = stored.rows(role)
    if column is None:
        return None, classes
    stored_as = target_of(column.dtype, column.ndim)
    if not label and target in (None, stored_as):
        check_labels(column, len(column), classes)
        return column, classes
    labels = as_labels(column, target or stored_as, name, not label)
    return labels, outputs_of(labels if labels.ndim > 1 else as_labels(load_column(stored.folder, role), "class", name), name=name)


def _features(stored: StoredRows) -> np.ndarray | CSR | None:
    if "features_values" in stored.manifest.arrays:
        return stored.matrix("features_", "features_values", stored.manifest.num_features, "features")
    features = stored.rows("features")
    if features is not None and not np.isfinite(features).all():
        raise DataError("features must be finite")
    return features
