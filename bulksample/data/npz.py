"""Read the `.npz` format of small published graphs: one file with a CSR, features, labels and splits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..graph import Graph
from ..labels import as_labels, outputs_of
from ..sparse import CSR, MAX_VERTICES, fixed_point
from ..vertex_table import SPLITS
from .columns import Array, dense_features, typed
from .npy import Archive

_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
_KNOWN = {"indptr", "indices", "weights", "edge_attr", "x", *_SPARSE, "y", "num_classes", *(f"{split}_mask" for split in SPLITS)}


def read(path: str | os.PathLike[str], target: str | None = None) -> Graph:
    """Read the graph of an `.npz` file.

    Parameters
    ----------
    path : path
        ``indptr`` (n + 1) and ``indices`` (m) are the adjacency, rows ascending. Optional are ``weights`` (m); ``edge_attr`` (m, d);
        ``x`` (n, f), or ``x_indptr, x_indices, x_data, x_shape``; ``y`` (n) with -1 for no label, or (n, t); ``num_classes``;
        ``train_mask, val_mask, test_mask`` (n). Any other array of n rows becomes a column of ``extra``.
    target : {"class", "multilabel", "regression"}, optional
        See `bulksample.labels.as_labels`.

    Returns
    -------
    Graph
        Integers may have any width if their values fit. float16 and float32 features keep their dtype,
        others become float32. Splits without a vertex are left out.

    Raises
    ------
    DataError
        If an array is missing or wrong; the message names it, and the row if there is one. Pickled objects are never read.
    """
    path = Path(path)
    with Archive(path) as archive:
        arrays = {name: archive.read(name) for name in archive.names}
    try:
        return _graph(arrays, path.stem, target)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error


def _graph(arrays: dict[str, Array], name: str, target: str | None) -> Graph:
    _refuse_scipy(arrays)
    indptr = _take(arrays, "indptr", "iu", 1, np.int64)
    indices = _take(arrays, "indices", "iu", 1, np.int32)
    if indptr is None or indices is None:
        raise DataError(f"has no {'indptr' if indptr is None else 'indices'}; use indptr and indices for the adjacency")
    n = len(indptr) - 1
    adjacency = CSR(indptr, indices, None, (n, n)).validate("adjacency")
    unit = 1.0
    if (weights := _take(arrays, "weights", "iuf", 1, np.float64)) is not None:
        longest = max(adjacency.degrees.max(initial=0), np.bincount(indices, minlength=1).max())
        integers, unit = fixed_point(weights, int(longest))
        adjacency = adjacency.with_values(integers)
    labels = as_labels(arrays["y"], target) if "y" in arrays else None
    masks = {split: _take(arrays, f"{split}_mask", "b", 1, np.bool_) for split in SPLITS}
    graph = Graph(
        adjacency,
        weight_unit=unit,
        features=_features(arrays),
        labels=labels,
        num_classes=_num_classes(arrays, labels),
        masks={split: mask for split, mask in masks.items() if mask is not None and (mask.any() or mask.shape != (n,))},
        extra={key: column for key, column in arrays.items() if key not in _KNOWN},
        name=name,
        edge_features=dense_features("edge_attr", arrays["edge_attr"]) if "edge_attr" in arrays else None,
    )
    for key, column in graph.extra.items():
        if column.ndim == 0:
            raise DataError(f"{key}: must have {n} rows; it is a single number")
    return graph.validate()


def _refuse_scipy(arrays: dict[str, Array]) -> None:
    """Raise `DataError` for the file of a sparse matrix."""
    if {"format", "shape", "data"} <= arrays.keys() and arrays["format"].ndim == 0:
        raise DataError(
            "format: this is a sparse matrix of scipy.sparse.save_npz, without features and labels; write it with scipy.io.mmwrite, and "
            "use `data import mtx`"
        )


def _take(arrays: dict[str, Array], name: str, kinds: str, ndim: int, dtype: type[np.generic]) -> Array | None:
    """Convert the named array to `dtype` without changing a value; None if the file has no such array."""
    return None if name not in arrays else typed(name, arrays[name], kinds, ndim, dtype)


def _features(arrays: dict[str, Array]) -> Array | CSR | None:
    found = [name for name in _SPARSE if name in arrays]
    dense = arrays.get("x")
    if dense is not None and found:
        raise DataError(f"x: there are dense features, and {found[0]} of sparse features; use one of them")
    if dense is not None:
        return dense_features("x", dense)
    if not found:
        return None
    if len(found) < len(_SPARSE):
        missing = next(name for name in _SPARSE if name not in arrays)
        raise DataError(f"{missing}: is missing; use all of {', '.join(_SPARSE)} for sparse features")
    shape = _take(arrays, "x_shape", "iu", 1, np.int64)
    indptr, indices = _take(arrays, "x_indptr", "iu", 1, np.int64), _take(arrays, "x_indices", "iu", 1, np.int32)
    values = _take(arrays, "x_data", "fiu", 1, np.float32)
    if shape is None or indptr is None or indices is None or shape.shape != (2,) or not ((shape >= 0) & (shape <= MAX_VERTICES)).all():
        raise DataError(f"x_shape: is {arrays['x_shape'].tolist()}; use (n, f)")
    try:
        return CSR(indptr, indices, values, (int(shape[0]), int(shape[1])))
    except DataError as error:
        raise DataError(f"x: {error}") from error


def _num_classes(arrays: dict[str, Array], labels: Array | None) -> int:
    given = _take(arrays, "num_classes", "iu", 0, np.int64)
    if given is not None and int(given) < 0:
        raise DataError(f"num_classes: is {int(given)}; use 0 or more")
    if labels is None:
        return 0 if given is None else int(given)
    return outputs_of(labels, None if given is None else int(given))
