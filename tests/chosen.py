"""The plugin of pytest that runs what `choice` takes, tells what was put off, and where a failure is."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import date
from pathlib import Path

import choice
import launch
import pytest

LINES = 20  # of each rank's output in the summary
STATED = ("BULKSAMPLE_SWEEP", "BULKSAMPLE_DAY", "BULKSAMPLE_DATA", "OMP_NUM_THREADS")  # what changes a test, where it is set


def pytest_addoption(parser):
    parser.addoption("--to-clear", metavar="FILE", type=Path, help="failures of the parts of earlier days, which must pass now")


def pytest_configure(config):
    os.environ["BULKSAMPLE_DAY"] = str(choice.today())  # also of the workers, which may collect after midnight
    config.pluginmanager.register(Chosen(config), "choice of tests")


def told(report) -> str:
    """Return passed, skipped or failed, or part for a failure that only the date met."""
    return "part" if report.failed and "part" in getattr(report, "keywords", ()) else report.outcome


class Chosen:
    """The choice of one run; on the controller of several workers also its summary."""

    def __init__(self, config):
        self.config = config
        self.list = choice.ToClear.read(config.option.to_clear)
        self.base = self.list.before()
        self.counts = {"left": 0, "of_today": 0}
        self.outcomes = {}
        self.failed = []

    def pytest_collection_modifyitems(self, config, items):
        """Runs after the hook of conftest.py, which marks what is long, and before pytest's own, which reads the marks."""
        found = choice.choose(items, choice.changed(self.base), set(self.list.binding(self.base)))
        config.hook.pytest_deselected(items=found.left)
        items[:] = found.taken
        self.counts = {"left": len(found.left), "of_today": found.of_today}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        launch.ENDED.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed:
            report.sections += [(name, text) for ended in launch.ENDED for name, text in ended.printed.items()]
        return report

    def pytest_runtest_logreport(self, report):
        before = self.outcomes.get(report.nodeid, "passed")
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid] = told(report) if before in ("passed", "skipped") else before
        if report.failed:
            self.failed.append(report)

    def pytest_report_teststatus(self, report, config):
        return ("to clear", "C", "TO CLEAR") if told(report) == "part" else None

    def pytest_unconfigure(self):
        launch.SERVER.close()

    def pytest_sessionfinish(self, session, exitstatus):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["chosen"] = self.counts
            return
        only_parts = bool(self.failed) and all(told(report) == "part" for report in self.failed)
        if exitstatus == pytest.ExitCode.TESTS_FAILED and only_parts:
            exitstatus = session.exitstatus = pytest.ExitCode.OK
        ran = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if ran and self.list.path is not None and os.environ.get("CI"):
            head = choice.git("rev-parse", "HEAD") if exitstatus == pytest.ExitCode.OK else None
            self.list.write(self.base, self.outcomes, head)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.counts = getattr(node, "workeroutput", {}).get("chosen", self.counts)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        if any(self.counts.values()) and self.config.option.markexpr != "not long":
            change = f"the change since {self.base[:10]}" if self.base else "a change of unknown extent"
            write(f"part {choice.today() + 1} of {choice.DAYS}, by the date: {self.counts['of_today']} tests")
            write(f"put off, as neither {change} nor the day calls for them: {self.counts['left']} tests; ALL=1 runs them")
        for name in self.list.binding(self.base):
            write(f"had to be cleared: {name}: {self.outcomes.get(name, 'no test any more')}")
        for report in self.failed:
            self._tell(terminalreporter, report)

    def _tell(self, terminalreporter, report):
        """Tell where a failure is: the test, the seed and the command that repeat it, the end of what its ranks printed."""
        write = terminalreporter.write_line
        terminalreporter.section(f"TO CLEAR: {report.nodeid}" if told(report) == "part" else report.nodeid, "-", red=True)
        if told(report) == "part":
            write("only the part of the day met it: this change passes, the next one must clear it")
        write(f"repeat: {repeat(self.config, report.nodeid)}")
        write(f"seed: {seed(self.config)}; on {date.today()}")
        for name, text in report.sections:
            write(f"{name}, the last {LINES} lines:")
            for line in text.splitlines()[-LINES:]:
                write(f"    {line}")


def seed(config) -> str:
    """The seed of the order, in which alone two runs of the same commit differ."""
    return str(getattr(config.option, "randomly_seed", "none"))


def repeat(config, name: str) -> str:
    """The command that runs one test alone."""
    stated = {"ALL": "1", "BULKSAMPLE_DAY": str(choice.today())} | {key: os.environ[key] for key in STATED if key in os.environ}
    order = [f"--randomly-seed={seed(config)}"] if config.pluginmanager.hasplugin("randomly") else []
    words = [*(f"{key}={value}" for key, value in stated.items()), os.path.relpath(sys.executable, choice.ROOT)]
    return shlex.join([*words, "-m", "pytest", "-n", "0", "-m", "", *order, name])
