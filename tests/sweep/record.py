"""Summarize the outcomes of a section, and keep the summary in `bench/results/reliability/` and in its tables."""

from __future__ import annotations

import datetime
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import keep
from harness import machine

from .journal import Journal

THEME = "reliability"
PAGES = (keep.RESULTS / THEME / "README.md", keep.RESULTS.parents[1] / "docs" / "measured.md")
_TABLE = re.compile(r"(?<=<!-- sweep -->\n).*?(?=<!-- end of sweep -->)", re.DOTALL)


def summarize(journal: Journal, seed: int) -> dict[str, Any]:
    """Return the figures of a section: planned, run and passed in total and by group, figures of cases, and every failure."""
    cases, ran = journal.cases, [journal.outcomes[number] for number in sorted(journal.outcomes)]
    groups = {name: _counts(name, cases, ran) for name in dict.fromkeys(case["group"] for case in cases)}
    keys = ("number", "case", "seen")
    figures = {outcome["case"]["group"]: outcome["figures"] for outcome in ran if "figures" in outcome}
    return {
        "machine": machine(), "seed": seed, "commits": sorted({outcome["commit"] for outcome in ran}),
        "planned": len(cases), "run": len(ran), "passed": sum(outcome["passed"] for outcome in ran),
        "seconds": round(sum(outcome["seconds"] for outcome in ran), 1), "groups": groups,
        **({"figures": figures} if figures else {}),
        "failures": [{key: outcome[key] for key in keys} for outcome in ran if not outcome["passed"]],
    }  # fmt: skip


def _counts(group: str, cases: list[dict[str, Any]], ran: list[dict[str, Any]]) -> dict[str, Any]:
    own = [outcome for outcome in ran if outcome["case"]["group"] == group]
    seen = Counter(outcome["seen"] for outcome in own if outcome["passed"])
    for outcome in own:
        seen.update(outcome.get("counted", {}))  # things that a case made or met, such as inputs
    planned = sum(case["group"] == group for case in cases)
    return {"planned": planned, "run": len(own), "passed": sum(outcome["passed"] for outcome in own), "seen": dict(seen.most_common())}


def recorded(section: str, first: int, seed: int, planned: int) -> dict[str, Any]:
    """Return the summary that is kept of the `first` cases of a section; end the process if it is of other cases."""
    result: dict[str, Any] = keep.read(THEME, section)
    found, wanted = tuple(result[key] for key in ("run", "seed", "planned")), (first, seed, planned)
    if found != wanted:
        sys.exit(f"{section}: the summary that is kept has (run, seed, planned) = {found}, and --after needs {wanted}")
    return result


def joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of two runs of one section, each of cases that the other one left out; `after` is the later run."""
    groups = {name: _added(before["groups"][name], counts) for name, counts in after["groups"].items()}
    figures = before.get("figures", {}) | after.get("figures", {})
    return {
        **after, "commits": sorted({*before["commits"], *after["commits"]}), "groups": groups,
        **{key: before[key] + after[key] for key in ("run", "passed", "failures")},
        "seconds": round(before["seconds"] + after["seconds"], 1),
        **({"figures": figures} if figures else {}),
    }  # fmt: skip


def _added(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    seen = Counter(before["seen"]) + Counter(after["seen"])
    ran = {key: before[key] + after[key] for key in ("run", "passed")}
    return {"planned": after["planned"], **ran, "seen": dict(seen.most_common())}


def record(section: str, result: dict[str, Any], command: str) -> None:
    """Write the summary of a section into `latest.json`, and the table of all sections into the pages."""
    parts = keep.load(THEME) if (keep.RESULTS / THEME / "latest.json").exists() else {}
    parts[section] = {"date": datetime.date.today().isoformat(), "command": command, "result": result}
    keep.write(THEME, parts)
    for page in PAGES:
        write_table(page, parts)


def write_table(page: Path, parts: dict[str, Any]) -> None:
    """Replace the table between the marks of a page."""
    made = table(parts)
    page.write_text(_TABLE.sub(lambda _: made, page.read_text()))


def table(parts: dict[str, Any]) -> str:
    """Return a row for each group of each section."""
    rows = ["| section | cases | planned | run | passed | seen | date | commit |", "|---|---|--:|--:|--:|---|---|---|"]
    for section, part in parts.items():
        commits = ", ".join(part["result"]["commits"])
        for group, counts in part["result"]["groups"].items():
            seen = "; ".join(f"{number:,} {what}" for what, number in counts["seen"].items())
            figures = " | ".join(f"{counts[key]:,}" for key in ("planned", "run", "passed"))
            rows.append(f"| {section} | {group} | {figures} | {seen or 'nothing yet'} | {part['date']} | {commits} |")
    return "\n".join(rows) + "\n"
