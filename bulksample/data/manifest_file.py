"""Find the manifest of a store, read it, and check all that manifests of every format have: a list of arrays, and a digest.

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
from typing import TYPE_CHECKING, Annotated, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import DataError, UsageError
from .atomic import RESTORED_AFTER, replaced, sweep
from .npy import regular_size

FILE = "manifest.json"
VERSION = 1
FORMATS = {
    "bulksample store": "a graph of one vertex type", "bulksample heterogeneous store": "a heterogeneous graph",
    "bulksample parts": "a graph divided into parts", "bulksample part": "one part of a graph",
}  # fmt: skip
Fits = tuple[tuple[str, ...], tuple[int | None, ...]]  # the dtypes of a role (empty: any) and its shape (None: any length)

_MAX_BYTES = 2**24
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
Count = Annotated[int, Field(ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Entry(BaseModel):
    """A part of a manifest; no further fields are accepted, and none is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ArrayEntry(Entry):
    """One array: a plain `.npy` file in the folder of the store."""

    file: str
    dtype: str
    shape: tuple[Count, ...]
    bytes: Count
    sha256: Sha256


class SignedManifest(Entry):
    """The arrays of a store by role, with a digest of all fields."""

    if TYPE_CHECKING:  # the fields stand in the classes, after those that a reader looks for first
        arrays: dict[str, ArrayEntry]
        digest: str = ""

    def content_digest(self) -> str:
        """Return the sha256 of all fields except the digest, as JSON with sorted keys."""
        body = json.dumps(self.model_dump(mode="json", exclude={"digest"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()

    def dumps(self) -> bytes:
        return (self.model_dump_json(indent=2) + "\n").encode()


AnyManifest = TypeVar("AnyManifest", bound=SignedManifest)


def signed(manifest: AnyManifest) -> AnyManifest:
    """Return the manifest with its digest."""
    return manifest.model_copy(update={"digest": manifest.content_digest()})


def _nearest(directory: Path) -> str:
    """Return "; did you mean …?" with the store of the most similar name, or the public data set of such a name; else what a graph is."""
    from .ogb_sets import SETS

    with suppress(OSError):
        stores = [path.name for path in directory.parent.iterdir() if (path / FILE).is_file()]
        if near := difflib.get_close_matches(directory.name, stores, 1):
            return f"; did you mean {str(directory.with_name(near[0]))!r}?"
    if near := difflib.get_close_matches(directory.name.replace("_", "-"), SETS, 1, 0.8):
        same = near[0] == directory.name
        named = "it is a public data set: import it first, with" if same else f"did you mean the data set {near[0]}? Import it first:"
        return f"; {named} bulksample data import ogb {near[0]} -o {near[0]}"
    return "; a graph is the folder of a store, which `data import` or `data make` writes"


def read_manifest(directory: Path, kinds: dict[str, type[SignedManifest]]) -> SignedManifest:
    """Read the manifest of a store and check every field, and that its digest is that of its content; `kinds` are the formats that fit.

    Leftovers of killed writers beside the store are swept first; see `data.atomic`. Raises `DataError` if there is no manifest, or it is
    damaged or of another version, naming the field; `UsageError` if the store holds another kind of graph.
    """
    path = _find(directory)
    what = f"{directory.name}/{FILE}"
    try:
        text = path.read_bytes()
        body = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{what}: is not JSON: {error}") from error
    form = body.get("format") if isinstance(body, dict) else None
    if not isinstance(form, str) or form not in FORMATS:
        raise DataError(f"{what}: is not the manifest of a store: format must be {' or '.join(map(repr, FORMATS))}")
    if form not in kinds:
        raise UsageError(f"{directory}: holds {FORMATS[form]}; use a store of {' or '.join(FORMATS[kind] for kind in kinds)}")
    version = body.get("version")
    if type(version) is not int or version != VERSION:
        use = "write the store again, or use the release that wrote it"
        raise DataError(f"{what}: got version {version!r}; this release reads {VERSION}: {use}")
    try:
        manifest = kinds[form].model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        raise DataError(f"{what}: {'.'.join(map(str, fault['loc'])) or 'manifest'}: {fault['msg']}") from error
    if manifest.digest != manifest.content_digest():
        why = f"its digest is {manifest.digest!r}, its content gives {manifest.content_digest()}"
        raise DataError(f"{what}: was changed after it was written: {why}")
    return manifest


def _find(directory: Path) -> Path:
    """Return the manifest's file; raises `DataError` for a folder that is no store."""
    sweep(directory.parent)
    if directory.is_file():
        raise DataError(f"{directory}: is a file, not the folder of a store; use the folder that has a {FILE}")
    if not directory.is_dir():
        if (old := replaced(directory)) is None:
            raise DataError(f"{directory}: there is no such folder{_nearest(directory)}")
        raise DataError(
            f"{directory}: there is no such folder; a writer on another host is replacing it or was killed, and the old store is at {old}: "
            f"run the command again {RESTORED_AFTER / 60:.0f} minutes after that, which puts it back"
        )
    path = directory / FILE
    what = f"{directory.name}/{FILE}"
    if not path.exists():
        raise DataError(f"{directory}: is not a store: it has no {FILE}")
    if regular_size(path, what) > _MAX_BYTES:
        raise DataError(f"{what}: is larger than {_MAX_BYTES} bytes")
    return path


def check_entry(where: str, entry: ArrayEntry, fits: Fits | None) -> None:
    """Raise `DataError`, which begins with `where`, unless an array has the dtype and shape of its role; None: there is no such role."""
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


def check_sparse(what: str, arrays: dict[str, ArrayEntry], num_features: int) -> None:
    """Raise `DataError`, which begins with `what`, unless features are one array, the three of a sparse matrix, or none."""
    sparse = [role in arrays for role in ("features_indptr", "features_indices", "features_values")]
    if any(sparse) and (not all(sparse) or "features" in arrays):
        raise DataError(f"{what}: arrays.features: must be one array, or the three of a sparse matrix")
    if all(sparse) and arrays["features_indices"].shape != arrays["features_values"].shape:
        raise DataError(f"{what}: arrays.features_values: must be as long as features_indices")
    if num_features and not any(sparse) and "features" not in arrays:
        raise DataError(f"{what}: num_features is {num_features}, but there is no array of features")


def is_column_name(name: str) -> bool:
    """Return True if a further column may have this name: it is part of a file name."""
    return _NAME.fullmatch(name) is not None


def file_of(role: str) -> str:
    """Return the file name of a role; raises `DataError` for a further column whose name cannot be a file name."""
    head, extra, name = role.partition("extra.")
    if extra and not is_column_name(name):
        raise DataError(f"column {name!r} cannot be a file name; use letters, digits, '_', '-' and '.', at most 100")
    return head.replace(".", "_") + (f"extra_{name}" if extra else "") + ".npy"
