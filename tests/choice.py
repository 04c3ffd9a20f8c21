"""The tests that a run takes: all of them with ``ALL=1``, else those that this change and this day call for.

- Tests of benchmarks, commands of pages, jobs, installs, kernels and of memory have declared inputs, `INPUTS`. If the
  change touches one of them or the test's own file, all cases run. Else they are put off: a test to the day of the week of its file, cases
  of one test to a day each.
- Of a product of parameters (one test with at least `LARGE` long cases), a seventh of the long cases runs, and at least one.
  They take turns by the day: all of them within a week of daily runs. All run if the change touches the test's own file.

The change is what lies between a commit of before, which git tells (`before_the_change`), and the files as they are.
A failure in the part of a day does not fail the run, unless the change touches the folder of the test or the package that it tests
(`tested_by`). It is reported and kept in a list (``--to-clear=FILE``). On the next change the tests of the list run in any case, and count.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALL = os.environ.get("ALL", "") not in ("", "0")
DAYS = 7
LARGE = 3  # long cases of one test that make a product
INPUTS = {  # by the beginning of a test's name: files and folders
    "tests/bench/": ("bench", "tests/bench", "tests/oracles"),
    "tests/sweep/": ("tests/sweep",),
    "tests/docs/test_pages.py::test_a_page_runs_as_it_is_shown": ("docs", "README.md", "bulksample/cli"),
    "tests/docs/test_kinds.py": ("bulksample", "docs/kinds.md", "tests/kinds_table.py"),
    "tests/docs/test_pages.py::test_the_pages_form_a_site_without_a_dead_link": ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    "tests/csrc/test_kernels.py::": ("csrc", "bulksample/backends/cuda"),
    "tests/emulation/": ("csrc", "tests/emulation", "bulksample/backends/cuda"),
    "tests/data/test_generate.py::test_memory_per_edge": ("bulksample/data",),
    "tests/data/test_ogb_memory.py": ("bulksample/data",),
    "tests/evaluation/test_streamed.py::test_memory_is": ("bulksample/evaluation", "bulksample/nn"),
    "tests/slurm/": ("slurm", "bulksample/cli"),
    "tests/test_install.py": (
        "setup.py", "pyproject.toml", "MANIFEST.in", "constraints.txt", "Dockerfile", ".ci", "csrc", "bulksample/backends/sources.py",
    ),
    "tests/test_imports.py": ("bulksample",),
    "tests/test_goldens.py": ("bulksample", "csrc", "tests/goldens.py", "tests/goldens.json", "tests/goldens.tar.xz"),
    "tests/docs/test_links.py": (
        "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench", "bulksample", "csrc", "examples", "slurm", "tests",
    ),
    "tests/relations/test_hubs_on_device.py": (
        "csrc", "tests/emulation", "tests/relation_bulks.py", "tests/relations_zoo.py", "bulksample/backends",
        "bulksample/samplers", "bulksample/local_adjacency.py", "bulksample/graph", "bulksample/rng.py",
    ),
    "tests/test_choice.py": (
        "tests/choice.py", "tests/chosen.py", "tests/launch.py", "tests/fork_server.py", "tests/forked_rank.py", "tests/waiting.py",
        "pyproject.toml",
    ),
    "tests/test_examples.py": ("examples", "bulksample/interop"),
    "tests/test_relational_example.py": ("examples", "bulksample/samplers", "bulksample/graph/minibatch.py", "bulksample/data/tables"),
    "tests/test_relational_layers.py": ("examples", "bulksample/samplers", "bulksample/graph/minibatch.py", "bulksample/interop"),
    "tests/test_relbench_example.py": ("examples", "bulksample/data/tables"),
}  # fmt: skip
MORE = {  # what a folder of tests is of, beside the package of its name
    "tests/options": ("bulksample/config", "bulksample/methods", "bulksample/cli"),
    "tests/backends": ("csrc",), "tests/samplers": ("csrc",),
    "tests/relations": (
        "csrc", "bulksample/samplers", "bulksample/backends", "bulksample/graph", "bulksample/local_adjacency.py",
        "bulksample/adjacency.py", "bulksample/loading",
    ),
}  # fmt: skip
HOURS = 8  # a change is made in less, so that a commit older than its last one by more was there before


def today() -> int:
    """The day, counted modulo a week; ``BULKSAMPLE_DAY`` chooses another."""
    return int(os.environ.get("BULKSAMPLE_DAY", time.time() // 86400)) % DAYS


def day_of(name: str) -> int:
    """The day of the week that the name of a file or of a test decides."""
    return zlib.crc32(name.encode()) % DAYS


def once_a_week(names) -> dict[str, frozenset[int]]:
    """Give each case of one test a day of its own, the eighth that of the first."""
    return {name: frozenset({(day_of(product_of(name)) + i) % DAYS}) for i, name in enumerate(sorted(names))}


def turns(names) -> dict[str, frozenset[int]]:
    """Give each case of one test its days: in a week each at least once, and on each day at least one."""
    step = min(len(names), DAYS)
    return {
        name: frozenset(day for day in range(DAYS) if (day + day_of(product_of(name))) % DAYS % step == i % step)
        for i, name in enumerate(sorted(names))
    }


def git(*words: str) -> str | None:
    """Return what git prints; None if it fails, or is not there."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def before_the_change(known: str | None = None) -> str | None:
    """The commit that the change is compared with, or None if git cannot tell.

    That is ``BULKSAMPLE_BASE``; else `known`, the last commit that passed here; else where the branch leaves ``origin/main``; else the
    newest commit that is `HOURS` older than the last one.
    """
    head = git("rev-parse", "HEAD")
    for name in (os.environ.get("BULKSAMPLE_BASE"), known):
        if name and git("merge-base", "--is-ancestor", name, "HEAD") is not None:
            return git("rev-parse", name)
    fork = git("merge-base", "HEAD", "origin/main")
    if fork and fork != head:
        return fork
    when = git("log", "-1", "--format=%ct")
    return (git("rev-list", "-1", "--first-parent", f"--before={int(when) - HOURS * 3600}", "HEAD") or None) if when else None


@cache
def changed(base: str | None) -> tuple[str, ...] | None:
    """Files that differ from the commit `base`, also those not yet committed; None if it is not known."""
    if base is None:
        return None
    differing, new = git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")
    return None if differing is None or new is None else tuple(sorted({*differing.split("\n"), *new.split("\n")} - {""}))


def touches(files: tuple[str, ...] | None, inputs) -> bool:
    """True if one of the files is an input or lies in one that is a folder, or if the files are not known."""
    return files is None or any(file == one or file.startswith(f"{one.rstrip('/')}/") for file in files for one in inputs)


def inputs_of(name: str) -> tuple[str, ...] | None:
    """The declared inputs of a test; None if it has none."""
    return next((inputs for begin, inputs in INPUTS.items() if name.startswith(begin)), None)


def file_of(item) -> str:
    return item.nodeid.partition("::")[0]


def tested_by(item) -> tuple[str, ...]:
    """The folder of a test, the package of that name, and what `MORE` names; tests which lie in no folder are of the whole package."""
    folder = file_of(item).rpartition("/")[0]
    return folder, f"bulksample{folder.removeprefix('tests')}", *MORE.get(folder, ())


@dataclass
class Choice:
    """The tests that a run takes, those that it leaves to other days, and how many it takes for the date alone."""

    taken: list = field(default_factory=list)
    left: list = field(default_factory=list)
    of_today: int = 0


def choose(items, files, listed=(), everything=ALL, day=None) -> Choice:
    """Divide tests into those that run and those put off; `files` are the changed ones, `listed` the names that run in any case.

    A test that runs for the date alone, and that the change does not touch, gets the mark ``part``.
    """
    day = today() if day is None else day
    products, days = defaultdict(list), {}
    for item in items:
        inputs = inputs_of(item.nodeid)
        unchanged = inputs is not None and not touches(files, (file_of(item), *inputs))
        if unchanged:
            item.add_marker(pytest.mark.long(unchanged=True))
        if hasattr(item, "callspec") and (unchanged or (inputs is None and item.get_closest_marker("long"))):
            products[product_of(item.nodeid), unchanged].append(item.nodeid)
        elif unchanged:
            days[item.nodeid] = frozenset({day_of(file_of(item))})
    for (_, unchanged), names in products.items():
        if unchanged or len(names) >= LARGE:
            days |= once_a_week(names) if unchanged else turns(names)
    choice = Choice()
    for item in items:
        when = days.get(item.nodeid)
        own = files is not None and file_of(item) in files
        if everything or item.nodeid in listed or own or when is None:
            choice.taken.append(item)
        elif day not in when:
            choice.left.append(item)
        else:
            choice.taken.append(item)
            choice.of_today += 1
            if files is not None and not touches(files, tested_by(item)):
                item.add_marker(pytest.mark.part)
    return choice


def product_of(name: str) -> str:
    """Return the name of a test without that of its case."""
    return name.partition("[")[0]


@dataclass
class ToClear:
    """Failures of earlier parts, which the next change must clear, in a file; ``passed`` is the last commit that passed here.

    A test counts from the change after the one that met it, so the file keeps with each name the commit before that change, and `base`,
    the commit before the change that passed last, for a run that repeats it.
    """

    path: Path | None
    passed: str | None = None
    base: str | None = None
    failures: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> ToClear:
        if path is None or not path.exists():
            return cls(path)
        held = json.loads(path.read_text())
        return cls(path, held["passed"], held["base"], held["failures"])

    def before(self) -> str | None:
        """Return the commit before the change that is tested now."""
        repeats = self.passed and self.passed == git("rev-parse", "HEAD") and not os.environ.get("BULKSAMPLE_BASE")
        return self.base if repeats else before_the_change(self.passed)

    def binding(self, base: str | None) -> list[str]:
        """The tests that must pass now."""
        return [name for name, found in self.failures.items() if found != base]

    def write(self, base: str | None, outcomes: dict[str, str], head: str | None) -> None:
        """Take in a run: new failures of its part; those that passed, and names that no test has any more, go."""
        gone = {name for name in self.binding(base) if outcomes.get(name, "passed") in ("passed", "skipped")}
        kept = {name: found for name, found in self.failures.items() if name not in gone and outcomes.get(name) != "passed"}
        new = {name: base for name, outcome in outcomes.items() if outcome == "part" and name not in kept}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        made = self.path.with_suffix(f".{os.getpid()}")
        passed = {"passed": head, "base": base} if head else {"passed": self.passed, "base": self.base}
        made.write_text(json.dumps({**passed, "failures": kept | new}, indent=1))
        made.replace(self.path)
