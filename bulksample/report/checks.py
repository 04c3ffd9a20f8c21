"""Check that a file that looks like a result is complete, before anything is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..distributed.comm.base import KINDS
from ..distributed.comm.ledger import PHASES
from ..errors import DataError

JsonObject = dict[str, Any]

# Numbers that a result must hold, nested ones as KEY.NAME
_BYTES = tuple(f"training_bytes.{kind}" for kind in ("total", *KINDS))
_TRAINED = ("ranks", "seconds", "epochs", "epochs_in_this_run", "seconds_per_epoch", *(f"phases.{name}" for name in PHASES), *_BYTES)
_SAMPLED = ("ranks", "seconds", "minibatches", "sampled_edges", "sampled_edges_per_second", "bytes_sent.total")
_LINE = ("epoch", "seconds", "training_bytes.total")
_ROW = ("epochs", *(f"bytes.{kind}" for kind in ("total", *KINDS)), "messages.total")
_SPREAD = ("median", "min", "max")
_WORDS = ("method", "sampler")
_DATA = ("vertices", "edges")


def check_run(file: Path, found: JsonObject) -> None:
    """Check a result of `train` or `sample`; raise `DataError` with the file and the part that is missing or odd."""
    trained = "sampled_edges" not in found
    _numbers(str(file), found, _TRAINED if trained else _SAMPLED)
    for key in _WORDS if trained else _WORDS[1:]:
        _must(isinstance(found[key], str), str(file), key, found[key])
    for key in ("config", "environment", "data", "balance"):
        _must(isinstance(found.get(key, {}), dict), str(file), key, found.get(key))
    _must("config" not in found or "version" in found.get("environment", {}), str(file), "environment.version", None)
    if "balance" in found:
        names = [f"balance.seconds.{phase}.{what}" for phase in PHASES for what in (*_SPREAD, "rank")]
        _numbers(str(file), found, tuple(names))
    if "data" in found:
        _numbers(str(file), found["data"], _DATA)


def check_line(where: str, found: JsonObject) -> None:
    """Check the JSON object of an epoch, one line of a metrics file; raise `DataError`. Its loss may be None: then no rank had a seed."""
    _numbers(where, found, _LINE)
    _must(found["loss"] is None or is_number(found["loss"]), where, "loss", found["loss"])


def check_comparison(file: Path, found: JsonObject) -> None:
    """Check a table of `compare`."""
    rows, networks = found["methods"], found["networks"]
    _must(isinstance(rows, list) and all(isinstance(row, dict) for row in rows), str(file), "methods", rows)
    _must(isinstance(networks, dict), str(file), "networks", networks)
    for row in rows:
        _must(isinstance(row.get("method"), str), str(file), "method", row.get("method"))
        if not row.get("failed"):
            where = f"{file}, {row['method']}"
            _numbers(where, row, _ROW)
            _mean(where, row, "seconds_per_epoch")
            if row.get("score") is not None:
                _mean(where, row, "score")
                _must(isinstance(row.get("split"), str) and isinstance(row.get("metric"), str), where, "split or metric", None)
            _must(isinstance(row.get("networks"), dict) and row["networks"].keys() == networks.keys(), where, "networks", None)
            for name, under in row["networks"].items():
                _must(isinstance(under, dict), where, name, under)
                _mean(f"{where}, {name}", under, "seconds_per_epoch")


def _mean(where: str, found: JsonObject, key: str) -> None:
    """Check a mean and its standard deviation, which is None for a single value."""
    _numbers(where, found, (f"{key}.mean",))
    _must(found[key].get("std") is None or is_number(found[key]["std"]), where, f"{key}.std", found[key].get("std"))


def check_bench(file: Path, found: JsonObject) -> None:
    """Check a benchmark: minimum, median and maximum of each contestant."""
    _must(isinstance(found["results"], dict), str(file), "results", found["results"])
    for name, spread in found["results"].items():
        _must(isinstance(spread, dict), str(file), name, spread)
        _numbers(f"{file}, {name}", spread, _SPREAD)


def _numbers(where: str, found: JsonObject, names: tuple[str, ...]) -> None:
    for name in names:
        value: Any = found
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        _must(is_number(value), where, name, value)


def is_number(value: Any) -> bool:
    """Return True for an integer or a float, False for a boolean and everything else."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _must(holds: bool, where: str, name: str, value: Any) -> None:
    if not holds:
        problem = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise DataError(f"{where}: is not a complete result: {name} {problem}; use the whole file that the command wrote")
