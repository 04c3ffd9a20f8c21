"""400 mutants of the package and of csrc/: small edits that short tests of the edited line must notice; at least 85 % are killed.

A mutant is killed if a test fails that passes without it, if the tests end the process, or if they take longer than the limit. A survivor
passes only with a reason in `survivors.json`, which may be the name of another test that kills it. The tests are the short ones that ran
the line, or called the extension that holds it, while the section `coverage` ran; the quickest case of each test function comes first, up
to 15 seconds of tests. Edits of the package are made in memory, edits of csrc/ in a copy of the extension.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from . import branches, native_edits, python_edits
from .child import Server
from .line_tests import ROOT, LineTests
from .mutant import Edit, drawn, named, order, source_of

REASONS = Path(__file__).with_name("survivors.json")
TESTED, LIMIT = 15.0, 120.0  # seconds of tests of a mutant, by their own time under coverage.py; seconds after which it counts as killed
IMPORTS = (
    "numpy", "scipy.sparse", "torch", "torch._dynamo", "pytest", "hypothesis", "pydantic", "yaml", "typer", "rich.console", "rich.table",
    "safetensors.torch", "xml.etree.ElementTree", "cProfile", "pdb",
)  # fmt: skip
_ALGEBRA = ("sparse", "selection", "rng", "graph", "minibatch", "adjacency", "loader")
STRATA = {
    "algebra": (80, tuple(f"bulksample/{name}.py" for name in _ALGEBRA)), "samplers": (50, ("bulksample/samplers/**/*.py",)),
    "distributed/matrix": (75, ("bulksample/distributed/matrix/**/*.py",)), "training": (80, ("bulksample/training/**/*.py",)),
    "methods": (85, ("bulksample/methods/**/*.py",)), "csrc": (30, ("csrc",)),
}  # fmt: skip


_reading = threading.Lock()  # of the data of `coverage`, one thread at a time


@cache
def edits(file: str) -> dict[str, Edit]:
    """Return all edits of a file by name."""
    return named(file, (python_edits if file.endswith(".py") else native_edits).edits(source_of(file)))


def cases(seed: int) -> list[dict[str, Any]]:
    """Return mutants of every stratum, shuffled, so that the first ones are a sample of all."""
    found = []
    for stratum, (count, patterns) in STRATA.items():
        paths = sorted({str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)})
        files = native_edits.files() if stratum == "csrc" else paths
        found += drawn(seed, stratum, {file: edits(file) for file in files}, count)
    return sorted(found, key=lambda case: order(seed, case["mutant"]))


def workers(case: dict[str, Any]) -> int:
    """Return 2 for mutants of the package, which run in pairs; those of csrc/ share a folder of objects."""
    return 2 if case["file"].endswith(".py") else 1


def survived(case: dict[str, Any]) -> bool:
    """True for a mutant that survived its short tests and has a reason, or a test that kills it."""
    return case["mutant"] in json.loads(REASONS.read_text())


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a mutant."""
    edit = edits(case["file"])[case["mutant"]]
    with _reading:
        tests = tests_of(case["file"], edit)
    found = {"seen": "no short test runs it", "tests": 0} if not tests else tried(case["file"], edit, tests)
    if found["seen"].startswith(("killed", "refused")):
        return {"passed": True, **found}
    reason = json.loads(REASONS.read_text()).get(case["mutant"])
    if reason is None:
        return {"passed": False, **found}
    if reason.startswith("tests/"):
        found = tried(case["file"], edit, [reason])
        return {"passed": found["seen"].startswith("killed"), **found, "seen": f"{found['seen']} by a named test"}
    return {**found, "passed": True, "seen": "survive, with a reason", "reason": reason}


def tried(file: str, edit: Edit, tests: list[str]) -> dict[str, Any]:
    """Return what tests say about an edit."""
    text = edit.applied(source_of(file))
    if file.endswith(".py"):
        request = {"module": module_of(file), "file": str(ROOT / file), "source": text}
    else:
        extension = native_edits.build(file, text)
        if isinstance(extension, str):
            return {"seen": "refused by the compiler", "said": extension}
        request = {"module": "bulksample._native", "file": str(extension)}
    said = server().ask({**request, "tests": tests, "seconds": LIMIT})
    about = {"tests": len(tests), "by": said["failed"]}
    if said["late"]:
        return {"seen": "killed by the limit of time", **about}
    if said["code"] in (0, 5):
        return {"seen": "survives" if said["code"] == 0 else "no test was found", **about}
    if said["failed"] and not passes(said["failed"].partition("::")[0] if said["code"] == 2 else said["failed"]):
        return {"seen": "a test fails without the mutant, too", **about}
    return {"seen": "killed", **about}


def module_of(file: str) -> str:
    """Return the name of the module of a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def passes(test: str) -> bool:
    """True if a test passes on the package as it is."""
    return bool(server().ask({"tests": [test], "seconds": LIMIT})["code"] == 0)


def tests_of(file: str, edit: Edit) -> list[str]:
    """Return the tests that may notice an edit, up to `TESTED` seconds of them."""
    measured = line_tests()
    if file.endswith(".py"):
        tests = measured.of(str(ROOT / file), range(edit.first, edit.last + 1))
    else:
        tests = measured.of(str(ROOT / "bulksample/backends/native.py"), lines_that_call(file))
    spent = 0.0

    def within(test: str) -> bool:
        nonlocal spent
        spent += measured.seconds[test]
        return spent <= TESTED

    return tests[:1] + list(takewhile(within, tests[1:]))


@cache
def line_tests() -> LineTests:
    """Return what the section `coverage` measured of the short tests."""
    folders = [branches.folder("short tests", part) for part in branches.parts()]
    if not branches.data_of(folders):
        sys.exit("mutants need to know which tests run a line: run `make sweep SECTION=coverage` first")
    return LineTests(folders)


@cache
def lines_that_call(file: str) -> list[int]:
    """Return the lines of the native back end that call functions which a file of csrc/ has a part in."""
    sources = [source for source in native_edits.sources() if file in native_edits.included(source)]
    names = [name for source in sources for name in re.findall(r'm\.def\("(\w+)"', source_of(source))]
    calls = re.compile(rf"_kernels\.({'|'.join(names)})\b")
    return [number for number, line in enumerate(source_of("bulksample/backends/native.py").splitlines(), 1) if calls.search(line)]


def started(root: Path, modules: tuple[str, ...]) -> Server:
    """Start a process that has imported all but the package, and forks for each request."""
    return Server([str(Path(__file__).with_name("mutant_server.py")), str(root), *modules])


_of_thread = threading.local()


def server() -> Server:
    """Return the process that runs tests of this repository; each thread has its own."""
    if not hasattr(_of_thread, "server"):
        _of_thread.server = started(ROOT, IMPORTS)
    own: Server = _of_thread.server
    return own
