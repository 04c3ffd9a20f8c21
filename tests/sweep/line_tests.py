"""Run tests under coverage.py and say which tests ran a line.

Every process that a test starts is measured too: forked children, subprocesses and the ranks of mpirun. The data of a part of the tests
are in `build/sweep/coverage/SET/PART`, with the seconds of each test that passed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sweep" / "coverage"
CONTEXTS = "BULKSAMPLE_SWEEP_TESTS"  # the file to which a run of pytest adds the tests that passed, with their seconds
_DATA, _TESTS = "branches", "tests.jsonl"
_SETTINGS = """[run]
branch = True
core = ctrace
parallel = True
source = {source}
data_file = {data}
patch = _exit, fork
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
"""


def run_tests(
    arguments: Iterable[str], folder: Path, seconds: float, source: Path = ROOT / "bulksample", root: Path = ROOT
) -> tuple[int, str]:
    """Run pytest under coverage and keep the data in a folder, which is emptied first; return the exit code and the output."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = folder / "settings.ini"
    settings.write_text(_SETTINGS.format(source=source, data=folder / _DATA))
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(root), os.environ.get("PYTHONPATH", "")])
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COVERAGE_"))}
    environment = {**outside, "COVERAGE_PROCESS_START": str(settings), CONTEXTS: str(folder / _TESTS), "PYTHONPATH": paths}
    command = [sys.executable, "-m", "pytest", "-p", "sweep.line_tests", "-p", "no:cacheprovider", *arguments]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=root, env=environment, start_new_session=True, preexec_fn=_heeds_interrupts, **streams) as running:
        try:
            out = running.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            return -1, running.communicate()[0]
    combined = Coverage(data_file=str(folder / _DATA), config_file=str(settings))
    combined.combine([str(folder)])
    combined.save()
    return running.returncode, out


def _heeds_interrupts() -> None:
    """Let SIGINT interrupt the tests of a sweep that runs in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def data_of(folders: Iterable[Path]) -> list[str]:
    """Return the files of data in folders."""
    return [str(folder / _DATA) for folder in folders if (folder / _DATA).exists()]


class LineTests:
    """The tests that ran a line, from the data of some folders.

    Parameters
    ----------
    folders : list of Path
    """

    def __init__(self, folders: list[Path]) -> None:
        self.data = []
        for path in data_of(folders):
            self.data.append(CoverageData(path))
            self.data[-1].read()
        self.seconds = {test: seconds for folder in folders for test, seconds in _passed(folder / _TESTS)}
        self._lines = cache(self._lines_of)

    def _lines_of(self, file: str) -> dict[int, set[str]]:
        found = defaultdict(set)
        for data in self.data:
            for line, contexts in data.contexts_by_lineno(file).items():
                found[line].update(contexts)
        return found

    def of(self, file: str, lines: Iterable[int]) -> list[str]:
        """Return the tests that ran one of some lines and passed, sorted."""
        by_line = self._lines(file)
        return self.sorted({context.rpartition(" (")[0] or context for line in lines for context in by_line.get(line, ())})

    def sorted(self, tests: set[str]) -> list[str]:
        """Return those that passed, the quickest case of every test function first, then its second, and so on."""
        cases = defaultdict(list)
        for test in sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
            cases[test.partition("[")[0]].append(test)
        turns = {test: turn for tests in cases.values() for turn, test in enumerate(tests)}
        return sorted(turns, key=lambda test: (turns[test], self.seconds[test], test))


def _passed(path: Path) -> Iterator[tuple[str, float]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        yield from json.loads(line).items()


# The rest is a plugin of pytest.


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let coverage.py note which test is running."""
    measuring = Coverage.current()
    if measuring is not None:
        measuring.switch_context(item.nodeid)
    yield
    if measuring is not None:
        measuring.switch_context("")


def _in_child() -> None:
    """Let a forked child count for the test that forked it."""
    measuring, test = Coverage.current(), os.environ.get("PYTEST_CURRENT_TEST", "")
    if measuring is not None and test:
        measuring.switch_context(test.rpartition(" (")[0])


if CONTEXTS in os.environ:
    os.register_at_fork(after_in_child=_in_child)

_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the seconds of a test that passed."""
    if "PYTEST_XDIST_WORKER" in os.environ or CONTEXTS not in os.environ:
        return  # the process that started the workers hears of all tests
    _seconds[report.nodeid] += report.duration
    if report.when == "call" and report.passed:
        with open(os.environ[CONTEXTS], "a") as stream:
            stream.write(json.dumps({report.nodeid: round(_seconds[report.nodeid], 3)}) + "\n")
