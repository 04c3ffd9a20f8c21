"""List the sections of `bench/on_a_card.sh`, in two calls: first whether all is right, then how fast it is.

A machine with a card may be lent for minutes. So each call has a limit, and each section one of its own; those of a call add up to no
more than its limit. Between the calls the machine can be given back, and what the first one found mended. Imports nothing but the
standard library, since the rest may be missing.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"1": 300.0, "2": 340.0, "": 1800.0}  # seconds of a call; of all sections
START = 15.0  # seconds to start a process that sections share: imports, the graphs, the device
BOTH, FIRST, SECOND, NEITHER = ("1", "2", ""), ("1", ""), ("2", ""), ("",)  # calls of a section
CUDA_TESTS = (  # the files that are about a card; tests marked cuda in others are covered by "samples"
    "backends/test_on_card.py", "training/cuda/test_on_a_card.py", "backends/test_device_features.py", "backends/test_quantise.py",
)  # fmt: skip
ALL_CUDA_TESTS = (
    "backends", "training/cuda", "samplers", "nn", "distributed/matrix/test_spgemm15d.py", "test_adjacency.py", "test_scipy_oracle.py",
)  # fmt: skip
LIBRARIES = ("torch_geometric", "dgl", "pylibcugraph", "quiver")  # sections of the benchmark that need a module of this name
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
    calls: tuple[str, ...] = BOTH  # those that it belongs to; the last is the one without a name, of all sections
    beside: bool = False  # runs beside those that follow; every call runs it again, on a machine that may be another
    stops: bool = False  # without it nothing else can run
    asked: str = ""  # what the process is asked, if sections with this command share one; it ends at an error of CUDA


def all_sections(out: Path) -> list[Section]:
    """List the sections of a card. A check writes what it finds to the file that FOUND names, the benchmark to gpu.json."""
    python = os.environ.get("PYTHON", sys.executable)

    def checks(name: str, seconds: float, *parts: str, calls: tuple[str, ...] = FIRST, **options: Any) -> Section:
        return Section(name, seconds, "checks.txt", [python, "-m", "gpu.checks", *(parts or (name,))], calls=calls, **options)

    def beside(name: str, seconds: float, *command: str, **options: Any) -> Section:
        return Section(name, seconds, "setup.txt", list(command), beside=True, **options)

    # Libraries ask the driver for what it may not have, and go on: calls that fail are no errors of kernels.
    quiet = ["--report-api-errors", "no"]

    def sanitizer(tool: str, seconds: float, calls: tuple[str, ...]) -> Section:
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9", *quiet]
        checked = [python, "-m", "gpu.checks", "unpooled"]
        whole = checked if _rehearses() else [*command, *checked]
        return Section(tool, seconds, "sanitizer.txt", whole, _no_program("compute-sanitizer"), calls=calls)

    def tests(name: str, seconds: float, paths: tuple[str, ...], calls: tuple[str, ...]) -> Section:
        side = ["-n", str(min(8, os.cpu_count() or 1)), "--dist", "worksteal"] if importlib.util.find_spec("xdist") else []
        words = shlex.split("-m pytest -o addopts= -v --tb=short -m cuda --maxfail=25 --continue-on-collection-errors -p no:cacheprovider")
        command = ["env", "ALL=1", python, *words, *side, *(f"tests/{path}" for path in paths)]
        return Section(name, seconds, "pytest.txt", command, _no_module("pytest", "hypothesis"), ("native",), calls)

    def bench(
        name: str, seconds: float, calls: tuple[str, ...] = SECOND, missing: str = "", needs: tuple[str, ...] = ("native", "products")
    ) -> Section:
        command = [python, "-m", "gpu.worker", str(out / "gpu.json")]
        return Section(f"gpu {name}", seconds, "bench.txt", command, missing, needs, calls, asked=name)

    both = ("native", "products", "R-MAT")
    build, compiler = ("bash", "-c", "build_native"), _no_program(os.environ.get("CXX", "g++"))
    return [
        checks("tools", 5, calls=BOTH),
        beside("native", 200, *build, missing=compiler),
        beside("libraries", 120, python, "-m", "gpu.hardware"),
        beside("products", 120, python, "-m", "gpu.inputs", "like-products"),
        beside("R-MAT", 120, python, "-m", "gpu.inputs", "rmat20", needs=("native",)),
        checks("compile", 12, calls=BOTH),
        checks("device", 15, calls=BOTH, stops=True),
        checks("launch", 10, calls=BOTH),
        sanitizer("memcheck", 35, FIRST),
        checks("samples", 35, needs=("native",)),
        checks("repeat", 30, needs=both),
        checks("memory", 10, needs=("native",)),
        checks("models", 28, needs=("native",)),
        checks("spin", 22, needs=("native",)),
        tests("pytest", 58, CUDA_TESTS, FIRST),
        bench("digests", 15, FIRST, needs=both),
        bench("sampling", 10, BOTH),
        bench("samplers", 25, needs=both),
        bench("copying", 8, needs=both),
        bench("sums", 10),
        bench("input_layer", 10),
        bench("traced", 28),
        bench("training", 50),
        bench("relations", 45),
        bench("numbering", 12),
        bench("baselines", 35),
        bench("counters", 50, missing=_no_program("ncu")),
        bench("bf16", 60, NEITHER),
        bench("sharing", 120, NEITHER),
        *(bench(name, 60, NEITHER, _no_module(name)) for name in LIBRARIES),
        sanitizer("racecheck", 240, NEITHER),
        tests("all tests marked cuda", 600, ALL_CUDA_TESTS, NEITHER),
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
    wanted = {*(only or (section.name for section in sections if call in section.calls)), *more}
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
