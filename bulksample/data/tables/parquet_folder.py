"""A heterogeneous graph from a folder of Parquet files and a schema file: `bulksample data import parquet`.

The schema file::

    tables:
      races:   {primary_key: raceId, time: date}
      results: {primary_key: resultId, foreign_keys: {raceId: races}, time: date, file: results-2023.parquet}
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...graph import Graph
from .from_tables import read_tables
from .table_schema import read_schema_file

SCHEMA_FILES = ("schema.yaml", "schema.yml", "schema.json")


def read(
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
        found = [root / name for name in SCHEMA_FILES if (root / name).exists()]
        if len(found) != 1:
            raise DataError(f"{root}: has {len(found) or 'no'} schema files; use one of {', '.join(SCHEMA_FILES)}, or schema='FILE'")
        schema = found[0]
    schemas = read_schema_file(schema)
    files = {name: root / (own.file or f"{name}.parquet") for name, own in schemas.items()}
    return read_tables(files, schemas, reverse=reverse, time_unit=time_unit, until=until, fit_until=fit_until, name=root.resolve().name)
