"""Columns of vertices, features, labels, splits and others, with what a graph and a vertex type of a heterogeneous graph ask of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import DataError, UsageError
from ..mapped import is_mapped, pieces
from ..sparse import CSR
from .labels import as_labels, check_labels, has_label, outputs_of, target_of

SPLITS = ("train", "val", "test")
_PASSED = "_passed"  # attribute of a checked CSR: True if columns were allowed to repeat


class VertexTable(ABC):
    """The columns of n vertices: a base class of dataclasses that have these attributes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    kind: ClassVar[str]  # the noun of messages
    name: str
    features: np.ndarray | CSR | None  # float32 or float16 of shape (n, f), or a float32 CSR of that shape
    labels: np.ndarray | None  # see `bulksample.graph.labels`
    num_classes: int
    masks: dict[str, np.ndarray]  # bool, shape (n,)
    extra: dict[str, np.ndarray]  # shape (n, ...)

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of vertices."""

    @property
    def num_features(self) -> int:
        return 0 if self.features is None else int(self.features.shape[1])

    def seeds(self, split: str) -> np.ndarray:
        """Return the vertices of a split, ascending: int32. ``all`` is every vertex; `UsageError` is raised if there is no such split."""
        if split == "all":
            return np.arange(self.n, dtype=np.int32)
        if split not in self.masks:
            raise UsageError(f"{self.kind} {self.name!r} has no {split!r} split; it has {', '.join([*self.masks, 'all'])}")
        return np.flatnonzero(self.masks[split]).astype(np.int32)

    def default_split(self, training: bool = False) -> str:
        """Return the split of the seeds if the user names none; see the function `default_split`."""
        return default_split(f"{self.kind} {self.name!r}", {split: bool(mask.any()) for split, mask in self.masks.items()}, training)

    def default_seeds(self, training: bool = False) -> np.ndarray:
        """Return the vertices of `default_split`, ascending: int32."""
        return self.seeds(self.default_split(training))

    @property
    def target(self) -> str | None:
        """The target of training that the labels are: ``class``, ``multilabel`` or ``regression``; None without labels."""
        return None if self.labels is None else target_of(self.labels.dtype, self.labels.ndim)

    def with_label(self, name: str | None = None, target: str | None = None) -> Self:
        """Return the graph with another of its columns as the label, or its label as another target; splits keep only labelled vertices.

        `name` is a column of `extra`, by default the label itself. The target is by default what the column is by its dtype; see
        `bulksample.graph.labels.target_of`. Raises `UsageError` if there is no such column of numbers, and `DataError` if a value does not
        suit the target.
        """
        if name is None and (self.labels is None or target in (None, self.target)):
            return self
        column = self.labels if name is None else self.extra.get(name)
        if column is None or not fits_label(column.dtype, column.ndim):
            fit = [k for k, v in self.extra.items() if fits_label(v.dtype, v.ndim)]
            raise UsageError(f"{self.kind} {self.name!r} has no label {name!r}; use {', '.join(fit) or 'a graph with one'}")
        labels = as_labels(np.asarray(column), target or target_of(column.dtype, column.ndim), name or "labels", name is None)
        masks = {split: mask & has_label(labels) for split, mask in self.masks.items()}
        return replace(self, labels=labels, num_classes=outputs_of(labels, name=name or "labels"), masks=masks)

    def check_columns(self, mapped: bool = True) -> None:
        """Raise `DataError`, naming the column and the row, unless every column keeps what its class promises.

        Without `mapped`, no values of dense features in a mapped file are read: those of a store were checked when it was written.
        """
        self._check_arrays()
        x, y = self.features, self.labels
        self._check_length("features", x)
        if isinstance(x, CSR):
            if x.values is None or x.values.dtype != np.float32:
                raise DataError("sparse features must hold float32 values")
            x.validate("features")
        elif x is not None:
            _check_dense(x, "features", values=mapped or not is_mapped(x))
        if y is not None:
            check_labels(y, self.n, self.num_classes)
        taken = np.zeros(self.n, bool)
        unlabelled = taken if y is None or y.ndim > 1 else y < 0
        for name, mask in self.masks.items():
            if name not in SPLITS:
                raise DataError(f"mask {name!r} is not a split; use {', '.join(SPLITS)}")
            if mask.shape != (self.n,) or mask.dtype != np.bool_:
                raise DataError(f"{name} mask must be bool of shape ({self.n},); got {mask.dtype} of shape {mask.shape}")
            if len(wrong := np.flatnonzero(mask & (taken | unlabelled))):
                raise DataError(f"{name} mask: row {wrong[0]} is in another split too, or has no label")
            taken = taken | mask
        for name, column in self.extra.items():
            self._check_length(name, column)

    def _check_arrays(self) -> dict[str, Any]:
        """Return the columns by name; raises `DataError` for a list or the like."""
        masks = {f"{split} mask": mask for split, mask in self.masks.items()}
        columns: dict[str, Any] = {"features": self.features, "labels": self.labels, **masks, **self.extra}
        for name, column in columns.items():
            if column is not None and not hasattr(column, "shape"):
                raise DataError(f"{name}: got a {type(column).__name__}; use an array of numpy")
        return columns

    def check_rows(self) -> None:
        """Raise `DataError` unless every column has a row for each vertex, and features their dtype; reads no values, so costs nothing."""
        for name, column in self._check_arrays().items():
            self._check_length(name, column)
        if isinstance(self.features, np.ndarray):
            _check_dense(self.features, "features", values=False)

    def _check_length(self, name: str, column: np.ndarray | CSR | None) -> None:
        if column is not None and column.shape[:1] != (self.n,):
            raise DataError(f"{name} must have {self.n} rows; got shape {column.shape}")


def check_adjacency(matrix: CSR, unit: float = 1.0, repeats: bool = False) -> None:
    """Raise `DataError` unless an adjacency is canonical, apart from `repeats`, and holds ones or fixed point that samplers can sum."""
    matrix.validate("adjacency", repeats)
    if matrix.values is not None:
        _check_weights(matrix, matrix.values, unit)
    matrix.__dict__[_PASSED] = repeats


def check_adjacency_once(matrix: CSR, unit: float = 1.0, repeats: bool = False) -> None:
    """Call `check_adjacency` unless this matrix has passed it; kernels of the back ends read out of bounds in a malformed one."""
    passed: bool | None = matrix.__dict__.get(_PASSED)
    if passed is None or (passed and not repeats):
        check_adjacency(matrix, unit, repeats)


def _check_weights(matrix: CSR, weights: np.ndarray, unit: float) -> None:
    if weights.dtype != np.int64:
        raise DataError(f"weights must be int64 fixed point; got {weights.dtype}")
    if not (np.isfinite(unit) and unit > 0):
        raise DataError(f"weight_unit must be finite and positive; got {unit}")
    if len(negative := np.flatnonzero(weights < 0)):
        raise DataError(f"weights: row {matrix.row_at(negative[0])} holds {weights[negative[0]]}; weights must not be negative")
    if weights.sum(dtype=np.float64) > 2.0**62:  # samplers sum rows and columns in int64
        for name, place in (("row", matrix.row_of_entry()), ("column", matrix.indices)):
            sums = np.bincount(place, weights, minlength=1)
            if len(high := np.flatnonzero(sums > 2.0**62)):
                raise DataError(f"weights: those of {name} {high[0]} add up to {sums[high[0]]:.4g}; use sums of at most 2**62")


def check_edge_features(matrix: CSR, edges: np.ndarray) -> None:
    """Raise `DataError` unless there is one finite row for each entry of an adjacency."""
    if edges.ndim != 2 or len(edges) != matrix.nnz:
        raise DataError(f"edge features must have {matrix.nnz} rows, one for each entry; their shape is {edges.shape}")
    _check_dense(edges, "edge features")


def fits_label(dtype: np.dtype[Any], ndim: int) -> bool:
    """Return True if a column can be a label: one number of each vertex, or several."""
    return dtype.kind in "biuf" and ndim in (1, 2)


def _check_dense(x: np.ndarray, what: str, values: bool = True) -> None:
    """Raise `DataError` unless features are a matrix of float32 or float16; with `values`, a finite one."""
    if x.ndim != 2 or x.dtype not in (np.float32, np.float16):
        raise DataError(f"{what} must be float32 or float16 of shape (n, f); got {x.dtype} of shape {x.shape}")
    if not values:
        return
    for start, part in pieces(x, max(1, 2**24 // max(1, x.shape[1]))):  # features may be a memmap larger than memory
        check_finite(what, start, part)


def check_finite(name: str, first: int, rows: np.ndarray) -> None:
    """Raise `DataError` if a row, or a number, is not finite; `first` is the number of the first row."""
    if len(bad := np.flatnonzero(~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))):
        raise DataError(f"{name}: row {first + bad[0]} is not finite")


def default_split(name: str, masks: Mapping[str, bool], training: bool = False, one: str = "vertex", several: str = "vertices") -> str:
    """Return the split whose vertices are the seeds if the user names none: ``train``, or ``all`` of a graph without masks.

    `name` is what the masks belong to, for messages: ``graph 'web'``. The mask of ``train`` is True if it holds a vertex, or `one` of
    `several` other rows. Seeds that are trained on need a mask, so `training` refuses a graph without. Raises `UsageError` if no vertex is
    in the training split though the graph has masks: all vertices would include those of the test split.
    """
    if masks.get("train"):
        return "train"
    if not masks and not training:
        return "all"
    others = [split for split in masks if split != "train"]
    present = f"only the masks {', '.join(others)}" if others else "no masks"
    choice = f"all, which includes their {several}, or {' or '.join(others)}" if others else "all"
    raise UsageError(f"no {one} is in the training split: {name} has {present}; name the seeds, use seeds {choice}")
