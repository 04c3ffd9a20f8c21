"""The manifests of a divided graph: one of the folder of parts, and one of each part.

    PARTS/manifest.json               the manifest of the graph, the sizes and the digest of each part
    PARTS/new_id.npy, old_id.npy      the place of each vertex, and the vertex at each place: int32, shape (n,)
    PARTS/part-00017/manifest.json    its graph, its partition and its arrays
    PARTS/part-00017/*.npy            the arrays of a store for the vertices of this part, with `old_id` and `first_entry`

A place numbers part after part; within a part vertices ascend. Columns keep the ids of the graph, so mini-batches are those of the whole
store. `first_entry` is the position of each row's first entry in the whole adjacency. A rank needs the three files at the top and its
own parts alone. The digests of the parts stand in the manifest above them, so parts of different partitions are never mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field

from ..errors import DataError
from ..sparse import row_pointers
from .manifest import FORMAT, LAYOUTS, Layout, Manifest, PlainLayout, check_roles, manifest_of
from .manifest_file import FILE, AnyManifest, ArrayEntry, Count, Entry, Fits, Sha256, SignedManifest, check_entry, read_manifest

PARTS, PART = "bulksample parts", "bulksample part"
OWN_ROLES = ("old_id", "first_entry")  # of a part, beside those of the graph


class PartSummary(Entry):
    """The sizes of a part, and the digest of its manifest."""

    folder: Annotated[str, Field(pattern=r"^part-\d{5,}$")]
    vertices: Count
    entries: Count
    training_vertices: Count
    bytes: Count
    digest: Sha256


class PartsManifest(SignedManifest):
    """All parts of a graph."""

    format: Literal["bulksample parts"] = "bulksample parts"
    version: Literal[1] = 1
    by: str
    seed: Count
    graph: PlainLayout
    parts: tuple[PartSummary, ...]
    arrays: dict[str, ArrayEntry]
    digest: str = ""

    @property
    def whole(self) -> Manifest:
        """The manifest of the undivided graph, whose arrays lie in the parts."""
        return manifest_of(self.graph)

    @property
    def bounds(self) -> np.ndarray:
        """Bounds of the places of each part: int64, shape (parts + 1,)."""
        return row_pointers([part.vertices for part in self.parts])


class PartManifest(SignedManifest):
    """One part of a graph."""

    format: Literal["bulksample part"] = "bulksample part"
    version: Literal[1] = 1
    part: Count
    graph: Sha256
    partition: Sha256
    vertices: Count
    entries: Count
    arrays: dict[str, ArrayEntry]
    digest: str = ""


def is_parts(directory: Any) -> bool:
    """Return True if a folder holds a divided graph; raises nothing."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        return bool(json.loads((Path(directory) / FILE).read_bytes()).get("format") == PARTS)
    return False


def graph_manifest(directory: Path, plain: bool = True) -> Manifest:
    """Read the manifest of a graph, whole or divided, and check every field. The arrays of a divided one lie in its parts.

    Raises `UsageError` if the graph is not plain, unless `plain` is False; see `data.manifest_file.read_manifest`.
    """
    layouts = {FORMAT: PlainLayout} if plain else LAYOUTS
    made = read_manifest(directory, {**layouts, PARTS: PartsManifest})
    if isinstance(made, PartsManifest):
        return _checked(directory, made).whole
    manifest = manifest_of(cast(Layout, made))
    check_roles(manifest, f"{directory.name}/{FILE}")
    return manifest


def load_parts(directory: Path) -> PartsManifest:
    """Read the manifest of a folder of parts and check every field; raises `DataError`."""
    made = read_manifest(directory, {FORMAT: PlainLayout, PARTS: PartsManifest})
    if not isinstance(made, PartsManifest):
        raise DataError(f"{directory.name}/{FILE}: is a whole store; use a folder of parts that `bulksample partition` wrote")
    return _checked(directory, made)


def _checked(directory: Path, made: PartsManifest) -> PartsManifest:
    what, graph = f"{directory.name}/{FILE}", made.whole
    n, entries = (sum(getattr(part, name) for part in made.parts) for name in ("vertices", "entries"))
    check_roles(graph, f"{what}: graph")
    if graph.digest != made.graph.content_digest() or (n, entries) != (graph.vertices, graph.edges):
        raise DataError(f"{what}: the parts have {n} vertices and {entries} entries; the graph {graph.vertices} and {graph.edges}")
    ids: Fits = (("<i4",), (graph.vertices,))
    return _with_roles(made, what, {"new_id": ids, "old_id": ids})


def _with_roles(manifest: AnyManifest, what: str, roles: dict[str, Fits]) -> AnyManifest:
    """Return a manifest; raises `DataError` unless it has arrays of some roles that fit."""
    for role, fits in roles.items():
        if role not in manifest.arrays:
            raise DataError(f"{what}: arrays.{role}: is missing")
        check_entry(f"{what}: arrays.{role}", manifest.arrays[role], fits)
    return manifest


def load_part(directory: Path, parts: PartsManifest, number: int) -> PartManifest:
    """Read the manifest of one part and check every field; raises `DataError` if it is of another partition or graph."""
    folder = directory / parts.parts[number].folder
    made, what = cast(PartManifest, read_manifest(folder, {PART: PartManifest})), f"{folder.name}/{FILE}"
    fits = {"graph": parts.graph.digest, "partition": parts.arrays["new_id"].sha256, "part": number, "digest": parts.parts[number].digest}
    for name, fit in fits.items():
        if (value := getattr(made, name)) != fit:
            why = f"its {name} is {value}, not {fit}"
            raise DataError(f"{what}: does not belong to {directory.name}: {why}; copy all parts of one partition")
    columns = {role: entry for role, entry in made.arrays.items() if role not in OWN_ROLES}
    check_roles(manifest_of(parts.graph.model_copy(update={"vertices": made.vertices, "edges": made.entries, "arrays": columns})), what)
    _with_roles(made, what, {role: ((dtype,), (made.vertices,)) for role, dtype in zip(OWN_ROLES, ("<i4", "<i8"), strict=True)})
    if columns.keys() != parts.graph.arrays.keys():
        raise DataError(f"{what}: its arrays are {', '.join(columns)}; the graph has {', '.join(parts.graph.arrays)}")
    return made


def folders_of(folder: Path, whole: Manifest) -> Iterator[tuple[Path, dict[str, ArrayEntry]]]:
    """Yield the folder of a graph and, if it is divided, that of each part, with the arrays that lie there."""
    if not is_parts(folder):
        yield folder, whole.arrays
        return
    parts = load_parts(folder)
    yield folder, parts.arrays
    for number, part in enumerate(parts.parts):
        yield folder / part.folder, load_part(folder, parts, number).arrays


def describe_parts(manifest: PartsManifest) -> dict[str, Any]:
    """Return the number of parts, their sizes, and the largest over the mean of vertices, entries and training vertices."""
    sizes = {name: np.array([getattr(part, name) for part in manifest.parts]) for name in ("vertices", "entries", "training_vertices")}
    return {
        "parts": len(manifest.parts), "by": manifest.by, "part_bytes": [part.bytes for part in manifest.parts],
        "max_over_mean": {name: float(load.max() / load.mean()) for name, load in sizes.items() if load.any()},
    }  # fmt: skip
