"""Measure where the processor's time of a run of the tests goes: `make test-times` runs all of them with this plugin of pytest.

It counts the user and system seconds of a worker and of the processes that it has waited for, by test, by fixture, and for start, imports
and collection apart. The controller writes one JSON with the sums of all workers.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from pathlib import Path

import launch
import pytest

MOST = 150


def spent() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def spent_with_forks() -> float:
    """Return the same with the ranks that the fork server has ended, which it is asked for."""
    return spent() + launch.SERVER.ask(alive="")["seconds"]


def pytest_addoption(parser):
    parser.addoption("--times", metavar="FILE", type=Path, help="write where the processor's time goes, as JSON")


def pytest_configure(config):
    if config.option.times:
        config.pluginmanager.register(Times(config))


class Times:
    """Seconds of one worker; on the controller, the sum over workers."""

    def __init__(self, config):
        self.start = spent()
        self.began = time.monotonic()
        self.collection = self.imports = 0.0
        self.tests, self.walls, self.long = {}, {}, []
        self.fixtures = defaultdict(lambda: [0, 0.0])
        self.within = [0.0]  # seconds of fixtures inside the one that is being set up
        self.workers = []

    def report(self):
        fixtures = {name: list(row) for name, row in self.fixtures.items()}
        return {"start": self.start, "imports": self.imports, "collection": self.collection - self.imports, "all": spent_with_forks(),
                "tests": self.tests, "walls": self.walls, "long": self.long, "fixtures": fixtures}  # fmt: skip

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self, session):
        before = spent()
        result = yield
        self.collection = spent() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makemodule(self, module_path, parent):
        module = yield
        original = module._getobj

        def timed():
            before = spent()
            try:
                return original()
            finally:
                self.imports += spent() - before

        module._getobj = timed
        return module

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not all(mark.kwargs for mark in item.iter_markers("long")):  # those of `quick` and `choice` depend on the run
            self.long.append(item.nodeid)
        before, began = spent_with_forks(), time.monotonic()
        result = yield
        self.tests[item.nodeid], self.walls[item.nodeid] = round(spent_with_forks() - before, 4), round(time.monotonic() - began, 3)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        before = spent()
        self.within.append(0.0)
        try:
            return (yield)
        finally:
            whole, inner = spent() - before, self.within.pop()
            self.within[-1] += whole
            row = self.fixtures[f"{fixturedef.baseid}::{fixturedef.argname}"]
            row[0], row[1] = row[0] + 1, row[1] + whole - inner

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["times"] = json.dumps(self.report())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        if "times" in getattr(node, "workeroutput", {}):
            self.workers.append(json.loads(node.workeroutput["times"]))

    def pytest_unconfigure(self, config):
        if not hasattr(config, "workerinput"):
            config.option.times.parent.mkdir(parents=True, exist_ok=True)
            found = summary(time.monotonic() - self.began, self.workers or [self.report()])
            config.option.times.write_text(json.dumps(found, indent=1) + "\n")
            print("\n".join(lines(found)))


def summary(wall: float, workers: list[dict]) -> dict:
    """Processor seconds of a run, in all and by file, function, test and fixture; of functions and fixtures the `MOST` that take most."""
    files, functions, tests, fixtures = defaultdict(_row), defaultdict(_row), {}, defaultdict(lambda: [0, 0.0])
    for worker in workers:
        long = set(worker["long"])
        for name, seconds in worker["tests"].items():
            tests[name] = {"cpu": seconds, "wall": worker["walls"][name], "long": name in long}
            for key, table in ((name.partition("::")[0], files), (name.partition("[")[0], functions)):
                table[key]["tests"] += 1
                table[key]["cpu"] += seconds
                table[key]["wall"] += worker["walls"][name]
        for name, (count, seconds) in worker["fixtures"].items():
            fixtures[name][0] += count
            fixtures[name][1] += seconds
    return {
        "wall": round(wall, 1),
        "cpu": round(sum(worker["all"] for worker in workers), 1),
        "workers": [{key: round(worker[key], 1) for key in ("start", "imports", "collection")} for worker in workers],
        "files": _most(files, len(files)),
        "functions": _most(functions),
        "tests": _most(tests, len(tests)),
        "fixtures": _most({name: {"count": count, "cpu": seconds} for name, (count, seconds) in fixtures.items()}),
    }


def _row() -> dict:
    return {"tests": 0, "cpu": 0.0, "wall": 0.0}


def _most(table: dict, count: int = MOST) -> dict:
    ordered = sorted(table.items(), key=lambda pair: -pair[1]["cpu"])[:count]
    return {name: {key: round(value, 2) for key, value in row.items()} for name, row in ordered}


def lines(found: dict) -> list[str]:
    """The largest rows of a summary, to be read."""
    shown = [f"{found['cpu']} processor seconds in {found['wall']} s"]
    shown += [f"worker {i}: start {row['start']}, imports of tests {row['imports']}, the rest of collection {row['collection']}"
              for i, row in enumerate(found["workers"])]  # fmt: skip
    for table in ("files", "functions", "fixtures"):
        shown += [f"{table}:", *(f"{row['cpu']:9.1f} s  {name}" for name, row in list(found[table].items())[:20])]
    return shown
