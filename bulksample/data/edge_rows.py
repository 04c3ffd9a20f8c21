"""Features of edges by entry of the adjacency: row i belongs to entry i, whatever order the edges were listed in.

Their means over the edges into each vertex are features of the vertices of sets that have only features of edges, such as ogbn-proteins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..graph.vertex_table import check_finite
from ..mapped import forget, pieces
from ..sparse import CSR
from .columns import Array, dense_features
from .npy import open_npy

PIECE_ROWS = 2**18  # edges at a time, which bounds temporary arrays


class EntryRows:
    """The features of the entries of an adjacency, filled from a list of edges one piece at a time.

    `matrix` is the adjacency that `edges.adjacency` made of this list; row v holds u for an edge u -> v. If `undirected`, the entry v -> u
    takes the row of u -> v too. The row of an edge that is listed more than once is the sum of its rows, or their maximum if `duplicates`
    is "max".
    """

    def __init__(self, matrix: CSR, undirected: bool = False, duplicates: str = "sum") -> None:
        self._matrix, self._undirected = matrix, undirected
        self._merge = np.maximum if duplicates == "max" else np.add
        self._made = np.zeros((matrix.nnz, 0), np.float32)
        self._taken = np.zeros(matrix.nnz, bool)

    def add(self, sources: np.ndarray, targets: np.ndarray, rows: Array) -> None:
        """Take the rows of some edges, shape (some, d); edges that are no entries, such as dropped self loops, are left out."""
        if not self._made.shape[1]:
            self._made = np.zeros((self._matrix.nnz, rows.shape[1]), rows.dtype)
        there = sources != targets  # a self loop has one direction
        back = [(targets[there], sources[there], rows[there])] if self._undirected else []
        for u, v, features in ((sources, targets, rows), *back):
            entries = self._matrix.find(v, u)
            listed = np.flatnonzero(entries >= 0)
            entries = entries[listed]
            first = np.zeros(len(entries), bool)
            first[np.unique(entries, return_index=True)[1]] = True
            first &= ~self._taken[entries]
            self._made[entries[first]], self._taken[entries] = features[listed[first]], True
            if not first.all():
                self._merge.at(self._made, entries[~first], features[listed[~first]])

    @property
    def rows(self) -> Array:
        """The features: float32 or float16, shape (nnz, d). Entries of no listed edge are zeros."""
        return self._made


def edge_rows(
    matrix: CSR, sources: np.ndarray, targets: np.ndarray, rows: Array, *, undirected: bool = False, duplicates: str = "sum"
) -> Array:
    """Return the features of the entries of an adjacency from those of a list of edges, shape (e, d) or (e,); see `EntryRows`.

    They are float16 if `rows` are that, else float32; shape (nnz, d). Entries of no listed edge are zeros; dropped self loops are left out.
    Raises `DataError` if there is not one row for each edge.
    """
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or len(rows) != len(sources):
        raise DataError(f"edge_attr: got shape {rows.shape}; use one row for each of the {len(sources)} edges")
    rows = dense_features("edge_attr", rows)
    made = EntryRows(matrix, undirected, duplicates)
    made.add(sources[:0], targets[:0], rows[:0])  # sets the width, also where there is no edge
    for start, piece in pieces(rows, PIECE_ROWS):
        made.add(sources[start : start + len(piece)], targets[start : start + len(piece)], piece)
    return made.rows


def open_edge_rows(path: str | os.PathLike[str], edges: int) -> Array:
    """Map the features of edges in a `.npy` file, whose row i belongs to the i-th edge. Nothing is unpickled.

    Raises `DataError`, naming the file, if it is damaged or has not one finite row of numbers for each edge.
    """
    name = Path(path).name
    rows = open_npy(Path(path), name)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "fiu":
        raise DataError(f"{name}: got {rows.dtype} of shape {rows.shape}; use numbers of shape ({edges}, d)")
    if len(rows) != edges:
        raise DataError(f"{name}: has {len(rows)} rows; the file lists {edges} edges: use one row for each")
    for start, piece in pieces(rows, PIECE_ROWS):
        check_finite(name, start, piece)
    return rows


def listed_rows(
    features: Iterable[Array], sources: np.ndarray, targets: np.ndarray, name: str
) -> Iterator[tuple[np.ndarray, np.ndarray, Array]]:
    """Yield the sources, targets and features of consecutive edges, whose features come in pieces in the order of `sources` and `targets`.

    Pages of ends that are mapped from a file are released after use. Raises `DataError`, which begins with `name`, if there is not one
    finite row of equal width for each edge.
    """
    first, width = 0, None
    for piece in features:
        check_finite(name, first, piece)
        if first + len(piece) > len(sources):
            raise DataError(f"{name}: has more rows than the {len(sources)} edges")
        width = piece.shape[1] if width is None else width
        if piece.shape[1] != width:
            raise DataError(f"{name}: row {first} has {piece.shape[1]} numbers; the rows before have {width}")
        u, v = (ends[first : first + len(piece)] for ends in (sources, targets))
        yield u, v, dense_features(name, piece)
        forget(u)
        forget(v)
        first += len(piece)
    if first != len(sources):
        raise DataError(f"{name}: has {first} rows; there are {len(sources)} edges")


class EdgeMeans:
    """The mean of the features of the edges into each vertex, zeros where there is none: the features of OGB's own baseline for
    ogbn-proteins.

    `add` takes a list of edges one piece at a time, so the memory is that of the result. If `undirected`, each edge also leads back, with
    the same features. See Hu et al., "Open Graph Benchmark: datasets for machine learning on graphs", 2020, section on ogbn-proteins.
    """

    def __init__(self, n: int, undirected: bool) -> None:
        self._undirected = undirected
        self._sums, self._counts = np.zeros((n, 0)), np.zeros(n, np.int64)

    def add(self, sources: np.ndarray, targets: np.ndarray, rows: np.ndarray) -> None:
        """Add the features of some edges, shape (some, f); an edge that is listed twice counts twice."""
        n = len(self._counts)
        self._sums = self._sums if self._sums.shape[1] else np.zeros((n, rows.shape[1]))
        for into in (targets, sources) if self._undirected else (targets,):
            self._counts += np.bincount(into, minlength=n)
            for column in range(rows.shape[1]):
                self._sums[:, column] += np.bincount(into, rows[:, column], minlength=n)

    @property
    def means(self) -> np.ndarray:
        """The means: float32, shape (n, f)."""
        return np.asarray(self._sums / np.maximum(self._counts, 1)[:, None], np.float32)
