"""Labelled pairs of vertices, in a table of their own beside a graph: what edge classification and regression train on.

A pair need not be an edge of the graph, and may be there several times. Columns of the table, of which others than these are ignored::

    source, destination     vertices, from 0
    label                   or label_0, label_1, ... of several columns; see `bulksample.graph.labels`
    split                   train, val or test; or instead booleans (or 0 and 1) train, val, test, or the same names with _mask
    time                    whole numbers in the unit of the times of the graph
    features, or feature_*  what is known of the pair itself: a matrix, or columns in the order of the table
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..errors import DataError, UsageError, instead_of, unknown
from ..graph.labels import TARGETS, as_labels, has_label, outputs_of, target_of
from ..graph.vertex_table import SPLITS, check_finite, default_split
from .columns import Array, as_array, typed
from .npy import Archive, sealed
from .tables.table_columns import Column, columns_of, read_csv, read_parquet
from .tables.table_encoding import masks_of

_ENDS = ("source", "destination")
_MASKS = {name: split for split in SPLITS for name in (split, f"{split}_mask")}
_OWN = (*_ENDS, "time", "split", *_MASKS)  # columns that cannot be the label
_ARROW = {".csv": read_csv, ".parquet": read_parquet, ".pq": read_parquet}


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Pairs of vertices, each with a label, a split, a time and features of its own: one row for each example.

    Parameters
    ----------
    name : str
        Begins messages: the name of the file, or ``edge_labels``.
    sources, destinations : int64, shape (e,)
    labels : int64 of shape (e,), int8 or float32 of shape (e, t), optional
        See `bulksample.graph.labels`. None of pairs to predict.
    num_classes : int
        Outputs of a model: classes, or columns of labels.
    masks : dict of bool, shape (e,)
        By split (``train``, ``val``, ``test``), without those that hold no row. They are disjoint, and each row in one has a label.
    times : int64, shape (e,), optional
        In the unit of the times of the graph.
    features : float32, shape (e, d), optional
        Finite.
    feature_names : tuple of str
        The columns that the features were, d of them; none if they were a matrix.
    """

    name: str
    sources: np.ndarray
    destinations: np.ndarray
    labels: np.ndarray | None = None
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    times: np.ndarray | None = None
    features: np.ndarray | None = None
    feature_names: tuple[str, ...] = ()

    @property
    def target(self) -> str | None:
        """The target of training that the labels are: ``class``, ``multilabel`` or ``regression``; None without labels."""
        return None if self.labels is None else target_of(self.labels.dtype, self.labels.ndim)

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {"source": self.sources, "destination": self.destinations, "label": self.labels, **self.masks}
        columns |= {"time": self.times, "features": self.features}
        return {key: column for key, column in columns.items() if column is not None}

    @cached_property
    def identity(self) -> str:
        """SHA-256 of all columns, with their names, dtypes and shapes."""
        return sealed(self._columns())["sha256"].tobytes().hex()

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self._columns().values())

    def __len__(self) -> int:
        return len(self.sources)

    def rows(self, split: str) -> np.ndarray:
        """Return the positions of a split, ascending: int64. ``all`` is every row with a label, or every row of pairs to predict.

        Raises `UsageError` if there is no such split.
        """
        if split == "all":
            return np.arange(len(self)) if self.labels is None else np.flatnonzero(has_label(self.labels))
        if split not in self.masks:
            raise UsageError(f"{self.name}: has no {split!r} split; it has {', '.join([*self.masks, 'all'])}")
        return np.flatnonzero(self.masks[split])

    def default_split(self) -> str:
        """Return ``train``, the split to train on if the user names none; raises `UsageError` if it holds no row."""
        if not self.masks:
            raise UsageError(f"{self.name}: has no splits; use a column 'split' of train, val and test, or seeds all")
        return default_split(self.name, {split: bool(mask.any()) for split, mask in self.masks.items()}, True, "edge", "edges")

    def check_ends(self, source: tuple[str, int], destination: tuple[str, int]) -> None:
        """Raise `DataError`, naming the row, unless all ends are vertices. Both arguments are a vertex type: its name and vertex count."""
        for end, ids, (kind, count) in zip(_ENDS, (self.sources, self.destinations), (source, destination), strict=True):
            if len(bad := np.flatnonzero((ids < 0) | (ids >= count))):
                fits = f"type {kind!r} has {count} vertices: use 0 to {count - 1}"
                raise DataError(f"{self.name}: row {bad[0]} has {end} {ids[bad[0]]}, and {fits}")


def read_edge_table(
    table: Any, name: str = "edge_labels", *, label: str | None = None, target: str | None = None, labelled: bool = True
) -> EdgeTable:
    """Read a table of labelled pairs; see the head of this module for its columns.

    Parameters
    ----------
    table : path of a .npz, .csv or .parquet file, dict of lists, arrays or tensors, pandas.DataFrame or pyarrow.Table
        Nothing is unpickled. CSV and Parquet need pyarrow. Arrays with the dtype of an `EdgeTable` are not copied, apart from labels.
    name : str
        Begins messages; of a file, its own name does.
    label : str, optional
        The column of labels, or ``x`` for columns ``x_0``, ``x_1`` and so on; by default ``label``. It is never one of the features.
    target : {"class", "multilabel", "regression"}, optional
        By default what the labels are by their dtype, shape and values; see `bulksample.graph.labels.as_labels`. A missing label is None,
        NaN, -1 of integers, or an empty field.
    labelled : bool
        False for pairs to predict: labels and splits are not read.

    Raises
    ------
    DataError
        If a file is damaged, a column is missing, there are no rows or no labels, or a value does not suit its column; if a row in a split
        has no label, or is in two splits. Rows count from 0.
    UsageError
        If `table` is none of these, pyarrow is missing, or `label` or `target` is unknown.
    """
    if target is not None and target not in TARGETS:
        raise UsageError(f"target: {unknown('target', target, TARGETS)}")
    if label is not None and (not isinstance(label, str) or label in _OWN):
        raise UsageError(f"label: got {label!r}; use the name of a column of labels, which is none of {', '.join(_OWN)}")
    name, names, take = _opened(table, name)
    labels = _label_names(names, label or "label")
    features = _feature_columns([key for key in names if key not in labels], name)
    splits = [key for key in names if key == "split" or key in _MASKS] if labelled else []
    for key in _ENDS:
        if key not in names:
            raise DataError(f"{name}: {_missing(key, names)}")
    if labelled:
        _check_label_names(labels, names, name, label)
    wanted = {*_ENDS, *features, *splits, "time", *(labels if labelled else ())}
    taken = take(wanted)
    wide = {}
    if isinstance(taken, Mapping):
        matrices = {key for key in taken if [key] == features == ["features"] or ([key] == labels and _ndim(taken[key]) > 1)}
        wide = {key: taken[key] for key in matrices}
        taken = {key: value for key, value in taken.items() if key not in wide}
    elif "features" in features:
        raise DataError(
            f"{name}: column 'features' is one column; use a dict or .npz file with a matrix, or columns feature_0, feature_1, …"
        )
    columns = {key: _plain(column) for key, column in columns_of(name, taken, name).items()}
    sources, destinations = (_whole(columns[key], "whole numbers from 0", 0) for key in _ENDS)
    if labelled and not len(sources):
        raise DataError(f"{name}: has no rows; use one for each pair with a label")
    made = EdgeTable(name, sources, destinations)
    if "time" in columns:
        made = replace(made, times=_whole(columns["time"], "whole numbers in the unit of the times of the graph"))
    if features:
        named = tuple(key for key in features if key in columns)
        made = replace(made, features=_features([columns[key] for key in named], wide.get("features"), made), feature_names=named)
    if not labelled:
        return made
    where = f"{name}: column {labels[0]!r}" if len(labels) == 1 else f"{name}: columns {labels[0]!r} to {labels[-1]!r}"
    values, missing = _matrix(where, wide[labels[0]], made) if labels[0] in wide else _label_columns([columns[key] for key in labels])
    found = _labels(values, missing, target, where)
    masks = _masks(name, [(key, columns[key]) for key in splits])
    for split, mask in masks.items():
        if len(bad := np.flatnonzero(mask & ~has_label(found))):
            raise DataError(f"{name}: row {bad[0]} is in split {split!r} and has no label; use a label, or no split")
    return replace(made, labels=found, num_classes=outputs_of(found, name=where), masks=masks)


def _opened(table: Any, name: str) -> tuple[str, list[str], Callable[[set[str]], Any]]:
    """Return the name of a table, the names of its columns, and a function that returns a table of some of them."""
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        name, ending = path.name or str(path), path.suffix.lower()
        if ending == ".npz":
            with Archive(path) as archive:
                return name, list(archive.names), lambda wanted: _of_archive(path, wanted)
        if ending not in _ARROW:
            raise UsageError(f"{name}: is no table by its ending; use a file that ends in .npz, {', '.join(_ARROW)}")
        table = _ARROW[ending](path)
    if hasattr(table, "column_names") and hasattr(table, "unify_dictionaries"):
        names = list(table.column_names)
        return name, names, lambda wanted: table.select([at for at, key in enumerate(names) if key in wanted])
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        names = list(map(str, table.columns))
        return name, names, lambda wanted: table.iloc[:, [at for at, key in enumerate(names) if key in wanted]]
    if isinstance(table, Mapping):
        return name, list(map(str, table)), lambda wanted: {key: value for key, value in table.items() if key in wanted}
    fits = f"a pandas.DataFrame, a pyarrow.Table, a dict of arrays, or the path of a file that ends in .npz, {', '.join(_ARROW)}"
    raise UsageError(f"{name}: got a {type(table).__name__}; use {fits}")


def _of_archive(path: Path, wanted: set[str]) -> dict[str, Array]:
    with Archive(path) as archive:
        return {key: archive.read(key) for key in archive.names if key in wanted}


def _missing(key: str, names: list[str]) -> str:
    """Return the message for a column that is not there: the nearest, and all that there are."""
    if not names:
        return f"there is no column {key!r}; the table has none"
    near = instead_of(key, names)
    return f"there is no column {key!r}; {f'{near} The' if near.endswith('?') else 'the'} columns are {', '.join(names)}"


def _label_names(names: list[str], base: str) -> list[str]:
    """Return the column of labels, or the columns in the order of their numbers; none if there are none."""
    return [base] if base in names else sorted(_numbered(names, base), key=_number)


def _numbered(names: list[str], base: str) -> list[str]:
    return [key for key in names if re.fullmatch(rf"{re.escape(base)}_\d+", key)]


def _number(key: str) -> int:
    return int(key.rpartition("_")[2])


def _check_label_names(labels: list[str], names: list[str], name: str, label: str | None) -> None:
    """Raise an error if there are no labels, or names leave doubt which columns they are; a `label` that is there settles it."""
    base = label or "label"
    if not labels:
        raise DataError(f"{name}: {_missing(base, names)}") if label is None else UsageError(f"label: {name}: {_missing(base, names)}")
    several = _numbered(names, base)
    if (several and label is None) if base in names else [_number(key) for key in labels] != list(range(len(labels))):
        listed = ", ".join(dict.fromkeys([*labels, *several]))
        raise DataError(f"{name}: has columns {listed}; use a column {base}, or {base}_0, {base}_1 and so on without gaps")


def _feature_columns(names: list[str], name: str) -> list[str]:
    several = [key for key in names if key.startswith("feature_")]
    if several and "features" in names:
        raise DataError(f"{name}: has columns 'features' and {several[0]!r}; use a matrix, or columns feature_*")
    return several or [key for key in names if key == "features"]


def _ndim(value: Any) -> int:
    try:
        return int(value.ndim if hasattr(value, "ndim") else np.ndim(value))
    except ValueError:  # a ragged list, which is refused where it is read
        return 1


def _plain(column: Column) -> Column:
    """Return a column with the categories written out, as if it had none."""
    if column.categories is None:
        return column
    objects = np.array([*column.categories, None], object)[np.where(column.missing, -1, column.values)]
    return replace(columns_of("", {"": objects})[""], where=column.where)


def _whole(column: Column, fits: str, least: float = -inf) -> Array:
    """Return a column as int64, shape (e,). Floats that are whole numbers are taken, since pandas makes them of integers with gaps."""
    if len(gaps := np.flatnonzero(column.missing)):
        column.refuse(gaps[0], f"use {fits} in each row")
    values = column.values
    if not len(values):
        return np.empty(0, np.int64)
    if values.dtype.kind not in "iuf":
        _no_number(column, f"use {fits}")
    if values.dtype.kind == "f":
        exact = 2.0 ** (np.finfo(values.dtype).nmant + 1)  # from here on floats skip whole numbers
        bad = (values != np.rint(values)) | (np.abs(values) >= min(exact, 2.0**63))
    else:
        bad = values > np.iinfo(np.int64).max
    if len(rows := np.flatnonzero(bad | (values < least))):
        column.refuse(rows[0], f"use {fits}, below 2**63 and exact")
    return values.astype(np.int64, copy=False)


def _matrix(where: str, value: Any, table: EdgeTable) -> tuple[Array, Array]:
    """Return a matrix with a row for each pair, and which of its entries are masked."""
    array = as_array(where, value)
    if array.ndim != 2 or len(array) != len(table):
        raise DataError(f"{where}: got {array.dtype} of shape {array.shape}; use a matrix of {len(table)} rows, one for each pair")
    hidden = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else np.zeros(array.shape, bool)
    return np.asarray(array), hidden


def _features(columns: list[Column], matrix: Any, table: EdgeTable) -> Array:
    """Return the features of a matrix or of columns: float32, shape (e, d)."""
    if matrix is not None:
        array, missing = _matrix(f"{table.name}: features", matrix, table)
        made = typed(f"{table.name}: features", array, "bfiu", 2, np.float32)
        if missing.any():
            made = np.where(missing, np.float32(np.nan), made)
        check_finite(f"{table.name}: features", 0, made)
        return made
    made = np.empty((len(table), len(columns)), np.float32)
    for at, column in enumerate(columns):
        if len(column) and column.kind != "number":
            _no_number(column, "use numbers")
        with np.errstate(over="ignore"):  # a number that does not fit becomes infinite, and is refused
            made[:, at] = column.values if len(column) else 0
        if len(bad := np.flatnonzero(column.missing | ~np.isfinite(made[:, at]))):
            column.refuse(bad[0], "use finite numbers")
    return made


def _no_number(column: Column, fits: str) -> NoReturn:
    """Raise `DataError` for the first value of a column that is no number, or a whole one beyond any integer of numpy."""
    if column.kind == "date":
        raise DataError(f"{column.where}: holds dates; {fits}")
    known = np.flatnonzero(~column.missing).tolist()
    is_number = _reads_as_number if column.kind == "text" else _is_number  # one word makes a column of a CSV file text
    column.refuse(next((row for row in known if not is_number(column.values[row])), known[0]), fits)


def _reads_as_number(text: str) -> bool:
    try:
        return isinstance(float(text), float)
    except ValueError:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | float | np.number | np.bool_) or (isinstance(value, int) and abs(value) < 2**63)


def _label_columns(columns: list[Column]) -> tuple[Array, Array]:
    """Return numbers of shape (e,), or of several columns (e, t), and which of them are missing."""
    values = []
    for column in columns:
        if column.missing.all():
            values.append(np.full(len(column), np.nan))
        elif column.kind != "number":
            _no_number(column, "use numbers as labels: number the classes from 0")
        else:
            values.append(column.values)
    missing = [column.missing for column in columns]
    return (values[0], missing[0]) if len(columns) == 1 else (np.stack(values, 1), np.stack(missing, 1))


def _labels(values: Array, missing: Array, target: str | None, where: str) -> Array:
    """Return the labels of numbers of which some are missing; raises `DataError` if all are, or a value does not suit the target."""
    none = DataError(f"{where}: holds no label; use one or more")
    if missing.all():
        raise none
    real = values.dtype.kind == "f"
    labels = as_labels(np.where(missing, np.nan if real else 0, values), target, where)
    if not real and missing.any():
        labels[missing.reshape(labels.shape)] = np.nan if labels.dtype.kind == "f" else -1
    if not has_label(labels).any():
        raise none
    return labels


def _masks(name: str, columns: list[tuple[str, Column]]) -> dict[str, Array]:
    """Return the splits that hold a row, of the column of splits or of columns of booleans; raises `DataError` if there are both."""
    keys = [key for key, _ in columns]
    if "split" in keys and len(keys) > 1:
        raise DataError(f"{name}: has columns {', '.join(map(repr, keys))}; use 'split' alone, or columns of booleans")
    if keys == ["split"]:
        column = columns[0][1]
        if column.kind == "text":  # an array of text has no None: it has an empty text
            column = replace(column, missing=np.where(column.missing, "", column.values) == "")
        return masks_of(column)
    masks: dict[str, Array] = {}
    for key, column in columns:
        if (split := _MASKS[key]) in masks:
            raise DataError(f"{name}: has columns {split!r} and '{split}_mask', which are one split; use one of them")
        if len(gaps := np.flatnonzero(column.missing)):
            column.refuse(gaps[0], "use true or false in each row")
        values = column.values
        if values.dtype.kind not in "bi":
            column.refuse(0, "use booleans, or 0 and 1")
        if len(odd := np.flatnonzero((values != 0) & (values != 1))):
            column.refuse(odd[0], "use booleans, or 0 and 1")
        mask = values.astype(bool, copy=False)
        for other, taken in masks.items():
            if len(both := np.flatnonzero(taken & mask)):
                raise DataError(f"{name}: row {both[0]} is in the splits {other!r} and {split!r}; use one of them")
        masks[split] = mask
    return {split: mask for split, mask in masks.items() if mask.any()}
