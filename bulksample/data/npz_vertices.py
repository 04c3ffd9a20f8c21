"""Columns of vertices in an `.npz` file, by their names: features, labels, splits and others; see `npz`."""

from __future__ import annotations

import numpy as np

from ..errors import DataError, named
from ..graph import VertexType
from ..graph.labels import as_labels, outputs_of
from ..graph.vertex_table import SPLITS
from ..sparse import CSR, MAX_VERTICES
from .columns import Array, dense_features, typed

Arrays = dict[str, Array]

_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape")
OF_VERTICES = {"x", *_SPARSE, "y", "num_classes", *(f"{split}_mask" for split in SPLITS)}


def vertices(name: str, n: int, arrays: Arrays, times: Array | None, target: str | None) -> VertexType:
    """Return n vertices with the features, labels, splits and further columns among some arrays."""
    labels = as_labels(arrays["y"], target) if "y" in arrays else None
    masks = {split: take(arrays, f"{split}_mask", "b", 1, np.bool_) for split in SPLITS}
    kept = {split: mask for split, mask in masks.items() if mask is not None and (mask.any() or mask.shape != (n,))}
    extra = {key: column for key, column in arrays.items() if key not in OF_VERTICES}
    for key, column in extra.items():
        if column.ndim == 0:
            raise DataError(f"{key}: must have {n} rows; it is a single number")
    stated = take(arrays, "num_classes", "iu", 0, np.int64)
    if stated is not None and stated < 0:
        raise DataError(f"num_classes: is {int(stated)}; use 0 or more")
    classes = None if stated is None else int(stated)
    outputs = classes or 0 if labels is None else outputs_of(labels, classes)
    return VertexType(name, n, features_of(arrays), labels, outputs, kept, times, extra)


def features_of(arrays: Arrays) -> Array | CSR | None:
    """Return dense or sparse features; None if there are none."""
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
    shape = take(arrays, "x_shape", "iu", 1, np.int64)
    indptr, indices = take(arrays, "x_indptr", "iu", 1, np.int64), take(arrays, "x_indices", "iu", 1, np.int32)
    values = take(arrays, "x_data", "fiu", 1, np.float32)
    if shape is None or indptr is None or indices is None or shape.shape != (2,) or not ((shape >= 0) & (shape <= MAX_VERTICES)).all():
        raise DataError(f"x_shape: is {arrays['x_shape'].tolist()}; use (n, f)")
    return named("x", lambda: CSR(indptr, indices, values, (int(shape[0]), int(shape[1]))))


def take(arrays: Arrays, name: str, kinds: str, ndim: int, dtype: type[np.generic]) -> Array | None:
    """Convert the named array to `dtype` without changing a value; None if the file has no such array."""
    return None if name not in arrays else typed(name, arrays[name], kinds, ndim, dtype)
