"""The manifest of a store: its types and relations, and a list of their arrays that is checked before an array is read.

A file has one of two layouts. That of a plain graph, `PlainLayout`, names the roles of arrays alone, such as ``indptr``; that of others,
`Manifest`, names their places too: ``types.0.features`` belongs to the first type, ``relations.2.indptr`` to the third relation. Only
`layout_of` and `manifest_of` know both. See `data.manifest_file` for what all manifests have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from ..errors import DataError, UsageError
from ..graph import EDGE, NODE, Graph, Key
from ..graph.vertex_table import SPLITS
from ..sparse import MAX_VERTICES
from .manifest_file import FILE, ArrayEntry, Count, Entry, Fits, SignedManifest, check_entry, check_sparse, is_column_name, read_manifest

FORMAT, TYPED_FORMAT = "bulksample store", "bulksample heterogeneous store"
_Size = Annotated[int, Field(ge=0, le=MAX_VERTICES)]
_Unit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_OF_PLAIN_EDGES = ("indptr", "indices", "weights", "edge_features")
_NOT_PLAIN = ("times", "edge_ids")
Held = TypeVar("Held")


class TypeEntry(Entry):
    """One vertex type."""

    name: str
    vertices: _Size
    num_features: _Size
    num_classes: Count


class RelationEntry(Entry):
    """One relation. `parallel` is written only if it is False, as stores of earlier versions do not have it."""

    source: str
    name: str
    destination: str
    edges: Count
    weight_unit: _Unit
    parallel: bool = True

    @property
    def key(self) -> Key:
        return self.source, self.name, self.destination

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        return {name: value for name, value in fields.items() if name != "parallel" or not value}


class PlainLayout(SignedManifest):
    """The manifest of a plain graph as its file has it."""

    format: Literal["bulksample store"] = "bulksample store"
    version: Literal[1] = 1
    name: str
    vertices: _Size
    edges: Count
    weight_unit: _Unit
    num_features: _Size
    num_classes: Count
    arrays: dict[str, ArrayEntry]
    digest: str = ""


class Manifest(SignedManifest):
    """The types and relations of a store, and their arrays by role, as the file names them: its layout unless the graph is plain.

    Roles of a type: `features`, or `features_indptr`, `features_indices` and `features_values`; `labels`, ``mask.<split>``, `times`,
    ``extra.<name>``. Roles of a relation: `indptr`, `indices`, `weights`, `edge_ids`, `times`, `edge_features`. A graph is `plain` if it
    has one type and one relation. The digest is the sha256 of all fields of the file.
    """

    format: Literal["bulksample store", "bulksample heterogeneous store"] = "bulksample heterogeneous store"
    version: Literal[1] = 1
    name: str
    types: tuple[TypeEntry, ...]
    relations: tuple[RelationEntry, ...]
    arrays: dict[str, ArrayEntry]
    digest: str = ""

    @staticmethod
    def of(graph: Graph, arrays: dict[str, ArrayEntry]) -> Manifest:
        """Return the manifest of a graph whose arrays were written, without a digest."""
        types = tuple(
            TypeEntry(name=kind.name, vertices=kind.count, num_features=kind.num_features, num_classes=int(kind.num_classes))
            for kind in graph.types
        )
        relations = tuple(
            RelationEntry(
                source=one.source, name=one.name, destination=one.destination, edges=one.edges,
                weight_unit=1.0 if one.adjacency.values is None else float(one.weight_unit), parallel=one.parallel,
            )
            for one in graph.relations
        )  # fmt: skip
        kind: Any = FORMAT if graph.plain else TYPED_FORMAT
        return Manifest(format=kind, name=graph.name, types=types, relations=relations, arrays=arrays)

    @property
    def plain(self) -> bool:
        return self.format == FORMAT

    @property
    def vertices(self) -> int:
        """Number of vertices of all types."""
        return sum(kind.vertices for kind in self.types)

    @property
    def edges(self) -> int:
        """Number of edges of all relations."""
        return sum(relation.edges for relation in self.relations)

    @property
    def num_features(self) -> int:
        return self._only_type.num_features

    @property
    def num_classes(self) -> int:
        return self._only_type.num_classes

    @property
    def weight_unit(self) -> float:
        return self.relations[0].weight_unit

    @property
    def num_edge_features(self) -> int:
        entry = self.arrays.get("edge_features")
        return 0 if entry is None else entry.shape[1]

    def of_type(self, place: int) -> dict[str, ArrayEntry]:
        """Return the arrays of a type, by role within it."""
        return self.within("types", place, self.arrays)

    def of_relation(self, place: int) -> dict[str, ArrayEntry]:
        """Return the arrays of a relation, by role within it."""
        return self.within("relations", place, self.arrays)

    def prefix(self, group: str, place: int) -> str:
        """Return how the roles of a type (group ``types``) or a relation (``relations``) begin in `arrays`."""
        return "" if self.plain else f"{group}.{place}."

    def part_of(self, role: str) -> tuple[TypeEntry | RelationEntry | None, str]:
        """Return the type or the relation that a role of `arrays` belongs to, None if there is none, and the role within it."""
        if self.plain:
            part = self.relations[0] if role in _OF_PLAIN_EDGES else None if role in _NOT_PLAIN else self.types[0]
            return part, role
        group, _, rest = role.partition(".")
        number, _, inner = rest.partition(".")
        parts: tuple[Any, ...] = {"types": self.types, "relations": self.relations}.get(group, ())
        known = number.isdecimal() and str(int(number)) == number and int(number) < len(parts)
        return (parts[int(number)] if known else None), inner

    def within(self, group: str, place: int, arrays: Mapping[str, Held]) -> dict[str, Held]:
        """Return what `arrays` hold for a type (group ``types``) or a relation (``relations``), by role within it."""
        if self.plain:
            return {role: value for role, value in arrays.items() if (role in _OF_PLAIN_EDGES) == (group == "relations")}
        start = self.prefix(group, place)
        return {role.removeprefix(start): value for role, value in arrays.items() if role.startswith(start)}

    @property
    def _only_type(self) -> TypeEntry:
        if len(self.types) != 1:
            raise UsageError(f"graph {self.name!r} has {len(self.types)} vertex types; use of_type for one of them")
        return self.types[0]


Layout = PlainLayout | Manifest
LAYOUTS: dict[str, type[SignedManifest]] = {FORMAT: PlainLayout, TYPED_FORMAT: Manifest}


def layout_of(manifest: Manifest) -> Layout:
    """Return a manifest as its file has it."""
    if not manifest.plain:
        return manifest
    ((kind,), (edges,)) = manifest.types, manifest.relations
    return PlainLayout(
        name=manifest.name, vertices=kind.vertices, edges=edges.edges, weight_unit=edges.weight_unit, num_features=kind.num_features,
        num_classes=kind.num_classes, arrays=manifest.arrays, digest=manifest.digest,
    )  # fmt: skip


def manifest_of(layout: Layout) -> Manifest:
    """Return the manifest that a file has in one of the layouts."""
    if isinstance(layout, Manifest):
        return layout
    vertices = TypeEntry(name=NODE, vertices=layout.vertices, num_features=layout.num_features, num_classes=layout.num_classes)
    edges = RelationEntry(
        source=NODE, name=EDGE, destination=NODE, edges=layout.edges, weight_unit=layout.weight_unit, parallel=False
    )  # fmt: skip
    return Manifest(
        format=layout.format, name=layout.name, types=(vertices,), relations=(edges,), arrays=layout.arrays, digest=layout.digest
    )  # fmt: skip


def load_manifest(directory: Path) -> Manifest:
    """Read the manifest of a plain graph that is not divided, and check every field; see `data.manifest_file.read_manifest`."""
    manifest = manifest_of(cast(PlainLayout, read_manifest(directory, {FORMAT: PlainLayout})))
    check_roles(manifest, f"{directory.name}/{FILE}")
    return manifest


def check_roles(manifest: Manifest, what: str) -> None:
    """Raise `DataError`, which begins with `what`, unless every array belongs to a type or relation, and has its dtype and shape."""
    counts = {kind.name: kind.vertices for kind in manifest.types}
    if len(counts) < len(manifest.types):
        raise DataError(f"{what}: types: two have one name; give each a name of its own")
    for i, relation in enumerate(manifest.relations):
        for end in (relation.source, relation.destination):
            if end not in counts:
                raise DataError(f"{what}: relations.{i}: there is no type {end!r}; use {', '.join(counts) or 'a type that is there'}")
    for role, entry in manifest.arrays.items():
        part, inner = manifest.part_of(role)
        fits = None
        if isinstance(part, TypeEntry):
            fits = _column_fits(inner, len(entry.shape), part)
        elif part is not None:
            fits = _edge_fits(inner, counts[part.destination], part.edges)
        check_entry(f"{what}: arrays.{role}", entry, fits)
    files: dict[str, str] = {}
    for role, entry in manifest.arrays.items():
        if (other := files.setdefault(entry.file, role)) != role:
            raise DataError(f"{what}: arrays.{role}: file {entry.file!r} is also the file of {other}")
    for i, kind in enumerate(manifest.types):
        check_sparse(_place(manifest, what, "types", i), manifest.of_type(i), kind.num_features)
    for i, relation in enumerate(manifest.relations):
        arrays = manifest.of_relation(i)
        for role in ("indptr", "indices"):
            if role not in arrays:
                raise DataError(f"{what}: arrays.{manifest.prefix('relations', i)}{role}: is missing; every relation has one")
        if "weights" not in arrays and relation.weight_unit != 1:
            place = _place(manifest, what, "relations", i)
            raise DataError(f"{place}: weight_unit is {relation.weight_unit}, but there is no array of weights; use 1")


def _place(manifest: Manifest, what: str, group: str, place: int) -> str:
    return what if manifest.plain else f"{what}: {group}.{place}"


def _edge_fits(role: str, rows: int, m: int) -> Fits | None:
    """Return the dtypes and the shape of an array of the edges; None for another role."""
    each: Fits = (("<i8",), (m,))
    known: dict[str, Fits] = {
        "indptr": (("<i8",), (rows + 1,)),
        "indices": (("<i4",), (m,)),
        "edge_features": (("<f4", "<f2"), (m, None)),
        **dict.fromkeys(("weights", "edge_ids", "times"), each),
    }
    return known.get(role)


def _column_fits(role: str, ndim: int, kind: TypeEntry) -> Fits | None:
    """Return the dtypes and the shape of a column of the vertices of a type; None for another role."""
    n = kind.vertices
    known: dict[str, Fits] = {
        "features": (("<f4", "<f2"), (n, kind.num_features)),
        "features_indptr": (("<i8",), (n + 1,)),
        "features_indices": (("<i4",), (None,)),
        "features_values": (("<f4",), (None,)),
        "labels": (("<i8",), (n,)) if ndim == 1 else (("|i1", "<f4"), (n, kind.num_classes)),
        "times": (("<i8",), (n,)),
        **{f"mask.{split}": (("|b1",), (n,)) for split in SPLITS},
    }
    if role.startswith("extra.") and is_column_name(role.removeprefix("extra.")):
        return (), (n, *[None] * (max(ndim, 1) - 1))
    return known.get(role)
