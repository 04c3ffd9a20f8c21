"""What every command prints: a table for people, or one JSON object with `--json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the result as one JSON object; - is standard output.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Everything random is a function of it.")]


def emit(result: dict[str, Any], json_file: Path | None, title: str, table: bool = True) -> None:
    """Write `result` to `json_file`, and show it as a table, unless not wanted or the JSON itself goes to standard output."""
    text = json.dumps(result, indent=2, default=float)
    if json_file is not None and str(json_file) == "-":
        print(text)
        return
    if json_file is not None:
        json_file.write_text(text + "\n")
    if table:
        _show(result, title)


def _show(result: dict[str, Any], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), show_header=False)
    for key, value in result.items():
        if isinstance(value, dict):
            for name, inner in value.items():
                table.add_row(f"{key}.{name}", Text(_readable(inner)))
        else:
            table.add_row(key, Text(_readable(value)))
    Console(file=sys.stdout).print(table)


def _readable(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
