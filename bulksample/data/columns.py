"""Columns of a graph, its vertex types and its relations, taken from arrays or from files and checked against its vertices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, UsageError, named
from ..graph import Graph, Relation, VertexType, spelled
from ..graph.labels import as_labels, outputs_of
from ..graph.selection import vertex_ids
from ..graph.times import as_times
from ..graph.types import relation_from_edges
from ..graph.vertex_table import SPLITS
from .npy import Archive, open_npy

Array = NDArray[Any]
PathLike = str | os.PathLike[str]


def as_array(name: str, value: Any) -> Array:
    """Return a list, a numpy array or a tensor on any device as a numpy array of numbers or booleans.

    Raises `DataError`, which begins with `name`, if it is none of them, or sparse, or of a type that numpy lacks.
    """
    if hasattr(value, "tocsr") or "sparse" in str(getattr(value, "layout", "")):
        raise DataError(f"{name}: got a sparse matrix of shape {tuple(value.shape)}; use a dense array: .to_dense() or .toarray()")
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        raise DataError(f"{name}: got bfloat16 of shape {tuple(value.shape)}, which numpy lacks; use .float() or .half()")
    try:
        array: np.ndarray = np.asanyarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: cannot be read as a dense array ({error}); use numbers or booleans") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: got {array.dtype} of shape {array.shape}; use numbers or booleans")
    return array


def typed(name: str, array: Array, kinds: str, ndim: int, dtype: type[np.generic]) -> Array:
    """Convert an array to `dtype` without changing a value; `kinds` are the accepted kinds of numpy: ``b``, ``i``, ``u``, ``f``.

    Raises `DataError`, which begins with `name`, if the kind or the dimensions differ, or an integer does not fit `dtype`.
    """
    if array.dtype.kind not in kinds or array.ndim != ndim:
        raise DataError(f"{name}: got {array.dtype} of shape {array.shape}; use {np.dtype(dtype)} with {ndim} dimension(s)")
    if issubclass(dtype, np.signedinteger):
        limits = np.iinfo(dtype)
        if len(bad := np.flatnonzero((array < limits.min) | (array > limits.max))):
            raise DataError(f"{name}: entry {bad[0]} is {array.ravel()[bad[0]]}; use {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):  # a number that does not fit becomes infinite, and `Graph.validate` names its row
        return array.astype(dtype, copy=False)


def dense_features(name: str, array: Array) -> Array:
    """Return features of shape (n, f) as float16 if they are that, else as float32; booleans become 0 and 1."""
    return typed(name, array, "bfiu", 2, np.float16 if array.dtype.type is np.float16 else np.float32)


def with_columns(
    graph: Graph, x: Any = None, y: Any = None, masks: Mapping[str, Any] | None = None, num_classes: int | None = None,
    target: str | None = None,
) -> Graph:  # fmt: skip
    """Return the graph with features, labels and splits; columns that are None stay as they are.

    x are numbers of shape (n, f). y are classes from 0, with -1 for a vertex without a label, of shape (n,) or (n, 1); or labels of another
    target, shape (n, t), see `bulksample.graph.labels.as_labels`; the target is by default what the dtype, the shape and the values of y
    are. Masks are booleans of shape (n,) for ``train``, ``val`` and ``test``; one without a vertex is left out. `num_classes` is one more
    than the largest class unless given. Raises `DataError` if an array has the wrong dtype or length, or the result is not a valid `Graph`.
    """
    fields = column_fields(graph.n, x, y, masks, num_classes, target)
    if x is None:
        fields["features"] = graph.features
    if y is None and graph.labels is not None:
        fields |= {"labels": graph.labels, "num_classes": outputs_of(graph.labels, num_classes)}
    return replace(graph, **{**fields, "masks": {**graph.masks, **fields["masks"]}}).validate()


def column_fields(
    n: int, x: Any = None, y: Any = None, masks: Mapping[str, Any] | None = None, num_classes: int | None = None, target: str | None = None
) -> dict[str, Any]:
    """Return `features`, `labels`, `num_classes` and `masks` of n vertices, by the names of `VertexTable`; see `with_columns`."""
    features = None if x is None else dense_features("x", as_array("x", x))
    labels = None if y is None else as_labels(as_array("y", y), target)
    split = {name: typed(f"{name} mask", as_array(f"{name} mask", mask), "b", 1, np.bool_) for name, mask in (masks or {}).items()}
    kept = {name: mask for name, mask in split.items() if mask.any() or mask.shape != (n,)}
    return {"features": features, "labels": labels, "num_classes": 0 if labels is None else outputs_of(labels, num_classes), "masks": kept}


def make_type(
    name: str, count: int, x: Any = None, y: Any = None, masks: Mapping[str, Any] | None = None, times: Any = None,
    extra: Mapping[str, Array] | None = None, num_classes: int | None = None, target: str | None = None,
) -> VertexType:  # fmt: skip
    """Return a vertex type of lists, arrays or tensors; see `with_columns`.

    Raises `DataError`, naming the type, if a column has the wrong dtype; `Graph.validate` checks lengths and values.
    """
    fields = named(f"type {name!r}", lambda: column_fields(count, x, y, masks, num_classes, target))
    stamps = None if times is None else as_times(f"times of type {name!r}", _on_host(times), count)
    return VertexType(name, count, times=stamps, extra=dict(extra or {}), **fields)


def make_relation(
    source: VertexType, name: str, destination: VertexType, ends: tuple[Any, Any], weights: Any = None, times: Any = None,
    features: Any = None,
) -> Relation:  # fmt: skip
    """Return a relation of lists, arrays or tensors; see `bulksample.relation_from_edges`."""
    what = f"relation {spelled((source.name, name, destination.name))}"
    rows = None if features is None else dense_features(f"{what}: edge features", as_array(f"{what}: edge features", features))
    real = None if weights is None else as_array(f"{what}: weights", weights).reshape(-1)
    stamps = None if times is None else _on_host(times)
    return relation_from_edges(source, name, destination, _on_host(ends[0]), _on_host(ends[1]), weights=real, times=stamps, features=rows)


def _on_host(array: Any) -> Any:
    return array.detach().cpu().numpy() if hasattr(array, "detach") else array


def read_columns(
    graph: Graph, features: PathLike | None = None, labels: PathLike | None = None, split: PathLike | None = None,
    target: str | None = None,
) -> Graph:  # fmt: skip
    """Return the graph with features, labels and splits read from files. Nothing is unpickled. Raises `DataError` naming the file.

    `features` and `labels` are `.npy` files of shape (n, f), and (n,) or (n, t): row v belongs to vertex v. Features stay in their file,
    mapped, if they are float16 or float32. `split` is an `.npz` file of arrays ``train``, ``val`` and ``test``, or the same names with
    ``_mask``: booleans of shape (n,) or vertex ids.
    """
    x, y = (None if path is None else _one_row_each(Path(path), graph) for path in (features, labels))
    masks = None if split is None else _read_split(Path(split), graph.n)
    names = ", ".join(Path(path).name for path in (features, labels, split) if path is not None)
    return named(names, lambda: with_columns(graph, x=x, y=y, masks=masks, target=target))


def _one_row_each(path: Path, graph: Graph) -> Array:
    array = open_npy(path, path.name)
    if array.ndim and len(array) != graph.n:
        hint = "; vertices=N keeps vertices without an edge" if len(array) > graph.n else ""
        raise DataError(f"{path.name}: has {len(array)} rows; the graph has {graph.n} vertices: use one row for each{hint}")
    return array


def _read_split(path: Path, n: int) -> dict[str, Array]:
    """Return the masks of an `.npz` file by split."""
    masks: dict[str, Array] = {}
    with Archive(path) as archive:
        for name in archive.names:
            split = name.removesuffix("_mask")
            if split not in SPLITS or split in masks:
                raise DataError(f"{path.name}: {name}: is not a split, or is there twice; use {', '.join(SPLITS)}")
            array = archive.read(name)
            try:
                ids = vertex_ids(array, n, f"{path.name}: {name}")
            except UsageError as error:
                raise DataError(str(error)) from None
            masks[split] = np.zeros(n, bool)
            masks[split][ids] = True
    return masks
