"""Encode the columns of a table as features, codes, labels, splits and times.

A feature column is ``(value - mean) / deviation`` over the rows that may be seen, and 0 where a value is missing; booleans stay 0 and 1.
After all columns comes a column for each one with missing values, which is 1 where the value is missing. Dates are counted in a unit since
1970; whole numbers are times as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from ...errors import DataError, UsageError, is_whole
from ...graph.labels import as_labels
from ...graph.times import as_times
from ...graph.vertex_table import SPLITS
from ..columns import Array
from .table_columns import Column
from .table_schema import TableSchema


@dataclass(eq=False)
class Encoded:
    """The columns of one table."""

    features: list[tuple[str, Array]] = field(default_factory=list)  # name, and float32 of shape (n,)
    extra: dict[str, Array] = field(default_factory=dict)  # codes of categories (int64, -1 where missing), and columns that are kept
    categories: dict[str, list[object]] = field(default_factory=dict)  # by column, in the order of the codes
    left_out: list[str] = field(default_factory=list)  # columns of text and of other objects that the schema does not name

    def matrix(self) -> Array | None:
        """Return the features: float32, shape (n, f); None if there is none."""
        return np.stack([column for _, column in self.features], axis=1) if self.features else None


def encode(columns: Mapping[str, Column], schema: TableSchema, kept: Array, seen: Array) -> Encoded:
    """Encode all columns that are no keys, times, labels or splits, and return their `kept` rows.

    Means and deviations are taken over the rows `seen`; the codes of categories are those of all rows. Raises `DataError`, naming table,
    column and row, if a column does not suit its use, or a number is infinite.
    """
    made, gaps = Encoded(), []
    for name, column in columns.items():
        if name in schema.own_columns:
            continue
        use = schema.columns.get(name) or {"number": "number", "date": "number", "category": "category"}.get(column.kind)
        if use is None:
            made.left_out.append(name)
        elif use == "number":
            made.features.append((name, _scaled(column, seen)[kept]))
            if column.missing[kept].any():
                gaps.append((f"{name} is missing", column.missing[kept].astype(np.float32)))
        elif use == "category":
            codes, made.categories[name] = codes_of(column)
            made.extra[name] = codes[kept]
        elif use == "keep":
            made.extra[name] = _as_is(column)[kept]
    made.features += gaps
    return made


def _scaled(column: Column, seen: Array) -> Array:
    """Return a column of numbers or dates, centred and scaled: float32, shape (n,)."""
    if column.kind not in ("number", "date"):
        raise DataError(f"{column.where}: holds {column.kind} values; use category, keep or drop in the schema")
    known = ~column.missing
    numbers = column.values.astype("datetime64[s]").astype(np.float64) if column.kind == "date" else column.values.astype(np.float64)
    if len(bad := np.flatnonzero(known & ~np.isfinite(numbers))):
        column.refuse(bad[0], "use finite numbers, or a missing value")
    if column.values.dtype.kind == "b":
        return np.where(known, numbers, 0).astype(np.float32)
    of = numbers[known & seen]
    mean, deviation = (float(of.mean()), float(of.std())) if len(of) else (0.0, 1.0)
    if len(of) and of.min() == of.max():  # the mean is rounded, so the deviation may be tiny in the place of 0
        mean, deviation = float(of[0]), 1.0
    return np.where(known, (numbers - mean) / (deviation or 1.0), 0).astype(np.float32)


def codes_of(column: Column) -> tuple[Array, list[object]]:
    """Return the code of each row (int64, -1 where missing), and the categories: as pandas or Arrow list them, else sorted."""
    codes = np.full(len(column), -1, np.int64)
    known = ~column.missing
    if column.categories is not None:
        codes[known] = column.values[known]
        return codes, list(column.categories)
    if column.kind == "other":
        raise DataError(f"{column.where}: holds values that have no order; use text, numbers, keep or drop")
    values = column.values.astype(str) if column.kind == "text" else column.values
    categories, codes[known] = np.unique(values[known], return_inverse=True)
    return codes, categories.tolist()


def _as_is(column: Column) -> Array:
    """Return a column as a store holds it: missing numbers as NaN, missing codes as -1, missing text empty."""
    if column.kind == "category":
        return codes_of(column)[0]
    if column.kind == "text":
        return np.where(column.missing, "", column.values).astype(str)
    if column.kind != "number":
        raise DataError(f"{column.where}: holds {column.kind} values; only numbers and text are kept: use number, category or drop")
    return _with_gaps(column)


def _with_gaps(column: Column) -> Array:
    """Return a column of numbers, with NaN where one is missing."""
    return np.where(column.missing, np.nan, column.values.astype(np.float64)) if column.missing.any() else column.values


def labels_of(column: Column, target: str | None) -> Array:
    """Return the labels of the rows; text and categories as codes. See `bulksample.graph.labels.as_labels`."""
    if column.kind in ("text", "category"):
        return as_labels(codes_of(column)[0], target, column.where)
    if column.kind != "number":
        raise DataError(f"{column.where}: holds {column.kind} values; use numbers, text or categories as labels")
    whole = column.values.dtype.kind in "biu" and target is None  # gaps make floats of whole numbers, which stay classes
    return as_labels(_with_gaps(column), "class" if whole else target, column.where)


def masks_of(column: Column) -> dict[str, Array]:
    """Return the splits of a column of the words train, val and test."""
    words = column.values if column.categories is None else np.array([*column.categories, None], object)[column.values]
    known = np.where(column.missing, "", words).tolist()
    named = np.array([*(word if isinstance(word, str) else repr(word) for word in known), ""])[:-1]
    if len(bad := np.flatnonzero(~column.missing & ~np.isin(named, SPLITS))):
        column.refuse(bad[0], f"use {', '.join(SPLITS)}, or a missing value")
    return {split: named == split for split in SPLITS if (named == split).any()}


def times_of(column: Column, unit: str) -> Array:
    """Return the times of a column: int64, shape (n,); see `bulksample.graph.times.as_times`.

    Raises `DataError`, naming table, column and row, if a row has no time (None, NaN or NaT), or times are floats or text.
    """
    if len(gaps := np.flatnonzero(column.missing)):
        column.refuse(gaps[0], "use a time in each row", "no time")
    if column.kind not in ("date", "number"):
        column.refuse(0, "use dates (datetime64) or whole numbers as times")
    return as_times(column.where, column.values, unit=unit)


def as_time(name: str, value: Any, unit: str) -> int:
    """Return one time: a whole number as it is; a date, a datetime or its text in units since 1970. Raises `UsageError`."""
    if is_whole(value, -inf):
        return int(value)
    try:
        text = value.isoformat() if hasattr(value, "isoformat") else value
        no_time = isinstance(text, str) and text.strip().lower() in ("", "nat")
        date = np.array("NaT", f"datetime64[{unit}]")[()] if no_time else np.datetime64(text)  # numpy 2.5 wants a unit of no time
        counted = date.astype(f"datetime64[{unit}]")
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name}: got {value!r}; use a whole number, a date or text such as 2010-01-01") from error
    if np.isnat(counted) or counted.astype(date.dtype) != date:
        raise UsageError(f"{name}: got {value!r}, which is no whole number of time_unit {unit!r}; use a finer time_unit")
    return int(counted.astype(np.int64))
