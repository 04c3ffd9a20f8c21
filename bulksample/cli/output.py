"""Output of every command: a table, one JSON object with `--json`, and files, which are checked and held before the work begins."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.atomic import write_file
from ..data.result_places import check_ending, check_outputs, holding
from ..errors import UsageError
from ..printable import printable
from ..report.files import is_number
from .process import closed

Check = StrEnum("Check", ["auto", "full", "none"])
CheckOption = Annotated[
    Check, typer.Option("--check", help="Hashes to check: of files that changed since the last time (auto), of all (full), or none.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")]
LogLevel = StrEnum("LogLevel", ["debug", "info", "warning", "error"])
Write = Callable[[Path, str], None]  # how a file is written; a run that keeps checkpoints notes what it writes
_FILE_ONLY = ("config", "balance", "data", "environment", "warnings")  # parts of a report that are too long for the table
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")]
_HELD: list[ExitStack] = []  # of the command that runs


def ending(option: str, *endings: str, prints: bool = False) -> Callable[[Path | None], Path | None]:
    """Return a callback for the file of an option, which refuses other endings; see `data.result_places.check_ending`."""

    def checked(file: Path | None) -> Path | None:
        check_ending(option, file, *endings, prints=prints)
        return file

    return checked


_json = ending("--json", ".json", prints=True)
JsonOption = Annotated[
    Path | None, typer.Option("--json", callback=_json, help="File for the result as one JSON object; - for standard output.")
]


def tell_launch(ranks: int, threads: str, reach: str = "") -> None:
    """Log the launcher, the threads of a rank, and the transport between devices."""
    from ..distributed.comm.launchers import launched

    log = logging.getLogger("bulksample")
    log.info("%d ranks by %s, threads of a rank: %s", ranks, launched().launcher, threads)
    if reach:
        log.info(reach)


def emit(
    result: dict[str, Any], json_file: Path | None, title: str, table: bool = True, rows: Sequence[str] = (),
    write: Write = write_file,
) -> None:  # fmt: skip
    """Write `result` to `json_file`, and print it as a table unless `table` is False or the JSON goes to standard output.

    `write` writes the file. If `rows` names entries, the table has these alone, in this order.
    """
    text = json.dumps(result, indent=2, default=float)
    if json_file is not None and str(json_file) == "-":
        if "stdout" in closed:
            raise UsageError("--json -: standard output is closed; use a file")
        print(text)
        return
    if json_file is not None:
        try:
            write(json_file, text + "\n")
        except OSError as error:
            print(text)  # the work is done, so its result is not lost
            raise UsageError(f"cannot write {json_file}: {error.strerror or error}") from error
    if table:
        left_out = "the other entries: --verbose" if rows else None
        _show({name: result[name] for name in rows or result}, title, left_out)


def _show(result: dict[str, Any], title: str, caption: str | None) -> None:
    """Print one row for each entry. Nested numbers share a row without zeros; other nested entries have rows of their own."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), caption=caption, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in ((key, value) for key, value in result.items() if key not in _FILE_ONLY):
        if not isinstance(value, dict):
            table.add_row(Text(printable(key)), Text(printable(_readable(key, value))))
        elif value and all(is_number(inner) for inner in value.values()):
            unit = "seconds" if key == "phases" else key  # the unit of all is in their common name
            shown = [f"{name} {_readable(f'{unit}.{name}', number)}" for name, number in value.items() if number]
            table.add_row(Text(printable(key)), Text(printable(", ".join(shown)) or "none"))
        else:
            for name, inner in value.items():
                table.add_row(Text(printable(f"{key}.{name}")), Text(printable(_readable(name, inner))))
    Console(file=sys.stdout).print(table)


def _readable(name: str, value: Any) -> str:
    """Format a value; numbers whose names contain bytes or seconds get a unit, and of a dict only entries with a value are shown."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(key, inner)}" for key, inner in value.items() if inner or key.endswith("time")) or "none"
    if not is_number(value):
        return "none" if value is None else str(value)
    if name.startswith("seconds"):
        return _scaled(value, [(1, "s"), (1e-3, "ms"), (1e-6, "us")])
    if "bytes" in name:
        return _scaled(value, [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _scaled(value: float, units: list[tuple[float, str]]) -> str:
    """Format three digits of `value` in the largest unit in which it is at least one."""
    size, unit = next(((size, unit) for size, unit in units if abs(value) >= size), units[-1])
    return f"{value / size:,.3g} {unit}" if abs(value / size) < 1000 else f"{value / size:,.0f} {unit}"


@contextmanager
def held_until_the_end() -> Iterator[None]:
    """Run a command: what it holds is free afterwards."""
    with ExitStack() as held:
        _HELD.append(held)
        try:
            yield
        finally:
            _HELD.pop()


def hold_outputs(overwrite: bool, *files: Path | None) -> None:
    """Hold the files of a command until it ends, once each can be written and none exists, unless `overwrite`; raises `UsageError`."""
    hold_checked(lambda: check_outputs(overwrite, *files), *files)


def hold_checked(check: Callable[[], None], *places: Path | None) -> None:
    """Hold places until the command ends, once `check` passes; it is called again when nobody else can change them.

    A command that another program calls by its function, not by `main`, has no known end, and holds nothing.
    """
    check()
    if _HELD:
        _HELD[-1].enter_context(holding(*places))
        check()
