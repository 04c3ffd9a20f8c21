"""The manifest of a heterogeneous store: its types and relations, and a list of all their arrays.

The role of an array names its place: ``types.0.features`` belongs to the first type, ``relations.2.indptr`` to the third relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ...errors import DataError
from ...labels import target_of
from ...sparse import MAX_VERTICES
from ..manifest import column_fits, edge_fits
from ..manifest_file import FILE, ArrayEntry, Count, Fits, SignedManifest, check_entry, check_files, check_sparse, read_manifest

FORMAT = "bulksample heterogeneous store"
_Size = Annotated[int, Field(ge=0, le=MAX_VERTICES)]


class TypeEntry(BaseModel):
    """One vertex type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str
    vertices: _Size
    num_features: _Size
    num_classes: Count


class RelationEntry(BaseModel):
    """One relation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    source: str
    name: str
    destination: str
    edges: Count
    weight_unit: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HeteroManifest(SignedManifest):
    """All types, relations and arrays of a store.

    Roles of a type: `features`, `labels`, ``mask.<split>``, `times`, ``extra.<name>``; of a relation: `indptr`, `indices`, `weights`,
    `edge_ids`, `times`, `edge_features`.
    """

    format: Literal["bulksample heterogeneous store"] = "bulksample heterogeneous store"
    version: Literal[1] = 1
    name: str
    types: tuple[TypeEntry, ...]
    relations: tuple[RelationEntry, ...]
    arrays: dict[str, ArrayEntry]
    digest: str = ""

    def of_type(self, place: int) -> dict[str, ArrayEntry]:
        """Return the arrays of a type, by role within it."""
        return _below(self.arrays, f"types.{place}.")

    def of_relation(self, place: int) -> dict[str, ArrayEntry]:
        """Return the arrays of a relation, by role within it."""
        return _below(self.arrays, f"relations.{place}.")


def _below(arrays: dict[str, ArrayEntry], prefix: str) -> dict[str, ArrayEntry]:
    return {role.removeprefix(prefix): entry for role, entry in arrays.items() if role.startswith(prefix)}


def load_hetero_manifest(directory: Path) -> HeteroManifest:
    """Read the manifest of a heterogeneous store and check every field; see `data.manifest_file.read_manifest`."""
    manifest = cast(HeteroManifest, read_manifest(directory, {FORMAT: HeteroManifest}))
    check_parts(manifest, f"{directory.name}/{FILE}")
    return manifest


def check_parts(manifest: HeteroManifest, what: str) -> None:
    """Raise `DataError`, which begins with `what`, unless every array belongs to a type or relation, and has its dtype and shape."""
    counts = {kind.name: kind.vertices for kind in manifest.types}
    if len(counts) < len(manifest.types):
        raise DataError(f"{what}: types: two have one name; give each a name of its own")
    for i, relation in enumerate(manifest.relations):
        for end in (relation.source, relation.destination):
            if end not in counts:
                raise DataError(f"{what}: relations.{i}: there is no type {end!r}; use {', '.join(counts) or 'a type that is there'}")
    for role, entry in manifest.arrays.items():
        check_entry(f"{what}: arrays.{role}", entry, _fits(manifest, role, len(entry.shape), counts))
    check_files(what, manifest.arrays)
    for i, kind in enumerate(manifest.types):
        check_sparse(f"{what}: types.{i}", manifest.of_type(i), kind.num_features)
    for i, relation in enumerate(manifest.relations):
        arrays = manifest.of_relation(i)
        for role in ("indptr", "indices"):
            if role not in arrays:
                raise DataError(f"{what}: arrays.relations.{i}.{role}: is missing; every relation has one")
        if "weights" not in arrays and relation.weight_unit != 1:
            raise DataError(f"{what}: relations.{i}: weight_unit is {relation.weight_unit}, but there is no array of weights; use 1")


def _fits(manifest: HeteroManifest, role: str, ndim: int, counts: dict[str, int]) -> Fits | None:
    """Return the dtypes and the shape that a role allows; None for an unknown one."""
    group, _, rest = role.partition(".")
    number, _, own = rest.partition(".")
    parts: tuple[Any, ...] = {"types": manifest.types, "relations": manifest.relations}.get(group, ())
    if not number.isdecimal() or str(int(number)) != number or int(number) >= len(parts):
        return None
    part = parts[int(number)]
    if group == "types":
        stamps: Fits = (("<i8",), (part.vertices,))
        return stamps if own == "times" else column_fits(own, ndim, part.vertices, part.num_features, part.num_classes)
    each: Fits = (("<i8",), (part.edges,))
    return each if own in ("times", "edge_ids") else edge_fits(own, counts[part.destination], part.edges)


def hetero_summary(manifest: HeteroManifest) -> dict[str, Any]:
    """Return the entries that `bulksample data info` prints: the schema of the graph."""
    return {
        "name": manifest.name,
        "vertices": sum(kind.vertices for kind in manifest.types),
        "edges": sum(relation.edges for relation in manifest.relations),
        "types": {kind.name: _of_type(kind, manifest.of_type(i)) for i, kind in enumerate(manifest.types)},
        "relations": {_title(relation): _of_relation(relation, manifest.of_relation(i)) for i, relation in enumerate(manifest.relations)},
        "bytes": sum(entry.bytes for entry in manifest.arrays.values()),
        "digest": manifest.digest,
    }


def _title(relation: RelationEntry) -> str:
    return f"{relation.source} {relation.name} {relation.destination}"


def _of_type(kind: TypeEntry, arrays: dict[str, ArrayEntry]) -> dict[str, Any]:
    dense, labels = arrays.get("features"), arrays.get("labels")
    return {
        "vertices": kind.vertices,
        "features": kind.num_features,
        "feature_kind": np.dtype(dense.dtype).name if dense else "sparse" if "features_values" in arrays else "none",
        "classes": kind.num_classes,
        "target": target_of(labels.dtype, len(labels.shape)) if labels else None,
        "splits": list(_named(arrays, "mask.")),
        "times": "times" in arrays,
        "extra": list(_named(arrays, "extra.")),
    }


def _of_relation(relation: RelationEntry, arrays: dict[str, ArrayEntry]) -> dict[str, Any]:
    features = arrays.get("edge_features")
    return {
        "edges": relation.edges,
        "weighted": "weights" in arrays,
        "times": "times" in arrays,
        "edge_features": features.shape[1] if features else 0,
    }


def _named(arrays: dict[str, ArrayEntry], prefix: str) -> Iterator[str]:
    return (role.removeprefix(prefix) for role in arrays if role.startswith(prefix))
