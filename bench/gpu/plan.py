"""The sections of `bench/on_a_card.sh`, in two calls: first whether all is right, then how fast it is.

A machine with a card may be lent for minutes. So each call has a limit, and each section one of its own; those of a call add up to no
more than its limit. Between the calls the machine can be given back, and what the first one found mended. Imports nothing but the
standard library, since the rest may be missing.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"1": 300.0, "2": 340.0, "": 1800.0}  # seconds of a call; of all sections
CUDA_TESTS = (  # the files that are about a card; tests marked cuda in others are covered by "samples"
    "backends/test_on_card.py", "training/cuda/test_on_a_card.py", "backends/test_device_features.py", "backends/test_quantise.py",
)  # fmt: skip
ALL_CUDA_TESTS = (
    "backends",
    "training/cuda",
    "samplers",
    "nn",
    "distributed/matrix/test_spgemm15d.py",
    "test_adjacency.py",
    "test_scipy_oracle.py",
)
PEERS = ("torch_geometric", "dgl", "pylibcugraph")  # sections of the benchmark that need a module of this name
TOOLS = (  # where the toolkit of CUDA keeps its programs: compute-sanitizer, ncu
    "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/compute-sanitizer*",
)  # fmt: skip


class Section(NamedTuple):
    """A command with a limit, or a request to a process that several sections share."""

    name: str
    seconds: float
    log: str
    command: list[str]
    missing: str = ""  # why it cannot run on this machine
    needs: tuple[str, ...] = ()  # sections that must have passed
    calls: str = "12"  # those that it belongs to; all sections are run if no call is named
    beside: bool = False  # runs beside those that follow; every call runs it again, on a machine that may be another
    stops: bool = False  # without it nothing else can run
    asked: str = ""  # what the process is asked, if sections with this command share one; it ends at an error of CUDA


def all_sections(out: Path) -> list[Section]:
    """List the sections of a card. A check writes what it finds to the file that FOUND names, the benchmark to gpu.json."""
    python = os.environ.get("PYTHON", sys.executable)

    def checks(name: str, seconds: float, *parts: str, calls: str = "1", **options: Any) -> Section:
        return Section(name, seconds, "checks.txt", [python, "-m", "gpu.checks", *(parts or (name,))], calls=calls, **options)

    def beside(name: str, seconds: float, *command: str, **options: Any) -> Section:
        return Section(name, seconds, "setup.txt", list(command), beside=True, **options)

    def sanitizer(tool: str, seconds: float, calls: str) -> Section:
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"]
        checked = [python, "-m", "gpu.checks", "unpooled"]
        whole = checked if _rehearses() else [*command, *checked]
        return Section(tool, seconds, "sanitizer.txt", whole, _no_program("compute-sanitizer"), calls=calls)

    def tests(name: str, seconds: float, paths: tuple[str, ...], calls: str) -> Section:
        side = ["-n", str(min(8, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") else []
        stops = ["--maxfail=25", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
        command = [python, "-m", "pytest", "-o", "addopts=", "-v", "-m", "cuda", *stops, *side, *(f"tests/{path}" for path in paths)]
        return Section(name, seconds, "pytest.txt", command, _no_module("pytest", "hypothesis"), ("native",), calls)

    def bench(name: str, seconds: float, calls: str = "2", missing: str = "", needs: tuple[str, ...] = ("products", "R-MAT")) -> Section:
        command = [python, "-m", "gpu.worker", str(out / "gpu.json")]
        return Section(f"gpu {name}", seconds, "bench.txt", command, missing, needs, calls, asked=name)

    build, compiler = ("bash", "-c", "build_native"), _no_program(os.environ.get("CXX", "g++"))
    return [
        checks("tools", 8, calls="12"),
        beside("native", 200, *build, missing=compiler),
        beside("products", 120, python, "-m", "gpu.graphs", "products"),
        beside("R-MAT", 120, python, "-m", "gpu.graphs", "skewed", needs=("native",)),
        checks("compile", 15, calls="12"),
        checks("device", 10, calls="12", stops=True),
        checks("launch", 12, calls="12"),
        checks("samples", 35),
        checks("repeat", 25, needs=("products", "R-MAT")),
        checks("memory", 20),
        checks("models", 30, needs=("native",)),
        checks("spin", 20, needs=("native",)),
        sanitizer("memcheck", 40, "1"),
        tests("pytest", 60, CUDA_TESTS, "1"),
        bench("digests", 10, "1"),
        bench("sampling", 15, "12"),
        bench("laws", 20),
        bench("copying", 10),
        bench("sums", 10),
        bench("traced", 30),
        bench("training", 40),
        bench("relations", 30),
        bench("numbering", 15),
        bench("baselines", 35),
        checks("counters", 60, calls="2", needs=("products",), missing=_no_program("ncu")),
        bench("bf16", 60, ""),
        bench("sharing", 120, "", needs=()),
        *(bench(name, 60, "", _no_module(name)) for name in PEERS),
        sanitizer("racecheck", 120, ""),
        tests("all tests marked cuda", 600, ALL_CUDA_TESTS, ""),
    ]


def sections_of(call: str, out: Path, only: list[str], more: list[str]) -> list[Section]:
    """Return the sections of a call and `more` of another, or only those that are named, and what these need.

    Raises
    ------
    ValueError
        If there is no such call or section.
    """
    sections = all_sections(out)
    if call not in LIMITS:
        raise ValueError(f"there is no call {call}; there are: {', '.join(name for name in LIMITS if name)}")
    if unknown := {*only, *more} - {section.name for section in sections}:
        raise ValueError(f"no section is called {', '.join(sorted(unknown))}; there are: {', '.join(one.name for one in sections)}")
    wanted = set(only) or {section.name for section in sections if call in section.calls or section.name in more}
    for section in reversed(sections):  # what a section needs stands before it
        wanted |= set(section.needs) if section.name in wanted else set()
    return [section for section in sections if section.name in wanted]


def with_tools(path: str) -> str:
    """Return a search path with the folders of `TOOLS` that exist behind it."""
    return os.pathsep.join([path, *(folder for pattern in TOOLS for folder in sorted(glob.glob(pattern), reverse=True))])


def _rehearses() -> bool:
    return bool(os.environ.get("REHEARSE"))


def _no_program(name: str) -> str:
    return "" if shutil.which(name) or _rehearses() else f"{name} is not on the path"


def _no_module(*names: str) -> str:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} cannot be imported" if missing else ""
