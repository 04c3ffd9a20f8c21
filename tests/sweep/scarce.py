"""Build `scarce_memory.cpp`, and talk to a process that it was preloaded into."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from emulation.host import compiled, compiler

from .child import Server

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
def starved() -> Server:
    """Return the process in which memory can be made scarce; it forks a child for each case, and bounds its time."""
    library = compiled(SOURCE, BUILT, FLAGS)
    paths = os.pathsep.join(path for path in sys.path if path)
    return Server(["-m", "sweep.starved"], LD_PRELOAD=str(library), PYTHONPATH=paths, OMP_WAIT_POLICY="passive")
