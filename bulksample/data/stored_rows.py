"""Read the rows of some vertices of a stored graph, and no other bytes: from a whole store, or from the parts that hold them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..sparse import CSR, frozen, row_pointers, runs
from .manifest import Manifest, load_manifest
from .manifest_file import ArrayEntry
from .parts_manifest import is_parts, load_part, load_parts
from .store_files import open_array


class Piece(NamedTuple):
    """Rows in the files of one folder, and where they stand among the rows that are read."""

    folder: Path
    arrays: dict[str, ArrayEntry]
    rows: Any  # a slice or integers
    at: Any


class StoredRows:
    """The rows of some vertices in the arrays of a graph; `manifest` is that of the whole graph, and the vertices ascend (int32).

    They lie in the files of one folder or, if the graph is `divided`, of its parts. `read_bytes` counts the bytes of the rows that were
    read so far, and of the places of the vertices if the graph is divided.
    """

    def __init__(self, folder: Path, manifest: Manifest, vertices: np.ndarray, pieces: list[Piece], divided: bool = False) -> None:
        self.folder, self.manifest, self.vertices, self.pieces, self.divided = folder, manifest, vertices, pieces, divided
        self.read_bytes = 2 * vertices.nbytes if divided else 0  # their places, and the ids that these are compared with

    def rows(self, role: str) -> np.ndarray | None:
        """Return a copy of the rows of an array; None if the graph has no such array."""
        entry = self.manifest.arrays.get(role)
        return None if entry is None else self._column(role, np.dtype(entry.dtype), entry.shape[1:])

    def _column(self, role: str, dtype: np.dtype, tail: tuple[int, ...]) -> np.ndarray:
        made = np.empty((len(self.vertices), *tail), dtype)
        for piece in self.pieces:
            made[piece.at] = open_array(piece.folder, piece.arrays[role])[piece.rows]
        self.read_bytes += made.nbytes
        return frozen(made)

    def matrix(self, prefix: str, values: str, columns: int, what: str) -> CSR:
        """Return the rows of a sparse matrix, validated."""
        spans = [self._spans(piece, prefix, what) for piece in self.pieces]
        indptr = row_pointers(self._counts(spans))
        stored = self._entries(values, spans, indptr) if values in self.manifest.arrays else None
        indices = self._entries(f"{prefix}indices", spans, indptr)
        return CSR(indptr, indices, stored, (len(self.vertices), columns)).validate(what)

    def first_entries(self) -> np.ndarray:
        """Return the position in the whole adjacency of the first entry of each row: int64, shape (m,)."""
        if self.divided:
            return self._column("first_entry", np.dtype(np.int64), ())
        return self._spans(self.pieces[0], "", "adjacency")[0]

    def edge_features(self) -> np.ndarray | None:
        """Return the features of the edges of the rows: shape (entries, d); None if the graph has none."""
        if "edge_features" not in self.manifest.arrays:
            return None
        spans = [self._spans(piece, "", "adjacency") for piece in self.pieces]
        return frozen(self._entries("edge_features", spans, row_pointers(self._counts(spans))))

    def _counts(self, spans: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        counts = np.empty(len(self.vertices), np.int64)
        for piece, (_, row_counts) in zip(self.pieces, spans, strict=True):
            counts[piece.at] = row_counts
        return counts

    def _spans(self, piece: Piece, prefix: str, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the first entry of each row of a piece and their number, checked."""
        pointers, nnz = open_array(piece.folder, piece.arrays[f"{prefix}indptr"]), piece.arrays[f"{prefix}indices"].shape[0]
        starts, ends = np.array(pointers[:-1][piece.rows], np.int64), np.array(pointers[1:][piece.rows], np.int64)
        self.read_bytes += starts.nbytes
        low, high = int(starts.min(initial=nnz)), int(ends.max(initial=0))
        order: Any = slice(None) if isinstance(piece.rows, slice) else np.argsort(piece.rows)  # rows of a part may be in any order
        ascending = (starts <= ends).all() and (ends[order][:-1] <= starts[order][1:]).all()
        if len(starts) and not (low >= 0 and high <= nnz and ascending):
            raise DataError(f"{what}: row pointers run from {low} to {high} and must ascend; there are {nnz} entries")
        return starts, ends - starts

    def _entries(self, role: str, spans: list[tuple[np.ndarray, np.ndarray]], indptr: np.ndarray) -> np.ndarray:
        """Return what an array holds for each entry of the rows, in the order of the rows."""
        entry = self.manifest.arrays[role]
        made = np.empty((int(indptr[-1]), *entry.shape[1:]), entry.dtype)
        for piece, (starts, counts) in zip(self.pieces, spans, strict=True):
            low, last = int(starts.min(initial=0)) if len(starts) else 0, int((starts + counts).max(initial=0))
            source = slice(low, last) if last - low == counts.sum() else runs(starts, counts)
            whole = len(self.pieces) == 1 or len(counts) == len(self.vertices)
            made[slice(None) if whole else runs(indptr[:-1][piece.at], counts)] = open_array(piece.folder, piece.arrays[role])[source]
        self.read_bytes += made.nbytes
        return made


def open_rows(folder: Path, vertices: np.ndarray | None = None) -> StoredRows:
    """Open the rows of some vertices, ascending, or of all; raises `DataError` if a table of ids is damaged, or parts are of several
    graphs.
    """
    if is_parts(folder):
        return _divided(folder, vertices)
    manifest = load_manifest(folder)
    vertices = np.arange(manifest.vertices, dtype=np.int32) if vertices is None else vertices
    return StoredRows(folder, manifest, vertices, [Piece(folder, manifest.arrays, _as_slice(vertices), slice(None))])


def _divided(folder: Path, vertices: np.ndarray | None) -> StoredRows:
    """Open rows in the parts that hold them; the places of the vertices are read from a map of the table."""
    parts = load_parts(folder)
    vertices = np.arange(parts.graph.vertices, dtype=np.int32) if vertices is None else vertices
    places = np.asarray(open_array(folder, parts.arrays["new_id"])[_as_slice(vertices)])
    number = np.searchsorted(parts.bounds[1:], places, side="right")
    pieces = []
    for part in np.flatnonzero(np.bincount(number)):
        if part >= len(parts.parts):
            raise DataError(f"{folder.name}/new_id.npy: holds place {places.max()}; places end at {parts.graph.vertices - 1}")
        at = np.flatnonzero(number == part)
        made = Piece(folder / parts.parts[part].folder, load_part(folder, parts, int(part)).arrays, None, _as_slice(at))
        made = made._replace(rows=_as_slice(places[at] - parts.bounds[part]))
        if not np.array_equal(open_array(made.folder, made.arrays["old_id"])[made.rows], vertices[at]):
            raise DataError(f"{made.folder.name}/old_id.npy: does not fit {folder.name}/new_id.npy; write the parts again")
        pieces.append(made)
    return StoredRows(folder, parts.whole, vertices, pieces, divided=True)


def _as_slice(rows: np.ndarray) -> Any:
    """Return a slice that stands for ascending integers without a gap; others as they are."""
    if len(rows) and not (int(rows[-1]) - int(rows[0]) + 1 == len(rows) and (np.diff(rows) == 1).all()):
        return rows
    first = int(rows[0]) if len(rows) else 0
    return slice(first, first + len(rows))


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
