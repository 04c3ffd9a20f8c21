"""A heterogeneous graph from tables with primary and foreign keys: `bulksample.from_tables`, and `bulksample data import parquet`.

Each row is a vertex, and each foreign key a relation and its reverse::

    (table, f2p_COLUMN, other)        from a row to the row of the other table that it names
    (other, rev_f2p_COLUMN, table)    back

These are the names of RelBench's `make_pkey_fkey_graph`. A vertex aggregates from the sources of the edges into it, so a driver aggregates
from his results by ``(results, f2p_driverId, drivers)``. A folder of Parquet files has a schema file::

    tables:
      races:   {primary_key: raceId, time: date}
      results: {primary_key: resultId, foreign_keys: {raceId: races}, time: date, file: results-2023.parquet}
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError, UsageError, instead_of
from ...graph import Graph, Relation, VertexType
from ...graph.labels import outputs_of
from ...graph.times import UNITS
from ...graph.types import relation_from_edges
from ..columns import Array
from .table_columns import Column, PrimaryKeys, columns_of
from .table_encoding import Encoded, as_time, encode, labels_of, masks_of, times_of
from .table_schema import TableSchema, as_schemas, read_schema_file

SCHEMA_FILES = ("schema.yaml", "schema.yml", "schema.json")


@dataclass(frozen=True, eq=False)
class Table:
    """One table: its columns and schema, the time of each row, and which rows are in the graph."""

    name: str
    schema: TableSchema
    columns: dict[str, Column]
    count: int
    times: Array | None
    kept: Array  # bool, shape (count,)

    @property
    def places(self) -> Array:
        """The vertex of each row, -1 of a row that is not in the graph: int64."""
        return np.where(self.kept, np.cumsum(self.kept) - 1, -1)


def from_tables(
    tables: Any, schema: Mapping[str, Any] | None = None, *, reverse: bool = True, time_unit: str = "s", until: Any = None,
    fit_until: Any = None, name: str = "graph",
) -> Graph:  # fmt: skip
    """Build a heterogeneous graph from tables: rows are vertices, foreign keys are edges.

    Parameters
    ----------
    tables : dict of names to pandas.DataFrame, pyarrow.Table, dict of arrays, or path of a Parquet file
        Or a RelBench ``Database``, whose tables carry their keys. Rows keep their order: vertex v of a type is row v of its table, less the
        rows after `until`.
    schema : dict of names to dicts, optional
        ``{"results": {"primary_key": "resultId", "foreign_keys": {"raceId": "races"}, "time": "date"}, …}``; see
        `bulksample.data.tables.table_schema.TableSchema`.
    reverse : bool
        Add the reverse of every relation.
    time_unit : {"D", "h", "m", "s", "ms", "us", "ns"}
        The unit in which dates become times, counted from 1970. Whole numbers stay as they are.
    until : date or int, optional
        Leave out rows with a later time, and the edges of their keys.
    fit_until : date or int, optional
        Scale features by the rows up to this time alone, so that they tell nothing of later ones. By default, by all rows.
    name : str

    Returns
    -------
    Graph
        Features as `bulksample.data.tables.table_encoding` makes them. A table without a column of numbers has none.

    Raises
    ------
    DataError
        If a primary key repeats or is missing, a foreign key names no row, a row has no time, or a value does not suit its column. The
        message names table, column and row.
    UsageError
        If the schema names a table or a column that is not there.
    """
    graph, report = read_tables(tables, schema, reverse=reverse, time_unit=time_unit, until=until, fit_until=fit_until, name=name)
    if left_out := [f"{table}.{column}" for table, entry in report.items() for column in entry["left_out"]]:
        warnings.warn(f"{', '.join(left_out)}: text is left out; name it in the schema: category, keep or drop", stacklevel=2)
    return graph


def read_tables(
    tables: Any, schema: Mapping[str, Any] | None = None, *, reverse: bool, time_unit: str, until: Any, fit_until: Any, name: str,
) -> tuple[Graph, dict[str, dict[str, Any]]]:  # fmt: skip
    """Build the graph of tables, with a report of each: its rows, features, categories and left out columns; see `from_tables`."""
    if time_unit not in UNITS:
        raise UsageError(f"time_unit: got {time_unit!r}; use {', '.join(UNITS)}")
    named_tables, carried = _of_relbench(tables)
    schemas = as_schemas(schema or carried, named_tables)
    last = None if until is None else as_time("until", until, time_unit)
    fit = None if fit_until is None else as_time("fit_until", fit_until, time_unit)
    read = {key: _table(key, table, schemas[key], time_unit, last) for key, table in named_tables.items()}
    timed = [table.columns[table.schema.time] for table in read.values() if table.schema.time is not None]
    of_kind = {column.kind: column.where for column in timed}
    if len(of_kind) > 1:  # a year such as 2009 would be 2009 units after 1970
        listed = ", ".join(f"{where} holds {kind}s" for kind, where in of_kind.items())
        raise DataError(f"times of a graph must be of one kind: {listed}; use dates in all tables, or whole numbers in all")
    encoded = {}
    for key, table in read.items():
        seen = table.kept if table.times is None or fit is None else table.kept & (table.times <= fit)  # whose values scale the features
        encoded[key] = encode(table.columns, table.schema, table.kept, seen)
    types = {key: _vertices(table, encoded[key]) for key, table in read.items()}
    relations = _relations(read, types, reverse)
    graph = Graph.of(tuple(types.values()), tuple(relations), name).validate()
    report = {}
    for key, table in read.items():
        report[key] = {
            "rows": int(table.kept.sum()), "rows_after_until": int((~table.kept).sum()),
            "features": [name for name, _ in encoded[key].features],
            "categories": {name: len(listed) for name, listed in encoded[key].categories.items()}, "left_out": encoded[key].left_out,
            "missing_keys": {column: int((table.columns[column].missing & table.kept).sum()) for column in table.schema.foreign_keys},
        }  # fmt: skip
    return graph, report


def read_folder(
    folder: str | os.PathLike[str], schema: str | os.PathLike[str] | None = None, *, reverse: bool = True, time_unit: str = "s",
    until: Any = None, fit_until: Any = None,
) -> tuple[Graph, dict[str, dict[str, Any]]]:  # fmt: skip
    """Read the tables that a schema file lists; return their graph, and by table what became of its columns.

    Parameters
    ----------
    folder : path
        Table NAME is in ``NAME.parquet``, unless its schema has a `file`.
    schema : path, optional
        By default ``schema.yaml``, ``schema.yml`` or ``schema.json`` in the folder.
    reverse, time_unit, until, fit_until :
        See `bulksample.from_tables`.

    Raises
    ------
    DataError
        If a file is missing or damaged, or a table is wrong; the message names the file, or table, column and row.
    UsageError
        If pyarrow is missing, or the schema does not suit the tables.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder; use one with Parquet files and a {SCHEMA_FILES[0]}")
    if schema is None:
        present = [root / name for name in SCHEMA_FILES if (root / name).exists()]
        if len(present) != 1:
            raise DataError(f"{root}: has {len(present) or 'no'} schema files; use one of {', '.join(SCHEMA_FILES)}, or schema='FILE'")
        schema = present[0]
    schemas = read_schema_file(schema)
    files = {name: root / (table.file or f"{name}.parquet") for name, table in schemas.items()}
    return read_tables(files, schemas, reverse=reverse, time_unit=time_unit, until=until, fit_until=fit_until, name=root.resolve().name)


def _of_relbench(tables: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return tables by name, and the schemas that RelBench's tables carry."""
    tables = getattr(tables, "table_dict", tables)
    if not isinstance(tables, Mapping) or not all(isinstance(key, str) and key for key in tables):
        raise UsageError(f"tables: got a {type(tables).__name__}; use a dict of names to tables")
    carried = {}
    for key, table in tables.items():
        if hasattr(table, "fkey_col_to_pkey_table"):
            keys = {"primary_key": table.pkey_col, "foreign_keys": dict(table.fkey_col_to_pkey_table), "time": table.time_col}
            carried[key] = {field: value for field, value in keys.items() if value is not None}
    return {key: getattr(table, "df", table) for key, table in tables.items()}, carried


def _table(name: str, table: Any, schema: TableSchema, unit: str, until: int | None) -> Table:
    """Read the columns of one table and check that those of its schema are there."""
    columns = columns_of(name, table)
    for column, use in {**schema.own_columns, **{column: "columns" for column in schema.columns}}.items():
        if column not in columns:
            fits = instead_of(column, columns) if columns else "the table has no columns"
            raise UsageError(f"schema of table {name!r}: {use}: there is no column {column!r}; {fits}")
    count = len(next(iter(columns.values()))) if columns else 0
    times = None if schema.time is None else times_of(columns[schema.time], unit)
    kept = np.ones(count, bool) if times is None or until is None else times <= until
    return Table(name, schema, columns, count, times, kept)


def _vertices(table: Table, encoded: Encoded) -> VertexType:
    """Return the vertex type of a table."""
    schema, kept = table.schema, table.kept
    labels = None if schema.label is None else labels_of(table.columns[schema.label], schema.target)[kept]
    masks = {} if schema.split is None else {split: mask[kept] for split, mask in masks_of(table.columns[schema.split]).items()}
    outputs = 0 if labels is None else outputs_of(labels, name=f"table {table.name!r}: column {schema.label!r}")
    times = None if table.times is None else table.times[kept]
    return VertexType(table.name, int(kept.sum()), encoded.matrix(), labels, outputs, masks, times, encoded.extra)


def _relations(tables: dict[str, Table], types: dict[str, VertexType], reverse: bool) -> list[Relation]:
    """Return the relations of all foreign keys, each followed by its reverse."""
    named = {name: table.schema.primary_key for name, table in tables.items()}  # one that nothing names is checked too
    keys = {name: PrimaryKeys(tables[name].columns[column]) for name, column in named.items() if column is not None}
    made = []
    for name, table in tables.items():
        for column, other in table.schema.foreign_keys.items():
            rows = keys[other].rows_of(table.columns[column])
            ends = np.where(rows >= 0, tables[other].places[rows], -1) if tables[other].count else rows
            here = np.flatnonzero(table.kept & (ends >= 0))
            one, two = table.places[here], ends[here]
            made.append(relation_from_edges(types[name], f"f2p_{column}", types[other], one, two))
            if reverse:
                made.append(relation_from_edges(types[other], f"rev_f2p_{column}", types[name], two, one))
    return made
