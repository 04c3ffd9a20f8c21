"""Times of rows as int64: dates counted in a unit since 1970, whole numbers as they are."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ...errors import UsageError, is_whole
from ...graph.times import UNITS, as_times
from ..columns import Array
from .table_columns import Column


def check_unit(unit: str) -> None:
    """Raise `UsageError` unless this is a unit of times."""
    if unit not in UNITS:
        raise UsageError(f"time_unit: got {unit!r}; use {', '.join(UNITS)}")


def times_of(column: Column, unit: str) -> Array:
    """Return the times of a column: int64, shape (n,); see `bulksample.graph.times.as_times`.

    Raises
    ------
    DataError
        If a row has no time (None, NaN or NaT), or times are floats or text. The message names table, column and row.
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
        found = np.array("NaT", f"datetime64[{unit}]")[()] if no_time else np.datetime64(text)  # numpy 2.5 wants a unit of no time
        counted = found.astype(f"datetime64[{unit}]")
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name}: got {value!r}; use a whole number, a date or text such as 2010-01-01") from error
    if np.isnat(counted) or counted.astype(found.dtype) != found:
        raise UsageError(f"{name}: got {value!r}, which is no whole number of time_unit {unit!r}; use a finer time_unit")
    return int(counted.astype(np.int64))
