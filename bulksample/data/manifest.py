"""The manifest of a store of one vertex type: a list of its arrays that is checked before an array is read.

See `data.manifest_file` for what manifests of all stores have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field

from ..errors import DataError
from ..labels import target_of
from ..sparse import MAX_VERTICES
from ..vertex_table import SPLITS
from .manifest_file import (
    FILE,
    ArrayEntry,
    Count,
    Fits,
    SignedManifest,
    check_entry,
    check_files,
    check_sparse,
    is_column_name,
    read_manifest,
)

FORMAT = "bulksample store"


class Manifest(SignedManifest):
    """All arrays of a store by role.

    `indptr`, `indices`, `weights`, `features`, `edge_features`, `labels`, ``mask.<split>``, ``extra.<name>``.
    """

    format: Literal["bulksample store"] = "bulksample store"
    version: Literal[1] = 1
    name: str
    vertices: Annotated[int, Field(ge=0, le=MAX_VERTICES)]
    edges: Count
    weight_unit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    num_features: Annotated[int, Field(ge=0, le=MAX_VERTICES)]
    num_classes: Count
    arrays: dict[str, ArrayEntry]
    digest: str = ""

    @property
    def num_edge_features(self) -> int:
        entry = self.arrays.get("edge_features")
        return 0 if entry is None else entry.shape[1]

    def extras(self) -> list[str]:
        return [role.removeprefix("extra.") for role in self.arrays if role.startswith("extra.")]


def load_manifest(directory: Path) -> Manifest:
    """Read the manifest of a store of one vertex type and check every field; see `data.manifest_file.read_manifest`."""
    manifest = cast(Manifest, read_manifest(directory, {FORMAT: Manifest}))
    check_roles(manifest, f"{directory.name}/{FILE}")
    return manifest


def check_roles(manifest: Manifest, what: str) -> None:
    """Raise `DataError`, which begins with `what`, unless every array has a known role, and the dtype and shape of that role."""
    n, f, classes = manifest.vertices, manifest.num_features, manifest.num_classes
    for role, entry in manifest.arrays.items():
        fits = column_fits(role, len(entry.shape), n, f, classes) or edge_fits(role, n, manifest.edges)
        check_entry(f"{what}: arrays.{role}", entry, fits)
    check_files(what, manifest.arrays)
    for role in ("indptr", "indices"):
        if role not in manifest.arrays:
            raise DataError(f"{what}: arrays.{role}: is missing; every store has one")
    if "weights" not in manifest.arrays and manifest.weight_unit != 1:
        raise DataError(f"{what}: weight_unit is {manifest.weight_unit}, but there is no array of weights; use 1")
    check_sparse(what, manifest.arrays, f)


def edge_fits(role: str, rows: int, m: int) -> Fits | None:
    """Return the dtypes and the shape of an array of the edges; None for another role."""
    known: dict[str, Fits] = {
        "indptr": (("<i8",), (rows + 1,)),
        "indices": (("<i4",), (m,)),
        "weights": (("<i8",), (m,)),
        "edge_features": (("<f4", "<f2"), (m, None)),
    }
    return known.get(role)


def column_fits(role: str, ndim: int, n: int, f: int, classes: int) -> Fits | None:
    """Return the dtypes and the shape of a column of n vertices; None for another role."""
    known: dict[str, Fits] = {
        "features": (("<f4", "<f2"), (n, f)),
        "features_indptr": (("<i8",), (n + 1,)),
        "features_indices": (("<i4",), (None,)),
        "features_values": (("<f4",), (None,)),
        "labels": (("<i8",), (n,)) if ndim == 1 else (("|i1", "<f4"), (n, classes)),
        **{f"mask.{split}": (("|b1",), (n,)) for split in SPLITS},
    }
    if role.startswith("extra.") and is_column_name(role.removeprefix("extra.")):
        return (), (n, *[None] * (max(ndim, 1) - 1))
    return known.get(role)


def summary(manifest: Manifest) -> dict[str, Any]:
    """Return the entries that `bulksample data info` prints."""
    dense, labels = manifest.arrays.get("features"), manifest.arrays.get("labels")
    return {
        "name": manifest.name,
        "vertices": manifest.vertices,
        "edges": manifest.edges,
        "weighted": "weights" in manifest.arrays,
        "features": manifest.num_features,
        "feature_kind": np.dtype(dense.dtype).name if dense else "sparse" if "features_values" in manifest.arrays else "none",
        "edge_features": manifest.num_edge_features,
        "classes": manifest.num_classes,
        "target": target_of(labels.dtype, len(labels.shape)) if labels else None,
        "splits": [role.removeprefix("mask.") for role in manifest.arrays if role.startswith("mask.")],
        "extra": manifest.extras(),
        "bytes": sum(entry.bytes for entry in manifest.arrays.values()),
        "digest": manifest.digest,
    }
