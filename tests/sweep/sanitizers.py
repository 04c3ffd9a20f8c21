"""Sanitizers of g++: the extension and the emulated kernels under ASan and UBSan, threads under ThreadSanitizer; a report fails.

The extension is built anew, in `build/sanitizers`. ASan and UBSan watch the tests of primitives, samplers and loader on the zoo of
graphs, larger operations, and every emulated kernel. ThreadSanitizer watches operations of four threads: kernels, crews, loaders, and all
at once. Leaks are not looked for: Python leaves memory behind. `allocations` looks for those of the extension.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from zoo import ZOO

from . import sanitized_build as build
from .operations import PARALLEL

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 3000.0  # seconds for a case on a busy machine
TESTS = {  # of the extension, and which of them, the quickest first
    "tests/backends/test_spgemm.py": "native", "tests/backends/test_primitives.py": "native", "tests/test_scipy_oracle.py": "native",
    "tests/backends/test_quantise.py": "native", "tests/relations/test_native.py": "native", "tests/relations/test_time.py": "",
    "tests/test_loader.py": "", "tests/backends/test_expand.py": "native or share", "tests/samplers/test_limits.py": "native",
    "tests/samplers/test_identities.py": "native",
}  # fmt: skip
REPORT = re.compile(r"ERROR: AddressSanitizer|runtime error: |WARNING: ThreadSanitizer|DEADLYSIGNAL")
NATIVE, THREADED, EMULATED = "native, ASan and UBSan", "threads, ThreadSanitizer", "emulated kernels, ASan and UBSan"


def cases(seed: int) -> list[dict[str, Any]]:
    """Return the work to be watched; the seed changes nothing."""
    tests = [{"group": NATIVE, "sanitizer": "address", "tests": file, "chosen": chosen} for file, chosen in TESTS.items()]
    threaded = [{"group": THREADED, "sanitizer": "thread", "work": ["native", name]} for name in PARALLEL]
    larger = [{"group": NATIVE, "sanitizer": "address", "work": ["native", name]} for name in PARALLEL]
    kernels = [{"group": EMULATED, "sanitizer": "address", "work": ["emulated", graph]} for graph in ZOO]
    return [*threaded, *larger, *tests, *kernels]  # in the order of their cost


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Do the work of a case in a process of its own."""
    if missing := build.missing(case["sanitizer"]):
        return {"passed": False, "seen": missing}
    work = ["-m", "sweep.watched", *case["work"]] if "work" in case else _pytest(case["tests"], case["chosen"])
    try:
        return judged(watched(case["sanitizer"], work))
    except subprocess.TimeoutExpired:
        return {"passed": False, "seen": f"no answer within {DEADLINE:.0f} s"}


def _pytest(file: str, chosen: str) -> list[str]:
    plugins = ["-p", "sweep.sanitized_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return ["-m", "pytest", *plugins, "--timeout=0", *(("-k", chosen) if chosen else ()), file]


def watched(sanitizer: str, work: list[str]) -> subprocess.CompletedProcess[str]:
    """Run Python under a sanitizer."""
    environment = {
        **os.environ, "LD_PRELOAD": str(build.runtime(sanitizer)), "SANITIZED_EXTENSION": str(build.extension(sanitizer)),
        "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1",
        "PYTHONMALLOC": "malloc", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }  # fmt: skip
    still = ["setarch", "-R"] if sanitizer == "thread" else []  # ThreadSanitizer needs addresses that are not randomized
    return subprocess.run([*still, sys.executable, *work], capture_output=True, text=True, timeout=DEADLINE, env=environment, cwd=ROOT)


def judged(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the outcome: a report, a failure or the lack of any test fails."""
    said = done.stdout + done.stderr
    if report := REPORT.search(said):
        return {"passed": False, "seen": said[report.start() :][:3000]}
    passed = re.search(r"(\d+) passed", said)
    if done.returncode or not passed or not int(passed[1]):
        return {"passed": False, "seen": f"exit code {done.returncode}: {said[-3000:]}"}
    return {"passed": True, "seen": "no report", "tests": int(passed[1])}
