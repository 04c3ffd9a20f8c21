"""Columns of tables, read alike from pandas, from pyarrow, from Parquet and CSV files and from dicts of arrays.

`PrimaryKeys` finds the row that each foreign key names, and refuses keys that are missing, repeated or dangling.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ...errors import DataError, UsageError
from ..columns import Array
from ..npy import regular_size

_INSTALL = "pip install 'bulksample[tables]'"
_INDEX = re.compile(r"__index_level_\d+__")  # how pandas stores an index without a name
_REPEATS = "which is the primary key of row {} too; use distinct keys"
_EXACT = 2.0**53  # floats count whole numbers up to this


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table. `where` names table and column; it begins messages.

    `values`, shape (n,), are booleans, integers, floats, datetime64, text (U, or objects that are str) or other objects: anything where a
    value is `missing`. If there are `categories`, they are codes: positions in that list.
    """

    where: str
    values: Array
    missing: Array
    categories: list[Any] | None = None

    @cached_property
    def kind(self) -> str:
        """``number``, ``date``, ``category``, ``text`` or ``other``."""
        if self.categories is not None:
            return "category"
        of_dtype = {"b": "number", "i": "number", "u": "number", "f": "number", "M": "date", "U": "text"}.get(self.values.dtype.kind)
        if of_dtype is None and all(isinstance(value, str) for value in self.values[~self.missing].tolist()):
            return "text"
        return of_dtype or "other"

    def __len__(self) -> int:
        return len(self.values)

    def refuse(self, row: Any, fits: str, holds: str = "") -> NoReturn:
        """Raise `DataError` naming table, column and row, the value, and what fits."""
        value = self.values[row] if self.categories is None else self.categories[self.values[row]]
        shown = str(value) if self.kind == "date" else repr(value.item() if isinstance(value, np.generic) else value)
        raise DataError(f"{self.where}: row {row} holds {holds or ('nothing' if self.missing[row] else shown)}; {fits}")


def columns_of(name: str, table: Any, what: str = "") -> dict[str, Column]:
    """Return the columns of a table by name, all of one length, from any of the kinds that `bulksample.from_tables` takes.

    Messages begin with `what`, by default ``table 'NAME'``. Raises `UsageError` if it is none of these, or a package for it is missing;
    `DataError` if columns differ in length, have more than one dimension or share a name, or the file is damaged.
    """
    what = what or f"table {name!r}"
    if isinstance(table, str | os.PathLike):
        table = read_parquet(Path(table))
    if hasattr(table, "column_names") and hasattr(table, "column"):
        kept = [at for at, key in enumerate(table.column_names) if not _INDEX.fullmatch(key)]
        columns = _all(what, [table.column_names[at] for at in kept], map(table.column, kept), _of_arrow)
    elif hasattr(table, "iloc") and hasattr(table, "columns"):
        columns = _all(what, table.columns, [table.iloc[:, at] for at in range(len(table.columns))], _of_pandas)
    elif isinstance(table, Mapping):
        columns = _all(what, table, table.values(), _of_array)
    else:
        kind = type(table).__name__
        raise UsageError(f"{what}: got a {kind}; use a pandas.DataFrame, a dict of arrays or the path of a Parquet file")
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{what}: its columns must have one length; got {lengths}")
    return columns


def _all(what: str, keys: Iterable[Any], columns: Iterable[Any], convert: Callable[[str, Any], Column]) -> dict[str, Column]:
    made: dict[str, Column] = {}
    for key, column in zip(map(str, keys), columns, strict=True):
        if key in made:
            raise DataError(f"{what}: two columns are named {key!r}; use one")
        made[key] = convert(f"{what}: column {key!r}", column)
    return made


def read_parquet(path: Path) -> Any:
    """Read a Parquet file as a `pyarrow.Table`; raises `UsageError` without pyarrow, `DataError` for a damaged file."""

    def read() -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(path).read()

    return _by_pyarrow(path, "Parquet", read)


def read_csv(path: Path) -> Any:
    """Read a CSV file as a `pyarrow.Table`: commas, and a header. A field without text, or with NA, NaN or null, is missing.

    Raises as `read_parquet`.
    """

    def read() -> Any:
        from pyarrow import csv

        return csv.read_csv(path, convert_options=csv.ConvertOptions(strings_can_be_null=True))

    return _by_pyarrow(path, "CSV", read)


def _by_pyarrow(path: Path, kind: str, read: Callable[[], Any]) -> Any:
    """Return the table that `read` reads from a file; see `read_parquet`."""
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError(f"{path.name}: reading {kind} needs pyarrow; {_INSTALL}") from error
    regular_size(path, path.name)
    try:
        made = read()
        list(made.column_names)  # raises for a name that is not UTF-8
        return made
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path.name}: is no {kind} file that can be read: {error}") from error


def _of_array(where: str, values: Any) -> Column:
    """Return the column of a list, a numpy array, a tensor or a pandas Series; NaN, NaT, None and masked entries are missing."""
    if hasattr(values, "isna") and hasattr(values, "iloc"):
        return _of_pandas(where, values)
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    try:
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: cannot be read as an array: {error}") from error
    if array.ndim != 1:
        raise DataError(f"{where}: has shape {array.shape}; use one value for each row")
    if array.dtype.kind not in "biufMUO":
        raise DataError(f"{where}: holds {array.dtype}; use numbers, booleans, dates or text")
    column = _of_objects(where, array, _gaps(array)) if array.dtype.kind == "O" else Column(where, array, _gaps(array))
    return column if hidden is None else Column(where, column.values, column.missing | hidden)


def _gaps(array: Array) -> Array:
    """Return True where a value is None, NaN or NaT."""
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind == "M":
        return np.isnat(array)
    if array.dtype.kind == "O":
        return np.array([one is None or (isinstance(one, float | np.datetime64) and one != one) for one in array], bool)
    return np.zeros(len(array), bool)


def _of_objects(where: str, array: Array, missing: Array) -> Column:
    """Return a column of Python objects as numbers or dates if all that are there are that; other objects stay."""
    known = array[~missing].tolist()
    if not known or any(isinstance(value, str) for value in known):
        return Column(where, array, missing)
    if all(isinstance(value, datetime.date) and getattr(value, "tzinfo", None) is None for value in known):
        converted = np.array(known, "datetime64[us]")
    elif all(isinstance(value, bool | int | float | np.number | np.bool_) for value in known):
        converted = np.array(known)
    else:
        return Column(where, array, missing)
    whole = np.zeros(len(array), converted.dtype)
    whole[~missing] = converted
    return Column(where, whole, missing)


def _of_pandas(where: str, series: Any) -> Column:
    """Return the column of a pandas Series of any dtype; times with a zone become UTC."""
    missing = np.asarray(series.isna(), bool)
    if hasattr(series.dtype, "pyarrow_dtype"):
        import pyarrow as pa

        arrow = pa.array(series)
        return _of_arrow(where, arrow if isinstance(arrow, pa.ChunkedArray) else pa.chunked_array([arrow]))
    if hasattr(series, "cat"):
        return Column(where, np.asarray(series.cat.codes).astype(np.int64), missing, series.cat.categories.tolist())
    kind = getattr(series.dtype, "kind", "O")
    if kind == "M":
        plain = series.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(series.dtype, "tz", None) is not None else series
        unit = np.datetime_data(plain.dtype)[0] if isinstance(plain.dtype, np.dtype) else plain.dtype.unit
        return Column(where, np.asarray(plain.to_numpy()).astype(f"datetime64[{unit}]"), missing)
    if isinstance(series.dtype, np.dtype) and kind in "biuf":
        return Column(where, np.asarray(series.to_numpy()), missing)
    if kind in "biuf":  # extension types, which have missing values
        plain = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64}[kind]
        values = series.to_numpy(dtype=plain, na_value=np.zeros(1, plain)[0])
        return Column(where, values, missing | _gaps(values))
    return _of_objects(where, np.asarray(series.to_numpy(), object), missing)


def _of_arrow(where: str, chunks: Any) -> Column:
    """Return the column of a `pyarrow.ChunkedArray`; times with a zone are UTC already."""
    import pyarrow as pa

    types, kind = pa.types, chunks.type
    missing = chunks.is_null().to_numpy()
    if types.is_dictionary(kind):
        whole = chunks.unify_dictionaries().combine_chunks()
        whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
        codes = whole.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return Column(where, codes, missing, whole.dictionary.to_pylist())
    if types.is_date(kind) or types.is_timestamp(kind):
        unit = kind.unit if types.is_timestamp(kind) else "s" if types.is_date32(kind) else "ms"
        ticks = chunks.cast(pa.timestamp(unit)).cast(pa.int64()).fill_null(0).to_numpy()
        return Column(where, ticks.view(f"datetime64[{unit}]"), missing)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        values = chunks.fill_null(False if types.is_boolean(kind) else 0).to_numpy()
        return Column(where, values, missing | _gaps(values))
    return _of_objects(where, np.array([*chunks.to_pylist(), None], object)[:-1], missing)


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
            primary = f"{self.column.where} {self.column.kind} values"
            raise DataError(f"{foreign.where}: holds {foreign.kind} values, and {primary}; use keys of one type")
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
        if len(bad := np.flatnonzero(~((numbers == np.rint(numbers)) & (np.abs(numbers) <= _EXACT)))):
            column.refuse(bad[0], "use whole numbers below 2**53, or text, as keys")
        return numbers.astype(np.int64)
    if kind == "u" and len(column) and (large := np.flatnonzero(column.values > np.iinfo(np.int64).max)).size:
        column.refuse(large[0], "use keys below 2**63")
    if kind in "biu":
        return column.values.astype(np.int64)
    if kind == "M":
        return np.array([*column.values.astype("datetime64[us]").tolist(), None], object)[:-1]
    return column.values.astype(object)
