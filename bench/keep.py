"""Keep results of benchmarks in the repository, and read them back.

    python bench/keep.py sampling                                       list the parts of a theme
    python bench/keep.py sampling 1-thread                              print one part
    python bench/keep.py sampling 1-thread --from FILE.json --command "python bench/bench_sampling.py --threads 1"

The newest figures of a theme are in `bench/results/THEME/latest.json`. The file holds named parts; a part has the date of its run, the
command that made it, and its `result`: the JSON object that the command wrote, unchanged.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("theme", help="a folder of bench/results")
    parser.add_argument("part", nargs="?", help="name of the part")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="JSON of a benchmark, to be kept as this part")
    parser.add_argument("--command", default="", help="the command that wrote the file")
    options = parser.parse_args()
    parts = load(options.theme) if (RESULTS / options.theme / "latest.json").exists() else {}
    if options.source and options.part:
        today = datetime.date.today().isoformat()
        parts[options.part] = {"date": today, "command": options.command, "result": json.loads(options.source.read_text())}
        write(options.theme, parts)
    elif options.part:
        print(layout(parts[options.part]["result"]))
    else:
        print("\n".join(f"{name}: {part['date']}, {part['command']}" for name, part in parts.items()))


if __name__ == "__main__":
    main()
