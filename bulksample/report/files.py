"""Find, parse and check files of results. Every error names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import DataError
from .checks import JsonObject, check_bench, check_comparison, check_line, check_run

_MOST_BYTES = 2**28


def found_under(path: Path) -> list[Path]:
    """Return a file itself, or the .json and .jsonl files under a folder, sorted by name, without the states of checkpoints."""
    if path.is_dir():
        json_files = (file for file in path.rglob("*.json*") if file.suffix in (".json", ".jsonl") and file.is_file())
        held = (file for file in json_files if not (file.name == "state.json" and file.parent.name.startswith("step-")))
        found = sorted(held, key=lambda file: (file.parent, file.stem))
        if not found:
            raise DataError(f"{path}: holds no .json or .jsonl file; use a folder with results of `bulksample train --json`")
        return found
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
    found = _parsed(_text(file), str(file))
    if not isinstance(found, dict):
        raise DataError(f"{file}: a result is one JSON object; got {type(found).__name__}")
    for is_one, check in ((is_run, check_run), (is_comparison, check_comparison), (is_bench, check_bench)):
        if is_one(found):
            check(file, found)
    return found


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: is not JSON: {error}") from error


def lines_of_epochs(file: Path) -> list[JsonObject]:
    """Return the lines of epochs in a file, without a last line that a crash cut short."""
    texts = _text(file).splitlines()
    whole = texts[:-1] if texts and not _is_whole(texts[-1]) else texts
    found = [_parsed(text, f"{file}, line {number}") for number, text in enumerate(whole, 1)]
    strange = next((i for i, line in enumerate(found, 1) if not isinstance(line, dict) or not {"epoch", "loss"} <= line.keys()), None)
    if strange is not None or (texts and not whole):
        raise DataError(f"{file}, line {strange or 1}: is not the line of an epoch; use a file that `bulksample train --metrics` wrote")
    for number, line in enumerate(found, 1):
        check_line(f"{file}, line {number}", line)
    return found


def _is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_run(found: JsonObject) -> bool:
    """True for a result of `train` or `sample`."""
    return {"method", "phases", "training_bytes", "epochs_in_this_run"} <= found.keys() or {"sampled_edges", "sampler"} <= found.keys()


def is_comparison(found: JsonObject) -> bool:
    """True for a table of `compare`."""
    return {"methods", "networks", "runs"} <= found.keys()


def is_bench(found: JsonObject) -> bool:
    """True for a benchmark with results in one unit."""
    return {"unit", "results"} <= found.keys()
