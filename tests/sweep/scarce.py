"""Build `scarce_memory.cpp`, and talk to a process that it was preloaded into."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from emulation.host import compiler

HERE = Path(__file__).parent
SOURCE = HERE / "scarce_memory.cpp"
BUILT = HERE.parents[1] / "build" / "scarce"
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-ldl"]


def missing() -> str:
    """Say what this section needs and does not find; nothing if it can run."""
    if not sys.platform.startswith("linux"):
        return "memory is made scarce by LD_PRELOAD and glibc, which are Linux's"
    return "" if compiler() else "there is no C++ compiler: install g++, or name one in CXX"


@cache
def library() -> Path:
    """Return the library to preload, compiled once for each state of its source.

    Raises
    ------
    RuntimeError
        If `missing` says why not.
    """
    if missing():
        raise RuntimeError(missing())
    built = BUILT / f"{hashlib.sha256(SOURCE.read_bytes() + repr(FLAGS).encode()).hexdigest()[:16]}.so"
    if not built.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        made = built.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler(), "-o", made, SOURCE, *FLAGS], check=True, timeout=300)
        made.replace(built)
    return built


class Starved:
    """A process in which memory can be made scarce; it answers one JSON line to another."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "LD_PRELOAD": str(library()), "PYTHONPATH": paths, "OMP_WAIT_POLICY": "passive"}
        command = [sys.executable, "-m", "sweep.starved"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a case; the process forks a child for each and bounds its time."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        asks.write(f"{json.dumps(case)}\n")
        asks.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer


@cache
def starved() -> Starved:
    """Return the process of this section; it ends with this one, whose end closes its input."""
    return Starved()
