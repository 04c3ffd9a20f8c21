"""Read Matrix Market files: the sparse matrix is the adjacency, and row i aggregates from its columns.

scipy's reader is not used: it takes ``1 1.5 2`` for the entry (1, 1), ``2x`` for 2, and leaves out columns beyond the last. It also
allocates as many entries as the header promises.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..graph import Graph
from ..sparse import MAX_VERTICES
from .compressed import DAMAGED, most_inflated, opened, plain_name
from .edgelist import graph_of_edges, pairs_of
from .edges import EdgeTally
from .listed_graph import check_promise, direction
from .npy import regular_size
from .text import tables

_FIELDS = ("pattern", "integer", "real")
_SYMMETRIES = ("general", "symmetric")


def read(
    path: str | os.PathLike[str], *, undirected: bool = False, transpose: bool = False, self_loops: str = "keep", duplicates: str = "sum",
    tally: EdgeTally | None = None, edge_features: str | os.PathLike[str] | None = None,
) -> Graph:  # fmt: skip
    """Read the graph of a square sparse matrix in a `.mtx` file, plain or compressed (gzip, bz2, xz).

    Parameters
    ----------
    path : path
        ``coordinate``, ``pattern``, ``integer`` or ``real``, ``general`` or ``symmetric``. Entry (i, j) means that
        vertex i - 1 aggregates from vertex j - 1. A symmetric file lists one triangle and means both.
    undirected : bool
        Add entry (j, i) for every entry (i, j) of a general matrix.
    transpose : bool
        Entry (i, j) is the edge i -> j instead, so vertex j - 1 aggregates from i - 1.
    self_loops, duplicates, tally, edge_features
        See `bulksample.data.edgelist.read`.

    Raises
    ------
    DataError
        For another kind of matrix, a wrong header, an entry out of range or a negative weight; the message names the line.
    """
    path = Path(path)
    weighted, symmetric, n, entries, lines = _header(path)
    blocks = tables(path, skip=lines, columns=(3 if weighted else 2,))
    places, weights, _ = pairs_of(path, blocks, 1, n, "{} is no row or column")
    if places.shape[1] != entries:
        raise DataError(f"{path.name}: line {lines} promises {entries} entries; the file has {places.shape[1]}")
    if weighted and weights is None:
        weights = np.empty(0)
    rows, columns = places[::-1] - 1 if transpose else places - 1
    graph = graph_of_edges(
        path, (columns, rows), n, weights, None, edge_features, undirected=undirected or symmetric, self_loops=self_loops,
        duplicates=duplicates, tally=tally,
    )  # fmt: skip
    if tally is not None:
        tally.form = f"Matrix Market, {'weighted' if weighted else 'pattern'}: {direction(transpose)}"
    return graph.replace(name=plain_name(path).removesuffix(".mtx")).validate()


def _header(path: Path) -> tuple[bool, bool, int, int, int]:
    """Read the banner and the line of sizes: True if weighted, if symmetric; vertices, entries, and the lines that the header takes."""
    regular_size(path, path.name)
    try:
        with opened(path) as stream:
            banner = stream.readline(2**16).decode("ascii", "replace").lower().split()
            line, number = stream.readline(2**16), 2
            while line and (line.startswith(b"%") or not line.strip()):
                line, number = stream.readline(2**16), number + 1
    except DAMAGED as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from error
    if banner[:2] != ["%%matrixmarket", "matrix"] or len(banner) != 5:
        raise DataError(f"{path.name}: line 1 is no header; use '%%MatrixMarket matrix coordinate ...'")
    for word, known in zip(banner[2:], (("coordinate",), _FIELDS, _SYMMETRIES), strict=True):
        if word not in known:
            raise DataError(f"{path.name}: line 1 says {word!r}; use {', '.join(known)}")
    sizes = line.split()
    if len(sizes) != 3 or not all(size.isdigit() and len(size) < 20 for size in sizes):
        raise DataError(f"{path.name}: line {number} must give rows, columns and entries; it is {line[:80]!r}")
    rows, columns, entries = (int(size) for size in sizes)
    if rows != columns:
        raise DataError(f"{path.name}: line {number}: the matrix of a graph must be square; its shape is ({rows}, {columns})")
    if rows > MAX_VERTICES:
        raise DataError(f"{path.name}: line {number}: {rows} vertices do not fit int32; use at most {MAX_VERTICES}")
    check_promise(rows, os.path.getsize(path), f"{path.name}: line {number}", most_inflated(path))
    return banner[3] != "pattern", banner[4] == "symmetric", rows, entries, number
