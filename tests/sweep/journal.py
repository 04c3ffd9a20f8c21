"""The journal of a section: one JSON line a case, so that an interrupted sweep goes on where it stopped."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from bulksample.version import __version__

_SOURCES = ("bulksample", "csrc")


def version(root: Path) -> str:
    """Return the version of the package and the last commit that changed it; "changed" marks a package that differs from that commit."""
    with suppress(OSError, subprocess.CalledProcessError):
        commit = _git(root, "log", "-1", "--abbrev=12", "--format=%h", "--", *_SOURCES)
        changed = " changed" if _git(root, "status", "--porcelain", "--", *_SOURCES) else ""
        return f"{__version__} {commit}{changed}"
    return __version__


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()


class Journal:
    """The outcomes of a section so far, kept in a file.

    Parameters
    ----------
    path : Path
    cases : list of JSON objects
        Outcomes of other cases are dropped.
    commit : str
        Outcomes of another commit are dropped.
    goes_on : bool
        Keep outcomes of other commits, and their names.
    again : bool
        Drop outcomes that failed.
    after : int
        Number of the first case that is wanted; outcomes of earlier ones are dropped.

    Attributes
    ----------
    outcomes : dict of case numbers to {"case", "passed", "seen", "seconds", "commit", ...}
    """

    def __init__(
        self, path: Path, cases: list[dict[str, Any]], commit: str, goes_on: bool = False, again: bool = False, after: int = 0
    ) -> None:
        self.path, self.cases, self.commit, self.after = path, cases, commit, after
        self.outcomes: dict[int, dict[str, Any]] = {}
        self._lock = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in _lines(path):
            number = line["number"]
            kept = (goes_on or line["commit"] == commit) and not (again and not line["passed"])
            if kept and after <= number < len(cases) and cases[number] == line["case"]:
                self.outcomes[number] = line
        path.write_text("".join(f"{json.dumps(line)}\n" for line in self.outcomes.values()))

    def add(self, number: int, outcome: dict[str, Any], seconds: float) -> None:
        """Append the outcome of a case; threads may call it at the same time."""
        about = {"number": number, "commit": self.commit, "seconds": round(seconds, 3), "case": self.cases[number]}
        with self._lock, self.path.open("a") as stream:
            self.outcomes[number] = {**about, **outcome}
            stream.write(f"{json.dumps(self.outcomes[number])}\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines; a killed sweep may leave half a line at the end."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
