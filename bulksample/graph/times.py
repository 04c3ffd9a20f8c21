"""Times of vertices, edges and seeds: int64 of any unit that the user chooses, the same for a whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DataError, UsageError

UNITS = ("D", "h", "m", "s", "ms", "us", "ns")


def as_times(what: str, values: Any, count: int | None = None, unit: str = "ns") -> np.ndarray:
    """Return times as int64 of shape (m,); `what` begins messages, such as ``times of type 'paper'``.

    Values are integers or datetime64: a list, an array or a tensor on the host. Dates are counted since 1970 in `unit`, one of UNITS; one
    that is no whole number of units is refused: cut, it would lie before its time. Raises `DataError`, naming the row, if the values are
    floats, are not `count`, do not fit int64, or a date is missing (NaT).
    """
    if np.ma.isMaskedArray(values) and len(hidden := np.flatnonzero(np.ma.getmaskarray(values))):
        raise DataError(f"{what}: row {hidden[0]} is masked; give every row a time")
    array = np.asarray(values)
    if isinstance(values, list | tuple) and not values:  # numpy takes an empty list for floats
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuM" or (count is not None and len(array) != count):
        fits = "int64 or datetime64 of shape (m,)" if count is None else f"int64 or datetime64 of shape ({count},)"
        raise DataError(f"{what}: got {array.dtype} of shape {array.shape}; use {fits}")
    if array.dtype.kind == "M":
        return _of_dates(what, array, unit)
    if array.dtype == np.uint64 and len(bad := np.flatnonzero(array >= 2**63)):
        raise DataError(f"{what}: row {bad[0]} is {array[bad[0]]}; use at most {2**63 - 1}")
    return array.astype(np.int64, copy=False)


def given_times(what: str, values: Any, count: int | None = None, unit: str = "ns") -> np.ndarray:
    """Return times that are an argument of the user, not a column of a graph: as `as_times`, but raises `UsageError`."""
    try:
        return as_times(what, values, count, unit)
    except DataError as error:
        raise UsageError(str(error)) from None
    except (TypeError, RuntimeError) as error:  # numpy, and torch of a tensor with a gradient
        raise UsageError(f"{what}: cannot be read as an array ({error})") from None


def _of_dates(what: str, dates: np.ndarray, unit: str) -> np.ndarray:
    if len(missing := np.flatnonzero(np.isnat(dates))):
        raise DataError(f"{what}: row {missing[0]} is NaT; give every row a time")
    counted = dates.astype(f"datetime64[{unit}]")
    lost = np.flatnonzero(np.isnat(counted) | (counted.astype(dates.dtype) != dates))  # numpy wraps around silently
    if len(lost):
        fits = f"no whole number of the unit {unit!r} that fits int64: use integers, or another unit ({', '.join(UNITS)})"
        raise DataError(f"{what}: row {lost[0]} is {dates[lost[0]]}, {fits}")
    return counted.astype(np.int64)


def with_times(keys: np.ndarray, times: np.ndarray | int) -> np.ndarray:
    """Pair integers with times, which are broadcast to their shape: an array of (key, time), both int64, that sorts and compares as one."""
    made = np.empty(keys.shape, [("key", np.int64), ("time", np.int64)])
    made["key"], made["time"] = keys, times
    return made
