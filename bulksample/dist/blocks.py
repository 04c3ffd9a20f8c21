"""One rank's share of a store: some rows of everything, read from the files without the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data.manifest import Manifest, load_manifest
from ..data.store import open_array
from ..errors import DataError, UsageError
from ..graph import SPLITS
from ..sparse import CSR, frozen


@dataclass(frozen=True, eq=False)
class GraphBlock:
    """Rows ``first:last`` of a graph of n vertices, m = last - first of them. All arrays are in memory.

    Parameters
    ----------
    adjacency : CSR, shape (m, n)
        Columns are global ids.
    features : float32 or float16 of shape (m, f), or a float32 CSR of that shape, optional
    labels : int64, shape (m,), optional
    masks : dict of bool arrays of shape (m,)
    """

    first: int
    last: int
    adjacency: CSR
    weight_unit: float = 1.0
    features: np.ndarray | CSR | None = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    name: str = "graph"

    @property
    def n(self) -> int:
        """Vertices of the whole graph."""
        return self.adjacency.shape[1]

    @property
    def bytes(self) -> int:
        """What the block takes in memory."""
        arrays = [self.adjacency.indptr, self.adjacency.indices, self.adjacency.values, self.labels, *self.masks.values()]
        x = self.features
        arrays += [x.indptr, x.indices, x.values] if isinstance(x, CSR) else [x]
        return sum(array.nbytes for array in arrays if array is not None)


def load_block(directory: str | os.PathLike[str], first: int, last: int, features: bool = True) -> GraphBlock:
    """Read rows ``first:last`` of a store, 0 <= first <= last <= n; no collective.

    Returns
    -------
    GraphBlock
        Its arrays are copies of slices of the store's memmaps: nothing else stays in memory.

    Raises
    ------
    UsageError
        If there are no such rows.
    DataError
        If the store is damaged where it was read: the manifest, the size or the header of a file, row pointers, columns,
        weights, labels or features of these rows.
    """
    folder = Path(directory)
    manifest = load_manifest(folder)
    n = manifest.vertices
    if not 0 <= first <= last <= n:
        raise UsageError(f"rows {first} to {last} were asked for; the store has rows 0 to {n}")
    try:
        return _block(_Slices(folder, manifest, first, last), features)
    except DataError as error:
        raise DataError(f"{folder.name}: rows {first} to {last}: {error}") from error


class _Slices:
    """The arrays of a store, and the part of them that belongs to some rows."""

    def __init__(self, folder: Path, manifest: Manifest, first: int, last: int) -> None:
        self.folder, self.manifest, self.first, self.last = folder, manifest, first, last

    def rows(self, role: str) -> np.ndarray | None:
        """The rows of an array, copied; None where the store has no such array."""
        if role not in self.manifest.arrays:
            return None
        return frozen(np.array(self._open(role)[self.first : self.last]))

    def matrix(self, prefix: str, values: str, columns: int, what: str) -> CSR:
        """The rows of a sparse matrix, validated."""
        pointers = np.array(self._open(f"{prefix}indptr")[self.first : self.last + 1], np.int64)
        indices = self._open(f"{prefix}indices")
        entries = slice(int(pointers[0]), int(pointers[-1]))
        if not 0 <= entries.start <= entries.stop <= len(indices):
            raise DataError(f"{what}: row pointers run from {entries.start} to {entries.stop}; there are {len(indices)} entries")
        held = np.array(self._open(values)[entries]) if values in self.manifest.arrays else None
        return CSR(pointers - pointers[0], np.array(indices[entries]), held, (self.last - self.first, columns)).validate(what)

    def _open(self, role: str) -> np.ndarray:
        return open_array(self.folder, self.manifest.arrays[role])


def _block(slices: _Slices, with_features: bool) -> GraphBlock:
    manifest = slices.manifest
    adjacency = slices.matrix("", "weights", manifest.vertices, "adjacency")
    if adjacency.values is not None and adjacency.values.min(initial=0) < 0:
        raise DataError("weights must not be negative")
    features: np.ndarray | CSR | None = None
    if with_features and "features_values" in manifest.arrays:
        features = slices.matrix("features_", "features_values", manifest.num_features, "features")
    elif with_features:
        features = slices.rows("features")
        if features is not None and not np.isfinite(features).all():
            raise DataError("features must be finite")
    labels = slices.rows("labels")
    if labels is not None and not (labels.min(initial=-1) >= -1 and labels.max(initial=-1) < manifest.num_classes):
        raise DataError(f"labels run from {labels.min()} to {labels.max()}; -1 to {manifest.num_classes - 1} would fit")
    masks = {split: slices.rows(f"mask.{split}") for split in SPLITS}
    return GraphBlock(
        first=slices.first,
        last=slices.last,
        adjacency=adjacency,
        weight_unit=manifest.weight_unit,
        features=features,
        labels=labels,
        num_classes=manifest.num_classes,
        masks={split: mask for split, mask in masks.items() if mask is not None},
        name=manifest.name,
    )
