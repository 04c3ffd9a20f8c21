"""Read a graph from one `.npz` file, as `numpy.savez` writes it. A plain graph is a CSR, with columns of its vertices::

    indptr, indices            integers, (n + 1,) and (m,)      the adjacency, rows ascending
    weights, edge_attr         (m,) and (m, d)                  of the entries of the adjacency
    x                          (n, f)                           features; or x_indptr, x_indices, x_data, x_shape of sparse ones
    y, num_classes             (n,) with -1 for no label, or (n, t); and an integer
    train_mask, …              booleans, (n,)                   also val_mask and test_mask
    NAME                       (n, ...)                         any other column, such as a year

Of the vertices only the adjacency is required. A graph of several types has lists of edges, and names that begin with their type or
relation; only the first three arrays and the `edge_index` of each relation are required::

    node_types                 text, shape (t,)                 names of the vertex types
    num_nodes                  integers, shape (t,)             vertices of each
    edge_types                 text, shape (r, 3)               source type, name and destination type of each relation
    TYPE/x, TYPE/y, …          as above
    TYPE/time                  integers, shape (n,)             when each vertex came to be
    SOURCE/NAME/DESTINATION/edge_index    integers, shape (2, m)    sources, destinations; edges may repeat
    SOURCE/NAME/DESTINATION/edge_weight, /edge_attr, /time    (m,), (m, d) and integers (m,)
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import DataError, instead_of, named
from ..graph import EDGE, NODE, Graph, Key, Relation, VertexType
from ..graph.labels import as_labels, outputs_of
from ..graph.times import as_times
from ..graph.vertex_table import SPLITS
from ..sparse import CSR, MAX_VERTICES, fixed_point
from .columns import Array, dense_features, make_relation, typed
from .npy import Archive

Arrays = dict[str, Array]

_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_OF_VERTICES = {"x", *_SPARSE, "y", "num_classes", *(f"{split}_mask" for split in SPLITS)}
_OF_ENTRIES = ("indptr", "indices", "weights", "edge_attr")
_HEADS = {"node_types": ("U", 1), "num_nodes": ("iu", 1), "edge_types": ("U", 2)}
_OF_EDGES = ("edge_index", "edge_weight", "edge_attr", "time")


def read(path: str | os.PathLike[str], target: str | None = None) -> Graph:
    """Read the graph of an `.npz` file.

    Integers may have any width if their values fit. float16 and float32 features keep their dtype, others become float32. Splits without a
    vertex are left out. Edges of a list keep their place in `edge_index` as `Relation.edge_ids`.

    Parameters
    ----------
    target : {"class", "multilabel", "regression"}, optional
        Of all labels; see `bulksample.graph.labels.as_labels`.

    Raises
    ------
    DataError
        If an array is missing, unknown or wrong; the message names it, and the row if there is one. Pickled objects are never read.
    """
    path = Path(path)
    with Archive(path) as archive:
        arrays = {name: archive.read(name) for name in archive.names}
    several = bool(_HEADS.keys() & arrays.keys()) and "indptr" not in arrays
    return named(path.name, lambda: _graph(arrays, path.stem, target, several))


def _graph(arrays: Arrays, name: str, target: str | None, several: bool) -> Graph:
    if not several:
        relation = _entries(arrays)
        columns = {column: array for column, array in arrays.items() if column not in _OF_ENTRIES}
        return Graph.of([_vertices(NODE, relation.adjacency.shape[0], columns, None, target)], [relation], name).validate()
    types, counts, keys = _heads(arrays)
    parts, made = _by_part(arrays, types, keys), {}
    for kind, count in zip(types, counts, strict=True):
        stamps = parts[kind].pop("time", None)
        times = None if stamps is None else as_times(f"times of type {kind!r}", stamps, count)
        made[kind] = named(f"type {kind!r}", partial(_vertices, kind, count, parts[kind], times, target))
    return Graph.of(made.values(), [_relation(made, key, parts["/".join(key)]) for key in keys], name).validate()


def _vertices(name: str, n: int, arrays: Arrays, times: Array | None, target: str | None) -> VertexType:
    labels = as_labels(arrays["y"], target) if "y" in arrays else None
    masks = {split: _take(arrays, f"{split}_mask", "b", 1, np.bool_) for split in SPLITS}
    kept = {split: mask for split, mask in masks.items() if mask is not None and (mask.any() or mask.shape != (n,))}
    extra = {key: column for key, column in arrays.items() if key not in _OF_VERTICES}
    for key, column in extra.items():
        if column.ndim == 0:
            raise DataError(f"{key}: must have {n} rows; it is a single number")
    stated = _take(arrays, "num_classes", "iu", 0, np.int64)
    if stated is not None and stated < 0:
        raise DataError(f"num_classes: is {int(stated)}; use 0 or more")
    classes = None if stated is None else int(stated)
    outputs = classes or 0 if labels is None else outputs_of(labels, classes)
    return VertexType(name, n, _features(arrays), labels, outputs, kept, times, extra)


def _entries(arrays: Arrays) -> Relation:
    """Return the only relation of a plain graph."""
    if {"format", "shape", "data"} <= arrays.keys() and arrays["format"].ndim == 0:
        raise DataError(
            "format: this is a sparse matrix of scipy.sparse.save_npz, without features and labels; write it with scipy.io.mmwrite, and "
            "use `data import mtx`"
        )
    indptr = _take(arrays, "indptr", "iu", 1, np.int64)
    indices = _take(arrays, "indices", "iu", 1, np.int32)
    if indptr is None or indices is None:
        raise DataError(f"has no {'indptr' if indptr is None else 'indices'}; use indptr and indices for the adjacency")
    n, unit = len(indptr) - 1, 1.0
    adjacency = CSR(indptr, indices, None, (n, n)).validate("adjacency")
    if (weights := _take(arrays, "weights", "iuf", 1, np.float64)) is not None:
        longest = max(adjacency.degrees.max(initial=0), np.bincount(indices, minlength=1).max())
        integers, unit = fixed_point(weights, int(longest))
        adjacency = adjacency.with_values(integers)
    features = dense_features("edge_attr", arrays["edge_attr"]) if "edge_attr" in arrays else None
    return Relation(NODE, EDGE, NODE, adjacency, unit, features=features, parallel=False)


def _heads(arrays: Arrays) -> tuple[list[str], list[int], list[Key]]:
    """Return the types, their numbers of vertices, and the keys of the relations."""
    for head, (kinds, ndim) in _HEADS.items():
        if head not in arrays:
            raise DataError(f"has no {head}; use node_types, num_nodes and edge_types")
        array = arrays[head]
        if array.ndim != ndim or (array.dtype.kind not in kinds and array.size):
            use = "text" if kinds == "U" else "integers"
            raise DataError(f"{head}: got {array.dtype} of shape {array.shape}; use {use} of {ndim} dimension(s)")
    types, counts, table = (arrays[head].tolist() for head in _HEADS)
    if len(types) != len(counts) or min(counts, default=0) < 0:
        raise DataError(f"num_nodes: got {counts} for the types {types}; use one number, 0 or more, for each")
    if arrays["edge_types"].shape[1] != 3 and table:
        raise DataError(f"edge_types: got shape {arrays['edge_types'].shape}; use source, name and destination of each relation")
    keys = [(source, name, destination) for source, name, destination in table]
    for word in (*types, *(part for key in keys for part in key)):
        if not word or "/" in word:
            raise DataError(f"the name {word!r} cannot be part of the name of an array; use names without '/'")
    for source, name, destination in keys:
        for end in (source, destination):
            if end not in types:
                raise DataError(f"edge_types: ({source}, {name}, {destination}): there is no type {end!r}; {instead_of(end, types)}")
    return types, counts, keys


def _by_part(arrays: Arrays, types: list[str], keys: list[Key]) -> dict[str, Arrays]:
    """Return the arrays of each type and relation, by their last names."""
    parts: dict[str, Arrays] = {part: {} for part in (*types, *("/".join(key) for key in keys))}
    for name, array in arrays.items():
        part, _, last = name.rpartition("/")
        if name in _HEADS:
            continue
        if part not in parts or ("/" in part and last not in _OF_EDGES):
            use = f"use TYPE/COLUMN, or SOURCE/NAME/DESTINATION/ and {', '.join(_OF_EDGES)}"
            raise DataError(f"{name}: belongs to no type or relation; {use}")
        parts[part][last] = array
    return parts


def _relation(types: dict[str, VertexType], key: Key, arrays: Arrays) -> Relation:
    what = "/".join(key)
    if "edge_index" not in arrays:
        raise DataError(f"{what}/edge_index: is missing; every relation has one")
    ends = arrays["edge_index"]
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise DataError(f"{what}/edge_index: got {ends.dtype} of shape {ends.shape}; use integers of shape (2, m)")
    features, times = arrays.get("edge_attr"), arrays.get("time")
    return make_relation(types[key[0]], key[1], types[key[2]], (ends[0], ends[1]), arrays.get("edge_weight"), times, features)


def _take(arrays: Arrays, name: str, kinds: str, ndim: int, dtype: type[np.generic]) -> Array | None:
    """Convert the named array to `dtype` without changing a value; None if the file has no such array."""
    return None if name not in arrays else typed(name, arrays[name], kinds, ndim, dtype)


def _features(arrays: Arrays) -> Array | CSR | None:
    sparse = [name for name in _SPARSE if name in arrays]
    dense = arrays.get("x")
    if dense is not None and sparse:
        raise DataError(f"x: there are dense features, and {sparse[0]} of sparse features; use one of them")
    if dense is not None:
        return dense_features("x", dense)
    if not sparse:
        return None
    if len(sparse) < len(_SPARSE):
        missing = next(name for name in _SPARSE if name not in arrays)
        raise DataError(f"{missing}: is missing; use all of {', '.join(_SPARSE)} for sparse features")
    shape = _take(arrays, "x_shape", "iu", 1, np.int64)
    indptr, indices = _take(arrays, "x_indptr", "iu", 1, np.int64), _take(arrays, "x_indices", "iu", 1, np.int32)
    values = _take(arrays, "x_data", "fiu", 1, np.float32)
    if shape is None or indptr is None or indices is None or shape.shape != (2,) or not ((shape >= 0) & (shape <= MAX_VERTICES)).all():
        raise DataError(f"x_shape: is {arrays['x_shape'].tolist()}; use (n, f)")
    return named("x", lambda: CSR(indptr, indices, values, (int(shape[0]), int(shape[1]))))
