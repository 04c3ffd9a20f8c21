"""Primary and foreign keys: find the row that each foreign key names, and refuse keys that are missing, repeated or dangling."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ..columns import Array
from .table_columns import Column

_REPEATS = "which is the primary key of row {} too; use distinct keys"
_EXACT = 2.0**53  # floats count whole numbers up to this


class PrimaryKeys:
    """The keys of the rows of one table: whole numbers, text, or other values that can be compared for equality.

    Raises `DataError`, naming table, column and row, if a key is missing or repeats.
    """

    def __init__(self, column: Column) -> None:
        self.column = column
        if len(gaps := np.flatnonzero(column.missing)):
            column.refuse(gaps[0], "use a primary key in each row")
        self._keys = comparable(column)
        if self._keys.dtype == np.int64:
            self._order = np.argsort(self._keys, kind="stable")
            self._sorted = self._keys[self._order]
            again = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
            if len(again):  # a stable sort keeps equal keys in their order
                at = again[self._order[again + 1].argmin()]
                column.refuse(int(self._order[at + 1]), _REPEATS.format(int(self._order[at])))
        else:
            self._row_of: dict[object, int] = {}
            for row, key in enumerate(self._keys.tolist()):
                if (first := self._row_of.setdefault(key, row)) != row:
                    column.refuse(row, _REPEATS.format(first))

    def rows_of(self, foreign: Column) -> Array:
        """Return the row that each foreign key names, -1 where the key is missing: int64, shape (n,).

        Raises `DataError`, naming table, column and row, if a key is no primary key.
        """
        known = np.flatnonzero(~foreign.missing)
        rows = np.full(len(foreign), -1, np.int64)
        if not len(known):
            return rows
        keys = comparable(foreign)[known]
        if (keys.dtype == np.int64) != (self._keys.dtype == np.int64):
            own = f"{self.column.where} {self.column.kind} values"
            raise DataError(f"{foreign.where}: holds {foreign.kind} values, and {own}; use keys of one type")
        if keys.dtype != np.int64:
            rows[known] = [self._row_of.get(key, -1) for key in keys.tolist()]
        elif len(self._sorted):
            place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
            rows[known] = np.where(self._sorted[place] == keys, self._order[place], -1)
        if len(lost := known[rows[known] < 0]):
            foreign.refuse(lost[0], f"which is no key in {self.column.where}; use a key that is there, or a missing value for no edge")
        return rows


def comparable(column: Column) -> Array:
    """Return keys as int64, or as objects if they are no whole numbers: shape (n,); anything where a key is missing.

    Raises `DataError`, naming the row, for a float that is no whole number or is beyond 2**53, where floats skip whole numbers.
    """
    if column.categories is not None:
        values = np.array([*column.categories, None], object)[column.values]
        whole = column.categories and all(isinstance(one, int) and not isinstance(one, bool) for one in column.categories)
        return comparable(Column(column.where, values, column.missing)) if whole else values
    kind = column.values.dtype.kind
    if kind == "f":
        numbers = np.where(column.missing, 0, column.values)
        bad = np.flatnonzero(~((numbers == np.rint(numbers)) & (np.abs(numbers) <= _EXACT)))
        if len(bad):
            column.refuse(bad[0], "use whole numbers below 2**53, or text, as keys")
        return numbers.astype(np.int64)
    if kind == "u" and len(column) and (large := np.flatnonzero(column.values > np.iinfo(np.int64).max)).size:
        column.refuse(large[0], "use keys below 2**63")
    if kind in "biu":
        return column.values.astype(np.int64)
    if kind == "M":
        return np.array([*column.values.astype("datetime64[us]").tolist(), None], object)[:-1]
    return column.values.astype(object)
