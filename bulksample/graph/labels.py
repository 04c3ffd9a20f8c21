"""Labels of vertices, by the target of training that they are: one class, several classes at once, or numbers.

    class         int64, shape (n,)         0 .. num_classes - 1;  -1 where there is none
    multilabel    int8, shape (n, t)        1 or 0 for each of t classes;  -1 where it is not known
    regression    float32, shape (n, t)     t numbers;  NaN where one is not known

The dtype tells the target, so a graph and a store say nothing else of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, is_whole

Array = NDArray[Any]

TARGETS = ("class", "multilabel", "regression")
_MANY_CLASSES = 2**16  # a graph of fewer vertices has fewer classes, unless the user says otherwise
_MOST_CLASSES = 2**24  # a model has an output for each


def target_of(dtype: Any, ndim: int) -> str:
    """Return the target of a column by its dtype: integers of shape (n,) are classes, and of (n, t) multilabel; floats are numbers."""
    if np.dtype(dtype).kind == "f":
        return "regression"
    return "class" if ndim == 1 else "multilabel"


def is_known(labels: Array) -> NDArray[np.bool_]:
    """Return True for each label that is there, in the shape of the labels."""
    return np.asarray(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)


def has_label(labels: Array) -> NDArray[np.bool_]:
    """Return True for each vertex that has a label: shape (n,)."""
    known = is_known(labels)
    return known if known.ndim == 1 else np.logical_or.reduce(known, axis=1)


def known_share(labels: Array) -> NDArray[np.float64]:
    """Return the fraction of known labels of each vertex, which is its weight in a loss: float64, shape (n,)."""
    known = is_known(labels)
    return known.astype(np.float64) if known.ndim == 1 else known.mean(axis=1, dtype=np.float64)


def without_label(labels: Array, rows: Array | slice) -> Array:
    """Return a copy in which some rows, given by a mask, as indices or as a slice, have no label."""
    kept = labels.copy()
    kept[rows] = np.nan if labels.dtype.kind == "f" else -1
    return kept


def as_numbers(labels: Array) -> Array:
    """Return what a loss takes: classes as int64; labels of several columns as float32, NaN where one is not known."""
    if labels.ndim == 1 or labels.dtype.kind == "f":
        return labels
    return np.where(labels < 0, np.float32(np.nan), labels.astype(np.float32))


def as_labels(column: Array, target: str | None = None, name: str = "y", missing: bool = False) -> Array:
    """Convert numbers of shape (n,), (n, 1) or (n, t) to the labels of one of TARGETS; NaN, and -1 of integer classes, is missing.

    By default integers of shape (n,) are classes; columns of 0 and 1 alone are multilabel; other floats are regression. A single column of
    classes is squeezed. If the column holds labels already, -1 is a `missing` one in regression too. Raises `DataError` if a value does not
    suit the target, naming `name` and the row; without a target, if whole floats might be classes or numbers, or -1 in a column of integers
    might be a number or a missing one.
    """
    if column.dtype.kind not in "biuf" or column.ndim not in (1, 2):
        raise DataError(f"{name}: got {column.dtype} of shape {column.shape}; use numbers of shape (n,) or (n, t)")
    flat = column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column
    target = target or _guessed(flat, name)
    if target not in TARGETS:
        raise DataError(f"{name}: there is no target {target!r}; use {', '.join(TARGETS)}")
    if target == "class":
        return _as_classes(flat, name)
    table = flat[:, None] if flat.ndim == 1 else flat
    if target == "regression":
        return _as_reals(table, name, missing)
    known = is_known(table)
    _refuse(known & (table != 0) & (table != 1) | (~known & (table != -1) & (table.dtype.kind != "f")), table, name, "use 0, 1, or nothing")
    return np.where(known, table, -1).astype(np.int8)


def _guessed(flat: Array, name: str) -> str:
    """Infer the target of labels: several float columns of 0 and 1 alone are multilabel; one of whole floats raises `DataError`."""
    target = target_of(flat.dtype, flat.ndim)
    if target != "regression":
        return target
    known = flat[~np.isnan(flat)]
    if flat.ndim == 2 and ((known == 0) | (known == 1)).all():
        return "multilabel"
    if flat.ndim == 1 and (known == np.rint(known)).all():
        found = f"got {flat.dtype} of whole numbers, which may be classes or numbers"
        raise DataError(f"{name}: {found}; use integers, or target class or regression")
    return target


def _as_classes(flat: Array, name: str) -> Array:
    if flat.ndim != 1:
        raise DataError(f"{name}: got {flat.dtype} of shape {flat.shape}; a class is one number of a vertex: use target multilabel")
    known = np.where(np.isnan(flat), -1, flat) if flat.dtype.kind == "f" else flat
    if flat.dtype.kind == "f":
        _refuse((known != np.rint(known)) | (np.abs(known) >= 2**31), flat, name, "use a whole number, or nothing")
    elif flat.dtype == np.uint64:
        _refuse(flat >= 2**63, flat, name, "use classes from 0, and -1 for none")
    _refuse(known < -1, flat, name, "use classes from 0, and -1 for none")
    return known.astype(np.int64, copy=False)


def _as_reals(table: Array, name: str, missing: bool) -> Array:
    with np.errstate(over="ignore"):  # a number that does not fit becomes infinite, and is refused
        reals = table.astype(np.float32)
    if table.dtype.kind in "iu":
        if not missing:
            _refuse(table == -1, table, name, "that may be a number or no label: use floats, and NaN where there is no label")
        reals[table == -1] = np.nan
    _refuse(np.isinf(reals), table, name, "use finite numbers, or nothing")
    return reals


def _refuse(bad: Array, column: Array, name: str, fits: str) -> None:
    """Raise `DataError` naming the first row of a column that holds a bad value."""
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise DataError(f"{name}: row {at[0]} holds {column[at]}; {fits}")


def outputs_of(labels: Array, num_classes: int | None = None, name: str = "y") -> int:
    """Return the number of model outputs: of classes `num_classes` if given, else the largest plus one; of other labels their columns.

    Raises `DataError` if `num_classes` is too small or above 2**24; or, unless it is given, if a class is at least max(n, 65,536), which is
    hardly a class.
    """
    if labels.ndim == 2:
        if num_classes not in (None, labels.shape[1]):
            raise DataError(f"num_classes: got {num_classes!r}, and {name} has {labels.shape[1]} columns, not classes; leave it out")
        return int(labels.shape[1])
    most, at = int(labels.max(initial=-1)), int(labels.argmax()) if len(labels) else 0
    if num_classes is None:
        if most >= (limit := max(len(labels), _MANY_CLASSES)):
            raise DataError(f"{name}: entry {at} is {most}; use classes from 0 to {limit - 1}, or give num_classes")
        return most + 1
    if isinstance(num_classes, int | np.integer) and num_classes > _MOST_CLASSES:
        raise DataError(f"num_classes: got {num_classes}, and a model has an output for each; use at most {_MOST_CLASSES}")
    if not is_whole(num_classes, most + 1):
        got = f"got {num_classes!r}, and entry {at} of {name} is class {most}"
        raise DataError(f"num_classes: {got}; use a whole number, {most + 1} or more")
    return int(num_classes)


def unused_classes(labels: Array, num_classes: int) -> int:
    """Count the classes without a vertex; 0 for labels that are not classes."""
    return 0 if labels.ndim == 2 else int(num_classes - np.count_nonzero(np.bincount(labels[labels >= 0], minlength=num_classes)))


def gap_warning(labels: Array | None, num_classes: int, what: str = "vertex") -> str | None:
    """Return a warning that names the number of classes without a vertex, or another example; None if there is no such class."""
    unused = 0 if labels is None else unused_classes(labels, num_classes)
    if not unused:
        return None
    return (
        f"{unused} of the {num_classes} classes have no {what}, because the class numbers have gaps, and a model has an output for each: "
        "number the classes from 0 without gaps"
    )


def check_labels(labels: Array, n: int, num_classes: int) -> None:
    """Raise `DataError` unless labels have a dtype, a shape and values that the head of this module lists."""
    kinds: dict[str, tuple[int, ...]] = {"int64": (n,), "int8": (n, num_classes), "float32": (n, num_classes)}
    if labels.shape != kinds.get(labels.dtype.name):
        fits = f"labels must be int64 of shape ({n},), or int8 or float32 of shape ({n}, {num_classes})"
        raise DataError(f"{fits}; got {labels.dtype} of shape {labels.shape}")
    if labels.dtype == np.int64:
        _refuse((labels < -1) | (labels >= num_classes), labels, "labels", f"classes run from 0 to {num_classes - 1}, and -1 is none")
    elif labels.dtype == np.int8:
        _refuse((labels < -1) | (labels > 1), labels, "labels", "use 0 or 1, or -1 for none")
    else:
        _refuse(np.isinf(labels), labels, "labels", "use finite numbers, or NaN for none")
