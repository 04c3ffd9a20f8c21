"""The manifest of a store: a list of its arrays that is checked before an array is read.

A manifest names each array by its role, and gives its file, dtype, shape, size and sha256. It also holds a sha256 of
itself, so an edited or damaged manifest is detected. Two stores with the same digest hold the same graph.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import DataError
from ..graph import SPLITS
from ..labels import target_of
from ..sparse import MAX_VERTICES
from .atomic import RESTORED_AFTER, replaced, sweep
from .npy import regular_size

FILE = "manifest.json"
FORMAT = "bulksample store"
VERSION = 1

_MAX_BYTES = 2**24
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ArrayEntry(BaseModel):
    """One array: a plain `.npy` file in the folder of the store."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    file: str
    dtype: str
    shape: tuple[_Count, ...]
    bytes: _Count
    sha256: _Sha256


class Manifest(BaseModel):
    """All arrays of a store by role.

    `indptr`, `indices`, `weights`, `features`, `edge_features`, `labels`, ``mask.<split>``, ``extra.<name>``.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["bulksample store"] = "bulksample store"
    version: Literal[1] = 1
    name: str
    vertices: Annotated[int, Field(ge=0, le=MAX_VERTICES)]
    edges: _Count
    weight_unit: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    num_features: Annotated[int, Field(ge=0, le=MAX_VERTICES)]
    num_classes: _Count
    arrays: dict[str, ArrayEntry]
    digest: str = ""

    def with_digest(self) -> Manifest:
        return self.model_copy(update={"digest": self.content_digest()})

    def content_digest(self) -> str:
        """Return the sha256 of all fields except the digest, as JSON with sorted keys."""
        body = json.dumps(self.model_dump(mode="json", exclude={"digest"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()

    def dumps(self) -> bytes:
        return (self.model_dump_json(indent=2) + "\n").encode()

    @property
    def num_edge_features(self) -> int:
        entry = self.arrays.get("edge_features")
        return 0 if entry is None else entry.shape[1]

    def extras(self) -> list[str]:
        return [role.removeprefix("extra.") for role in self.arrays if role.startswith("extra.")]


def _old_of(directory: Path) -> str:
    """Return where the old store is, if the writer of a new one has not finished; empty if there is none."""
    if (old := replaced(directory)) is None:
        return ""
    return (
        f"; a writer on another host is replacing it or was killed, and the old store is at {old}: "
        f"run the command again {RESTORED_AFTER / 60:.0f} minutes after that, which puts it back"
    )


def _nearest(directory: Path) -> str:
    """Return "; did you mean …?" with the store of the most similar name; empty if there is none."""
    with suppress(OSError):
        stores = [path.name for path in directory.parent.iterdir() if (path / FILE).is_file()]
        if near := difflib.get_close_matches(directory.name, stores, 1):
            return f"; did you mean {str(directory.with_name(near[0]))!r}?"
    return ""


def load_manifest(directory: Path) -> Manifest:
    """Read the manifest of a store and check every field; raises `DataError` naming the field.

    Leftovers of killed writers beside the store are swept first; see `data.atomic`.
    """
    sweep(directory.parent)
    if directory.is_file():
        raise DataError(f"{directory}: is a file, not the folder of a store; use the folder that has a {FILE}")
    if not directory.is_dir():
        raise DataError(f"{directory}: there is no such folder{_old_of(directory) or _nearest(directory)}")
    path = directory / FILE
    what = f"{directory.name}/{FILE}"
    if not path.exists():
        raise DataError(f"{directory}: is not a store: it has no {FILE}")
    if regular_size(path, what) > _MAX_BYTES:
        raise DataError(f"{what}: is larger than {_MAX_BYTES} bytes")
    try:
        text = path.read_bytes()
        body = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{what}: is not JSON: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise DataError(f"{what}: is not the manifest of a store: format must be {FORMAT!r}")
    version = body.get("version")
    if type(version) is not int or version != VERSION:
        raise DataError(
            f"{what}: got version {version!r}; this release reads {VERSION}: write the store again, or use the release that wrote it"
        )
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        raise DataError(f"{what}: {'.'.join(map(str, fault['loc'])) or 'manifest'}: {fault['msg']}") from error
    if manifest.digest != manifest.content_digest():
        raise DataError(
            f"{what}: was changed after it was written: its digest is {manifest.digest!r}, its content gives {manifest.content_digest()}"
        )
    _check_roles(manifest, what)
    return manifest


def _check_roles(manifest: Manifest, what: str) -> None:
    """Raise `DataError` unless every array has a known role, and the dtype and shape of that role."""
    files: dict[str, str] = {}
    for role, entry in manifest.arrays.items():
        where = f"{what}: arrays.{role}"
        fits = _fitting(manifest, role, len(entry.shape))
        if fits is None:
            raise DataError(f"{where}: is not a role of an array")
        dtypes, shape = fits
        if dtypes and entry.dtype not in dtypes:
            raise DataError(f"{where}: dtype is {entry.dtype!r}; use {' or '.join(dtypes)}")
        if not dtypes and not re.fullmatch(r"[<|](b1|[iu][1248]|f[248]|U\d{1,6})", entry.dtype):
            raise DataError(f"{where}: dtype is {entry.dtype!r}; use numbers, booleans or text")
        if len(shape) != len(entry.shape) or any(fit is not None and side != fit for side, fit in zip(entry.shape, shape, strict=True)):
            raise DataError(f"{where}: shape is {entry.shape}; use {tuple('any' if s is None else s for s in shape)}")
        if math.prod(entry.shape) * np.dtype(entry.dtype).itemsize > entry.bytes:
            raise DataError(f"{where}: {entry.bytes} bytes do not hold {entry.dtype} of shape {entry.shape}")
        if not (_NAME.fullmatch(entry.file) and entry.file.endswith(".npy")):
            raise DataError(f"{where}: file {entry.file!r} is not the name of a .npy file in the folder")
        if entry.file in files:
            raise DataError(f"{where}: file {entry.file!r} is also the file of {files[entry.file]}")
        files[entry.file] = role
    for role in ("indptr", "indices"):
        if role not in manifest.arrays:
            raise DataError(f"{what}: arrays.{role}: is missing; every store has one")
    if "weights" not in manifest.arrays and manifest.weight_unit != 1:
        raise DataError(f"{what}: weight_unit is {manifest.weight_unit}, but there is no array of weights; use 1")
    sparse = [role in manifest.arrays for role in ("features_indptr", "features_indices", "features_values")]
    if any(sparse) and (not all(sparse) or "features" in manifest.arrays):
        raise DataError(f"{what}: arrays.features: must be one array, or the three of a sparse matrix")
    if all(sparse) and manifest.arrays["features_indices"].shape != manifest.arrays["features_values"].shape:
        raise DataError(f"{what}: arrays.features_values: must be as long as features_indices")
    if manifest.num_features and not any(sparse) and "features" not in manifest.arrays:
        raise DataError(f"{what}: num_features is {manifest.num_features}, but there is no array of features")


def _fitting(manifest: Manifest, role: str, ndim: int) -> tuple[tuple[str, ...], tuple[int | None, ...]] | None:
    """Return the dtypes (empty: any) and the shape (None: any length) that a role allows; None for an unknown role."""
    n, m, f = manifest.vertices, manifest.edges, manifest.num_features
    known: dict[str, tuple[tuple[str, ...], tuple[int | None, ...]]] = {
        "indptr": (("<i8",), (n + 1,)),
        "indices": (("<i4",), (m,)),
        "weights": (("<i8",), (m,)),
        "features": (("<f4", "<f2"), (n, f)),
        "edge_features": (("<f4", "<f2"), (m, None)),
        "features_indptr": (("<i8",), (n + 1,)),
        "features_indices": (("<i4",), (None,)),
        "features_values": (("<f4",), (None,)),
        "labels": (("<i8",), (n,)) if ndim == 1 else (("|i1", "<f4"), (n, manifest.num_classes)),
        **{f"mask.{split}": (("|b1",), (n,)) for split in SPLITS},
    }
    if role.startswith("extra.") and _NAME.fullmatch(role.removeprefix("extra.")):
        return (), (n, *[None] * (max(ndim, 1) - 1))
    return known.get(role)


def file_of(role: str) -> str:
    """Return the file name of a role; raises `DataError` for an extra column whose name cannot be a file name."""
    name = role.split(".", 1)[-1]
    if not _NAME.fullmatch(name):
        raise DataError(f"column {name!r} cannot be a file name; use letters, digits, '_', '-' and '.', at most 100")
    return role.replace(".", "_", 1) + ".npy"


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
