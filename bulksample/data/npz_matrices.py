"""Sparse adjacencies in `.npz` files of other programs: of `scipy.sparse.save_npz`, and of the GNN benchmark.

    format, shape, data        a matrix of scipy: csr, csc, coo, bsr or dia, with indices and indptr, row and col, or offsets
    adj_data, adj_indices, adj_indptr, adj_shape       the adjacency of the GNN benchmark, a CSR
    attr_data, attr_indices, attr_indptr, attr_shape   its sparse features; or dense ones, attr_matrix
    labels                                             its classes, shape (n,), or 0 and 1 of shape (n, t)

An entry of a csr, csc or coo matrix that is stored as 0 is an edge of weight 0. A bsr or dia matrix stores zeros where it has no entry, so
its zeros are no edges. Nothing needs scipy, because its constructors trust their arguments.

Shchur, Mumme, Bojchevski and Günnemann, "Pitfalls of graph neural network evaluation", 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import DataError, instead_of
from ..sparse import CSR, MAX_VERTICES
from .columns import Array, typed
from .npz_vertices import Arrays, take

SCIPY = {"format", "shape", "data", "indptr", "indices", "row", "col", "coords", "offsets", "_is_array"}
ADJACENCY = ("adj_data", "adj_indices", "adj_indptr", "adj_shape")
_ATTRIBUTES = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
BENCHMARK = {*ADJACENCY, *_ATTRIBUTES, "attr_matrix", "labels"}
_NAMES_OF_OTHERS = ("class_names", "attr_names", "metadata", "idx_to_class", "idx_to_attr")  # have no row for each vertex


class Entries(NamedTuple):
    """The entries of a square matrix, in any order; places may repeat, and their values add up."""

    rows: Array  # int64, shape (m,)
    columns: Array
    values: Array  # numbers, shape (m,)
    n: int


def of_scipy(arrays: Arrays) -> tuple[Entries, str]:
    """Return the entries of a matrix that `scipy.sparse.save_npz` wrote, and its format; raises `DataError` naming the array."""
    word = arrays["format"].item()
    form = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    readers = {"csr": _csr, "csc": _csc, "coo": _coo, "bsr": _bsr, "dia": _dia}
    if form not in readers:
        raise DataError(f"format: is {form!r}; {instead_of(form, readers)}")
    n = _side("shape", _needed(arrays, "shape"))
    entries = readers[form](arrays, n)
    for name, places in (("row", entries.rows), ("column", entries.columns)):
        if len(bad := np.flatnonzero((places < 0) | (places >= n))):
            raise DataError(f"{name} {places[bad[0]]} of entry {bad[0]} is not in the matrix; use 0 to {n - 1}")
    return entries, form


def of_benchmark(arrays: Arrays) -> tuple[Entries, Arrays]:
    """Return the adjacency of a file of the GNN benchmark, and its columns of vertices by the names of `npz`."""
    n = _side("adj_shape", _needed(arrays, "adj_shape"))
    entries = _csr(arrays, n, "adj_")
    columns = {name: array for name, array in arrays.items() if name not in BENCHMARK and name not in _NAMES_OF_OTHERS}
    if "labels" in arrays:
        columns["y"] = arrays["labels"]
    sparse = [name for name in _ATTRIBUTES if name in arrays]
    if sparse and "attr_matrix" in arrays:
        raise DataError(f"attr_matrix: there are dense features, and {sparse[0]} of sparse features; use one of them")
    if "attr_matrix" in arrays:
        columns["x"] = arrays["attr_matrix"]
    elif sparse:
        columns |= _attributes(arrays)
    return entries, columns


def left_out(arrays: Arrays) -> list[str]:
    """Return the arrays of a file of the GNN benchmark that are no columns of vertices, such as names of classes."""
    return [name for name in _NAMES_OF_OTHERS if name in arrays]


def _attributes(arrays: Arrays) -> Arrays:
    """Return sparse features in canonical form: columns ascend in a row, and values at one place are added."""
    shape = typed("attr_shape", _needed(arrays, "attr_shape"), "iu", 1, np.int64)
    if shape.shape != (2,) or not ((shape >= 0) & (shape <= MAX_VERTICES)).all():
        raise DataError(f"attr_shape: is {shape.tolist()}; use (n, f)")
    rows, columns, values, _ = _csr(arrays, int(shape[0]), "attr_")
    if len(bad := np.flatnonzero((columns < 0) | (columns >= shape[1]))):
        raise DataError(f"attr_indices: entry {bad[0]} is {columns[bad[0]]}; columns run from 0 to {shape[1] - 1}")
    indptr, made = arrays["attr_indptr"], typed("attr_data", values, "biuf", 1, np.float32)
    if not ((columns[1:] > columns[:-1]) | (rows[1:] > rows[:-1])).all():
        matrix = CSR.from_edges(rows, columns, (int(shape[0]), int(shape[1])), made)
        assert matrix.values is not None
        indptr, columns, made = matrix.indptr, matrix.indices, matrix.values
    return {"x_indptr": indptr, "x_indices": columns, "x_data": made, "x_shape": shape}


def _needed(arrays: Arrays, name: str) -> Array:
    if name not in arrays:
        raise DataError(f"has no {name}")
    return arrays[name]


def _side(name: str, shape: Array) -> int:
    """Return the number of rows of a square matrix."""
    sides = typed(name, shape, "iu", 1, np.int64).tolist()
    if len(sides) != 2 or sides[0] != sides[1]:
        raise DataError(f"{name}: is {sides}; the adjacency of a graph is square")
    if not 0 <= sides[0] <= MAX_VERTICES:
        raise DataError(f"{name}: {sides[0]} vertices do not fit int32; use 0 to {MAX_VERTICES}")
    return int(sides[0])


def _integers(arrays: Arrays, name: str) -> Array:
    _needed(arrays, name)
    found = take(arrays, name, "iu", 1, np.int64)
    assert found is not None
    return found


def _data(arrays: Arrays, name: str, ndim: int, count: int) -> Array:
    """Return values, of which there must be `count` along the first dimension."""
    values = _needed(arrays, name)
    if values.dtype.kind not in "biuf" or values.ndim != ndim or len(values) != count:
        raise DataError(f"{name}: got {values.dtype} of shape {values.shape}; use {count} numbers, one for each entry")
    return values


def _rows(indptr: Array, name: str, rows: int, entries: int) -> Array:
    """Return the row of each entry; raises `DataError` unless the row pointers are those of `rows` rows with so many entries."""
    if len(indptr) != rows + 1:
        raise DataError(f"{name}: has {len(indptr)} entries; use {rows + 1}, for {rows} rows")
    counts = np.diff(indptr)
    if len(falling := np.flatnonzero(counts < 0)):
        i = int(falling[0])
        raise DataError(f"{name}: row pointers must not fall: row {i} runs from {indptr[i]} to {indptr[i + 1]}")
    if indptr[0] != 0 or indptr[-1] != entries:
        raise DataError(f"{name}: must run from 0 to the number of entries, {entries}; it runs from {indptr[0]} to {indptr[-1]}")
    return np.repeat(np.arange(rows, dtype=np.int64), counts)


def _csr(arrays: Arrays, n: int, prefix: str = "") -> Entries:
    indices = _integers(arrays, f"{prefix}indices")
    rows = _rows(_integers(arrays, f"{prefix}indptr"), f"{prefix}indptr", n, len(indices))
    return Entries(rows, indices, _data(arrays, f"{prefix}data", 1, len(indices)), n)


def _csc(arrays: Arrays, n: int) -> Entries:
    turned = _csr(arrays, n)
    return Entries(turned.columns, turned.rows, turned.values, n)


def _coo(arrays: Arrays, n: int) -> Entries:
    rows, columns = _integers(arrays, "row"), _integers(arrays, "col")
    if len(rows) != len(columns):
        raise DataError(f"col: has {len(columns)} entries, and row has {len(rows)}; use one of each")
    return Entries(rows, columns, _data(arrays, "data", 1, len(rows)), n)


def _bsr(arrays: Arrays, n: int) -> Entries:
    """Return the entries of a matrix of dense blocks, without its zeros."""
    indices = _integers(arrays, "indices")
    blocks = _data(arrays, "data", 3, len(indices))
    _, height, width = blocks.shape
    if not height or not width or n % height or n % width:
        raise DataError(f"data: holds blocks of shape ({height}, {width}), of which no matrix of shape ({n}, {n}) consists")
    rows = _rows(_integers(arrays, "indptr"), "indptr", n // height, len(indices))
    block, i, j = np.nonzero(blocks)
    if len(bad := np.flatnonzero((indices < 0) | (indices >= n // width))):
        raise DataError(f"indices: entry {bad[0]} is block column {indices[bad[0]]}; use 0 to {n // width - 1}")
    return Entries(rows[block] * height + i, indices[block] * width + j, blocks[block, i, j], n)


def _dia(arrays: Arrays, n: int) -> Entries:
    """Return the entries of a matrix of diagonals, without its zeros: row k of the data holds A[j - offsets[k], j] in column j."""
    offsets = _integers(arrays, "offsets")
    if len(np.unique(offsets)) < len(offsets):
        raise DataError("offsets: names a diagonal twice; use each offset once")
    data = _data(arrays, "data", 2, len(offsets))[:, :n]
    if len(bad := np.flatnonzero((offsets < -n) | (offsets > n))):
        raise DataError(f"offsets: entry {bad[0]} is {offsets[bad[0]]}; the matrix has diagonals {1 - n} to {n - 1}")
    k, j = np.nonzero(data)
    i = j - offsets[k]
    inside = (i >= 0) & (i < n)
    return Entries(i[inside], j[inside].astype(np.int64), data[k[inside], j[inside]], n)
