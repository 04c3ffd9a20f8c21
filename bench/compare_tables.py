"""Write the tables of the notes on `compare` and on RETEXO, and that of docs/methods/index.md, from the kept comparisons.

A table of a note follows the line that begins with the name of its part in `latest.json`, as in ``**`cora`**: ...``.
"""

from __future__ import annotations

import re
from typing import Any

import keep

PAGES = tuple(keep.RESULTS / theme / "README.md" for theme in ("compare", "retexo"))
OVERVIEW = keep.RESULTS.parents[1] / "docs" / "methods" / "index.md"
SHOWN = {"test accuracy, %": "accuracy, %", "MB": "MB", "s/round at 10 Mbit/s": "s/round"}  # columns of the overview, of two graphs
NETWORK = "ethernet-10g:between=1.25e6"
KINDS = {name: name for name in ("topology", "features", "activations", "gradients")} | {
    "weights": "model"
}  # name in the table: in reports
_TABLE = re.compile(r"(^\*\*`([\w-]+)`\*\*:[^|]*\n\n)((?:\|.*\n)+)", re.MULTILINE)

_OVERVIEW = re.compile(r"^\| \| `hard-sbm`: accuracy.*\n(?:\|.*\n)+", re.MULTILINE)


def number(value: float) -> str:
    """Format to three digits, or to whole ones from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def steps(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of steps, trainers and norm; none of runs from before `compare` stated them."""
    return {"steps": number(row["steps"]), "trainers": str(row["trainers"]), "norm": row["norm"]} if "steps" in row else {}


def cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one method by the head of their column."""
    score, sent, modelled = row["score"], row["bytes"], row["networks"][NETWORK]
    return {
        "method": f"`{row['method']}`",
        "test accuracy, %": f"{100 * score['mean']:.1f} ± {100 * score['std']:.1f}",
        "rounds": number(row["epochs"]),
        **steps(row),
        "MB": number(sent["total"] / 1e6),
        **{name: number(sent[kind] / 1e6) for name, kind in KINDS.items()},
        "MB per round": number(sent["total"] / 1e6 / row["epochs"]),
        "s/round at 10 Mbit/s": number(modelled["seconds_per_epoch"]["mean"]),
        "whole run at 10 Mbit/s, s": number(modelled["seconds"]["mean"]),
    }


def table(theme: str, part: str) -> str:
    """Return the table of one comparison."""
    rows = [cells(row) for row in keep.read(theme, part)["methods"]]
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    head, *body = (f"| {' | '.join(line)} |\n" for line in lines)
    return "".join([head, "|:--|" + "--:|" * (len(rows[0]) - 1) + "\n", *body])


def overview() -> str:
    """Return the table of two graphs side by side."""
    graphs = [[cells(row) for row in keep.read("compare", graph)["methods"]] for graph in ("hard-sbm", "cora")]
    lines = [[one["method"], *(row[head] for row in (one, other) for head in SHOWN)] for one, other in zip(*graphs, strict=True)]
    named = [f"`{graph}`: {name}" if i == 0 else name for graph in ("hard-sbm", "cora") for i, name in enumerate(SHOWN.values())]
    head, *body = (f"| {' | '.join(line)} |\n" for line in [["", *named], *lines])
    return "".join([head.replace("|  |", "| |", 1), "|:--|" + "--:|" * len(named) + "\n", *body])


def write(theme: str, text: str) -> str:
    """Return the note of a theme with the tables that the kept comparisons give."""
    return _TABLE.sub(lambda found: found[1] + table(theme, found[2]), text)


def write_overview(text: str) -> str:
    """Return the overview of methods with its table."""
    return _OVERVIEW.sub(lambda found: overview(), text)


def write_tables() -> None:
    for page in PAGES:
        page.write_text(write(page.parent.name, page.read_text()))
    OVERVIEW.write_text(write_overview(OVERVIEW.read_text()))
