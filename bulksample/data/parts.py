"""A divided graph as a whole: its description, the hashes of all its parts, and its arrays in the order of the undivided store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .describe import summary
from .manifest_file import SignedManifest
from .parts_manifest import PartsManifest, load_part, load_parts
from .store_files import check_size, check_sums, wanted
from .stored_rows import open_rows


def parts_info(folder: Path) -> dict[str, Any]:
    """Describe a graph and its parts from their manifests and the sizes of their files, without reading arrays."""
    parts = load_parts(folder)
    for own, manifest in folders_of(folder, parts):
        for entry in manifest.arrays.values():
            check_size(own, entry)
    return {**summary(parts.whole), **describe_parts(parts)}


def describe_parts(manifest: PartsManifest) -> dict[str, Any]:
    """Return the number of parts, their sizes, and the largest over the mean of vertices, entries and training vertices."""
    sizes = {name: np.array([getattr(part, name) for part in manifest.parts]) for name in ("vertices", "entries", "training_vertices")}
    return {
        "parts": len(manifest.parts), "by": manifest.by, "part_bytes": [part.bytes for part in manifest.parts],
        "max_over_mean": {name: float(load.max() / load.mean()) for name, load in sizes.items() if load.any()},
    }  # fmt: skip


def check_parts(folder: Path, features: bool, check: str) -> None:
    """Compare the files of all parts with their hashes; `check` is that of `store_files.check_sums`. Raises `DataError`."""
    for own, manifest in folders_of(folder, load_parts(folder)):
        check_sums(own, wanted(manifest.arrays, features).values(), check)


def gathered(folder: Path, roles: Iterable[str]) -> dict[str, np.ndarray]:
    """Read arrays of all parts into memory, in the order of the undivided store."""
    stored, made, roles = open_rows(folder), dict[str, np.ndarray](), list(roles)
    for prefix, values in (("", "weights"), ("features_", "features_values")):
        if f"{prefix}indices" in roles:
            columns = stored.manifest.num_features if prefix else stored.manifest.vertices
            matrix = stored.matrix(prefix, values, columns, "features" if prefix else "adjacency")
            made |= {f"{prefix}indptr": matrix.indptr, f"{prefix}indices": matrix.indices}
            made |= {} if matrix.values is None else {values: matrix.values}
    for role in roles:
        if role not in made and (array := stored.edge_features() if role == "edge_features" else stored.rows(role)) is not None:
            made[role] = array
    return made


def folders_of(folder: Path, parts: PartsManifest) -> Iterable[tuple[Path, SignedManifest]]:
    """Yield the folder of parts and that of each part, with their manifests."""
    yield folder, parts
    for number, part in enumerate(parts.parts):
        yield folder / part.folder, load_part(folder, parts, number)
