"""The schema of tables: keys, times, labels and the use of each column, checked before a table is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import DataError, UsageError, instead_of, unknown

Use = Literal["number", "category", "keep", "drop"]


class TableSchema(BaseModel):
    """The roles of the columns of one table: keys, time, label, split and features.

    Attributes
    ----------
    primary_key : str, optional
        The column that other tables name; its values are distinct.
    foreign_keys : dict of columns to tables
        Each is a relation to the rows of the other table, and its reverse. A missing value makes no edge.
    time : str, optional
        The column with the time of each row; it has no missing values.
    label, target : str, optional
        The column to predict, and what it is: ``class``, ``multilabel`` or ``regression``; see `bulksample.graph.labels`.
    split : str, optional
        A column of the words ``train``, ``val`` and ``test``, or missing values.
    columns : dict of columns to uses
        ``number``: a feature; ``category``: codes in `VertexType.extra`; ``keep``: as it is in `VertexType.extra`; ``drop``. The default of
        numbers, booleans and dates is ``number``, and that of categories ``category``; text is left out.
    file : str, optional
        The file of the table, in a folder of tables; by default its name with ``.parquet``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    primary_key: str | None = None
    foreign_keys: dict[str, str] = Field(default_factory=dict)
    time: str | None = None
    label: str | None = None
    target: Literal["class", "multilabel", "regression"] | None = None
    split: str | None = None
    columns: dict[str, Use] = Field(default_factory=dict)
    file: str | None = None

    @property
    def own_columns(self) -> dict[str, str]:
        """The columns that are no features, with what each is, for messages."""
        single = {"primary_key": self.primary_key, "time": self.time, "label": self.label, "split": self.split}
        return dict.fromkeys(self.foreign_keys, "foreign_keys") | {name: use for use, name in single.items() if name is not None}


class _Schemas(BaseModel):
    """A schema file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tables: dict[str, TableSchema]


def as_schemas(entries: Mapping[str, Any], tables: Iterable[str]) -> dict[str, TableSchema]:
    """Return a schema for each table, checked against the names of the tables; tables without an entry have no keys.

    An entry is a `TableSchema` or a dict with its fields. Raises `UsageError` if one names no table, has an unknown field, or a
    foreign key names a table that is not there or has no primary key.
    """
    names = list(tables)
    if stray := [name for name in entries if name not in names]:
        raise UsageError(f"schema: {unknown('table', stray[0], names)}")
    schemas: dict[str, TableSchema] = {}
    for name in names:
        entry = entries.get(name, {})
        try:
            schemas[name] = entry if isinstance(entry, TableSchema) else TableSchema.model_validate(entry)
        except ValidationError as error:
            raise UsageError(f"schema of table {name!r}: {_first_fault(error)}") from None
    for name, schema in schemas.items():
        for column, other in schema.foreign_keys.items():
            where = f"schema of table {name!r}: foreign key {column!r}"
            if other not in schemas:
                raise UsageError(f"{where}: there is no table {other!r}; {instead_of(other, names)}")
            if schemas[other].primary_key is None:
                raise UsageError(f"{where}: table {other!r} has no primary_key; name its column of keys")
    return schemas


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"{place}: is not known; {instead_of(str(fault['loc'][-1]), TableSchema.model_fields)}"
    return f"{place or 'the schema'}: {fault['msg']}; got {fault['input']!r}"


def read_schema_file(path: str | os.PathLike[str]) -> dict[str, TableSchema]:
    """Read ``tables: {NAME: {primary_key: …, foreign_keys: {…}, time: …}}`` from a YAML or JSON file.

    Raises `DataError` if the file cannot be read or parsed, or has an unknown field.
    """
    import yaml

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        body = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        return _Schemas.model_validate(body).tables
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path.name}: is not YAML: {error}") from error
    except ValidationError as error:  # which is a ValueError
        raise DataError(f"{path.name}: {_first_fault(error)}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name}: {error}") from error
