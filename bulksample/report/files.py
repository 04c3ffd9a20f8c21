"""Find, parse and check files of results, before anything is made of them. Every error names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..distributed.comm.base import KINDS
from ..distributed.comm.ledger import PHASES
from ..errors import DataError

_MOST_BYTES = 2**28
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


def found_under(path: Path) -> list[Path]:
    """Return a file itself, or the .json and .jsonl files under a folder, sorted by name, without the states of checkpoints."""
    if path.is_dir():
        json_files = (file for file in path.rglob("*.json*") if file.suffix in (".json", ".jsonl") and file.is_file())
        others = (file for file in json_files if not (file.name == "state.json" and file.parent.name.startswith("step-")))
        results = sorted(others, key=lambda file: (file.parent, file.stem))
        if not results:
            raise DataError(f"{path}: holds no .json or .jsonl file; use a folder with results of `bulksample train --json`")
        return results
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    return [path]


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise DataError(f"{file}: is larger than {_MOST_BYTES // 2**20} MiB, which no result is")
        return file.read_bytes().decode()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not text: {error}") from error


def load(file: Path) -> JsonObject:
    """Return the object in a file. An object that looks like a result is checked to be complete."""
    result = _parsed(_text(file), str(file))
    if not isinstance(result, dict):
        raise DataError(f"{file}: a result is one JSON object; got {type(result).__name__}")
    if kind := kind_of(result):
        CHECKS[kind](str(file), result)
    return result


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}") from error


def lines_of_epochs(file: Path) -> list[JsonObject]:
    """Return the lines of epochs in a file, without a last line that a crash cut short."""
    texts = _text(file).splitlines()
    whole = list(texts)
    try:
        json.loads(texts[-1] if texts else "{}")
    except ValueError:
        whole.pop()
    parsed = [_parsed(text, f"{file}, line {number}") for number, text in enumerate(whole, 1)]
    strange = next((i for i, line in enumerate(parsed, 1) if not isinstance(line, dict) or not {"epoch", "loss"} <= line.keys()), None)
    if strange is not None or (texts and not whole):
        raise DataError(f"{file}, line {strange or 1}: is not the line of an epoch; use a file that `bulksample train --metrics` wrote")
    for number, line in enumerate(parsed, 1):
        where = f"{file}, line {number}"
        _numbers(where, line, _LINE)
        _must(line["loss"] is None or is_number(line["loss"]), where, "loss", line["loss"])  # None: no rank had a seed
    return parsed


def kind_of(result: JsonObject) -> str:
    """Return what an object is a result of: "run" (`train` or `sample`), "comparison" or "bench" (in one unit); else nothing."""
    keys, trained, sampled = result.keys(), {"method", "phases", "training_bytes", "epochs_in_this_run"}, {"sampled_edges", "sampler"}
    kinds = {"run": trained <= keys or sampled <= keys, "comparison": {"methods", "networks", "runs"} <= keys}
    kinds["bench"] = {"unit", "results"} <= keys
    return next((kind for kind, fits in kinds.items() if fits), "")


def _check_run(file: str, result: JsonObject) -> None:
    """Check a result of `train` or `sample`; raise `DataError` with the file and the part that is missing or odd."""
    trained = "sampled_edges" not in result
    _numbers(file, result, _TRAINED if trained else _SAMPLED)
    for key in _WORDS if trained else _WORDS[1:]:
        _must(isinstance(result[key], str), file, key, result[key])
    for key in ("config", "environment", "data", "balance"):
        _must(isinstance(result.get(key, {}), dict), file, key, result.get(key))
    _must("config" not in result or "version" in result.get("environment", {}), file, "environment.version", None)
    if "balance" in result:
        names = [f"balance.seconds.{phase}.{what}" for phase in PHASES for what in (*_SPREAD, "rank")]
        _numbers(file, result, tuple(names))
    if "data" in result:
        _numbers(file, result["data"], _DATA)


def _check_comparison(file: str, result: JsonObject) -> None:
    """Check a table of `compare`."""
    rows, networks = result["methods"], result["networks"]
    _must(isinstance(rows, list) and all(isinstance(row, dict) for row in rows), file, "methods", rows)
    _must(isinstance(networks, dict), file, "networks", networks)
    for row in rows:
        _must(isinstance(row.get("method"), str), file, "method", row.get("method"))
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


def _mean(where: str, result: JsonObject, key: str) -> None:
    """Check a mean and its standard deviation, which is None for a single value."""
    _numbers(where, result, (f"{key}.mean",))
    _must(result[key].get("std") is None or is_number(result[key]["std"]), where, f"{key}.std", result[key].get("std"))


def _check_bench(file: str, result: JsonObject) -> None:
    """Check a benchmark: minimum, median and maximum of each contestant."""
    _must(isinstance(result["results"], dict), file, "results", result["results"])
    for name, spread in result["results"].items():
        _must(isinstance(spread, dict), file, name, spread)
        _numbers(f"{file}, {name}", spread, _SPREAD)


CHECKS = {"run": _check_run, "comparison": _check_comparison, "bench": _check_bench}


def _numbers(where: str, result: JsonObject, names: tuple[str, ...]) -> None:
    for name in names:
        value: Any = result
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
