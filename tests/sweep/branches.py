"""Branch coverage: the short tests run the package, then the long ones; at least 92 % of its lines and branches are run.

The tests run in parts, one for each folder of `tests/`. A last case combines their data, subprocesses and ranks included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coverage import Coverage

from .line_tests import FOLDER, ROOT, data_of, run_tests

LEAST = 92.0  # per cent of lines and branches
LOW = 80.0  # files below are listed
WORKERS = "2"
LONGEST = 3600.0  # seconds for a part
# Tests are long because they say so, or because `tests/quick.json` lets `make test` have others: those are short here.
SETS = {"short tests": "not long or long(measured=True)", "long tests": "long and not long(measured=True)"}
FIRST = (".", "samplers", "backends", "distributed", "training", "methods", "views", "nn", "data")  # the mutants need their data


def parts() -> list[str]:
    """Return the folders of `tests/` that hold tests, and "." for the tests beside them."""
    found = {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")}
    return [*FIRST, *sorted(found - set(FIRST))]


def cases(seed: int) -> list[dict[str, Any]]:
    """Return the parts of the short tests, the coverage of them all, and the same of the long tests added."""
    found = []
    for tests in SETS:
        found += [{"group": tests, "part": part} for part in parts()]
        found.append({"group": f"package, {'all' if tests == 'long tests' else tests.split()[0]} tests"})
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a part of the tests under coverage, or report on all parts."""
    if "part" in case:
        return _part(case["group"], case["part"])
    sets = list(SETS) if "all" in case["group"] else list(SETS)[:1]
    return reported(data_of(folder(tests, part) for tests in sets for part in parts()))


def folder(tests: str, part: str) -> Path:
    """Return the folder for the data of a part."""
    return FOLDER / tests.split()[0] / ("top" if part == "." else part)


def _part(tests: str, part: str) -> dict[str, Any]:
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py")) if part == "." else [f"tests/{part}"]
    arguments = ["-n", WORKERS, "--dist", "worksteal", "-m", SETS[tests], "--timeout", "900", *files]
    code, out = run_tests(arguments, folder(tests, part), LONGEST)
    return {"passed": code in (0, 5), "seen": "tests pass" if code in (0, 5) else f"exit code {code}: {out[-3000:]}"}


def reported(files: list[str]) -> dict[str, Any]:
    """Combine data and count, in total, by folder and for files below 80 %."""
    measured = Coverage(data_file=str(FOLDER / "combined"), branch=True, source=[str(ROOT / "bulksample")], config_file=False)
    measured.combine(files, keep=True)
    measured.json_report(outfile=str(FOLDER / "report.json"))
    found = json.loads((FOLDER / "report.json").read_text())["files"]
    counts = {str(Path(path).resolve().relative_to(ROOT)): file["summary"] for path, file in sorted(found.items())}
    folders: dict[str, list[dict[str, int]]] = {}
    for path, count in counts.items():
        folders.setdefault(str(Path(path).parent), []).append(count)
    whole = list(counts.values())
    figures = {
        "lines_and_branches": _per_cent(whole), "lines": _per_cent(whole, ("lines",)), "branches": _per_cent(whole, ("branches",)),
        "folders": {name: _per_cent(several) for name, several in folders.items()},
        "below_80": {path: share for path, count in counts.items() if (share := _per_cent([count])) < LOW},
    }  # fmt: skip
    total = figures["lines_and_branches"]
    return {"passed": total >= LEAST, "seen": f"package with {total:.1f} % of lines and branches run", "figures": figures}


_COUNTS = {"lines": ("covered_lines", "num_statements"), "branches": ("covered_branches", "num_branches")}


def _per_cent(counts: list[dict[str, int]], kinds: tuple[str, ...] = ("lines", "branches")) -> float:
    """Return how much of what there is in some files ran."""
    ran, there = (sum(count[_COUNTS[kind][which]] for count in counts for kind in kinds) for which in (0, 1))
    return round(100.0 * ran / there, 1) if there else 100.0
