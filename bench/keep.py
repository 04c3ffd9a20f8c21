"""Keep results of benchmarks in the repository, and read them back.

The newest figures of a theme are in `bench/results/THEME/latest.json`. The file holds named parts; a part has the date of its run, the
command that made it, and its `result`: the JSON object that the command wrote, unchanged.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

RESULTS = Path(__file__).parent / "results"
WIDTH = 140


def load(theme: str) -> dict[str, Any]:
    """Return the parts of a theme, by name."""
    found: dict[str, Any] = json.loads((RESULTS / theme / "latest.json").read_text())["parts"]
    return found


def read(theme: str, part: str) -> dict[str, Any]:
    """Return the result of one part, as its benchmark wrote it."""
    result: dict[str, Any] = load(theme)[part]["result"]
    return result


def layout(value: Any, indent: int = 0) -> str:
    """Format JSON with one line for each value that fits into a line, so that a table of figures reads as one."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(line) + indent < WIDTH:
        return line
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {layout(item, indent + 1)}" for key, item in value.items()]
    else:
        items = [layout(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inside = ",\n".join(f"{' ' * (indent + 1)}{item}" for item in items)
    return f"{opening}\n{inside}\n{' ' * indent}{closing}"


def write(theme: str, parts: dict[str, Any]) -> None:
    """Write the parts of a theme."""
    path = RESULTS / theme / "latest.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(layout({"theme": theme, "parts": parts}) + "\n")


def add(theme: str, part: str, result: Any, command: str) -> None:
    """Replace or add a part of a theme: a result of today, and the command that made it."""
    parts = load(theme) if (RESULTS / theme / "latest.json").exists() else {}
    write(theme, parts | {part: {"date": datetime.date.today().isoformat(), "command": command, "result": result}})


def results(
    theme: Annotated[str, "a folder of bench/results"], part: Annotated[str | None, Argument(help="name of the part")] = None,
    source: Annotated[Path | None, Option("--from", metavar="FILE", help="JSON of an experiment, to be kept as this part")] = None,
    command: Annotated[str, Option(help="the command that wrote the file")] = "",
) -> None:  # fmt: skip
    """List the parts of a theme, print the result of one, or replace it by a file; `run.py NAME --keep PART` replaces one by a new run."""
    if source and part:
        add(theme, part, json.loads(source.read_text()), command)
    elif part:
        print(layout(read(theme, part)))
    else:
        print("\n".join(f"{name}: {part['date']}, {part['command']}" for name, part in load(theme).items()))
