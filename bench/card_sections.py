"""Run the sections of `bench/on_a_card.sh`, the most telling first, each in a process of its own with a limit.

One illegal address poisons a CUDA context for good, so no section shares a process with another. What is known is written to
OUT/on_a_card.json after every section, also when it is killed; its log goes to OUT. A call goes on where an earlier one with the same OUT
ended: sections that passed on the same sources are left out, those that never ran come first. The native back end is built and the
graphs of the benchmark are made beside the first sections. Imports nothing but the standard library, since the rest may be missing.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from card_files import digest_of_sources, earlier_sections, read, shorten

HERE = Path(__file__).resolve().parent
LONGEST_ERROR = 200  # characters of an error on the terminal; on_a_card.json has all of it
LARGEST_LOG = 4 << 20  # bytes; of a longer one the first quarter and the last three are kept
LEAST = 5.0  # seconds in which a section is begun
CUDA_TESTS = (  # files and folders with tests marked cuda; to collect all the others takes too long
    "backends", "training/cuda", "samplers", "nn", "distributed/matrix/test_spgemm15d.py", "test_adjacency.py", "test_scipy_oracle.py",
)  # fmt: skip
BENCHMARK = ("digests", "sampling", "numbering", "copying", "training", "relations", "layers", "baselines", "sharing", "sums")  # of gpu.py
TOOLS = (  # where the toolkit of CUDA keeps its programs: compute-sanitizer, ncu
    "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/compute-sanitizer*",
)  # fmt: skip
PEERS = ("torch_geometric", "dgl", "pylibcugraph")  # sections of gpu.py that need a module of this name


class Section(NamedTuple):
    """A command with a limit."""

    name: str
    seconds: float
    log: str
    command: list[str]
    missing: str = ""  # why it cannot run on this machine
    needs: tuple[str, ...] = ()  # sections that must have passed
    beside: bool = False  # runs beside those that follow; every call runs it again, on a machine that may be another
    stops: bool = False  # without it nothing else can run


def all_sections(out: Path) -> list[Section]:
    """List the sections of a card. A section writes what it finds to the file that FOUND names."""
    python, cache = os.environ.get("PYTHON", sys.executable), os.environ.get("XDG_CACHE_HOME", "/tmp")

    def checks(name: str, seconds: float, *more: str, **options: Any) -> Section:
        return Section(name, seconds, "checks.txt", [python, str(HERE / "on_a_card.py"), name, *more], **options)

    def sanitizer(tool: str) -> Section:
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"]
        checked = [python, str(HERE / "on_a_card.py"), "samples", "--small", "--no-pool"]
        return Section(tool, 75, "sanitizer.txt", [*command, *checked], _no_program("compute-sanitizer"))

    side = ["-n", "6"] if importlib.util.find_spec("xdist") else []
    paths = [f"tests/{path}" for path in CUDA_TESTS]
    stops = ["--maxfail=25", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    tests = [python, "-m", "pytest", "-o", "addopts=", "-v", "-m", "cuda", *stops, *side, *paths]
    gpu = [python, str(HERE / "gpu.py"), "--graphs", cache]
    return [
        checks("tools", 30),
        Section("native", 200, "setup.txt", ["bash", "-c", "build_native"], _no_program(os.environ.get("CXX", "g++")), beside=True),
        Section("graphs", 120, "setup.txt", [*gpu, "--make-graphs"], needs=("native",), beside=True),
        checks("compile", 90),
        checks("device", 30, stops=True),
        checks("launch", 30),
        checks("samples", 75),
        checks("memory", 45),
        checks("models", 75, needs=("native",)),
        sanitizer("memcheck"),
        sanitizer("racecheck"),
        Section("pytest", 120, "pytest.txt", tests, _no_module("pytest", "hypothesis"), ("native",)),
        *(
            Section(f"gpu {name}", 60, "bench.txt", [*gpu, "--only", name, "--json", str(out / "gpu.json")], needs=("graphs",))
            for name in BENCHMARK
        ),
        *(
            Section(f"gpu {name}", 60, "bench.txt", [*gpu, "--only", name, "--json", str(out / "gpu.json")], _no_module(name), ("graphs",))
            for name in PEERS
        ),
    ]


def with_tools(path: str) -> str:
    """Return a search path with the folders of `TOOLS` that exist behind it."""
    return os.pathsep.join([path, *(folder for pattern in TOOLS for folder in sorted(glob.glob(pattern), reverse=True))])


def _no_program(name: str) -> str:
    return "" if shutil.which(name) else f"{name} is not on the path"


def _no_module(*names: str) -> str:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} cannot be imported" if missing else ""


class Run:
    """Runs sections, and keeps what is known of each in a file.

    Parameters
    ----------
    out : Path
    limit : float
        Seconds for all sections together.
    """

    def __init__(self, out: Path, limit: float) -> None:
        self.out, self.file, self._deadline = out, out / "on_a_card.json", time.monotonic() + limit
        self._lock, self._processes = threading.Lock(), list[subprocess.Popen[bytes]]()
        self._stopped, self._starting = False, False
        self._signal: int | None = None
        self.known: dict[str, dict[str, Any]] = earlier_sections(self.file)
        self._sources = digest_of_sources()

    def run(self, sections: list[Section]) -> int:
        """Run the sections that have not passed; return the exit code of `on_a_card.sh`."""
        for section in sections:
            if section.beside:
                self.known.pop(section.name, None)
        lane = threading.Thread(target=lambda: [self._one(section) for section in sections if section.beside], daemon=True)
        self._beside = lane if any(section.beside for section in sections) else None
        if self._beside:
            lane.start()
        left = [section for section in sections if not section.beside and (section.stops or not self._passed(section.name))]
        code = 0
        try:
            for section in sorted(left, key=lambda section: "code" in self.known.get(section.name, {}) and not section.stops):
                if not self._one(section) and section.stops:
                    code = 2
                    break
            if self._beside and not code:
                self._beside.join(max(0.0, self._deadline - time.monotonic()))
        finally:
            self._end(sections)
        return code or int(not all(self._passed(section.name) for section in sections))

    def _passed(self, name: str) -> bool:
        result = self.known.get(name, {})
        return result.get("state") == "passed" and result.get("sources") == self._sources

    def _one(self, section: Section) -> bool:
        """Run a section if it can run; return whether it passed."""
        reason = f"missing: {section.missing}" if section.missing else self._waited(section.needs)
        limit = min(section.seconds, self._deadline - time.monotonic())
        if limit < LEAST:
            reason = reason or "not run: no time left"
        if reason or self._stopped:
            self._leave_out(section.name, reason or "not run: stopped")
            return False
        self._tell(section.name, {"state": "running", "log": section.log})
        with tempfile.TemporaryDirectory() as folder:
            found, began = Path(folder) / "found.json", time.monotonic()
            code = self._process(section, limit, {**os.environ, "FOUND": str(found)})
            result = {"state": _state(code, limit), "code": code, "seconds": round(time.monotonic() - began, 2)}
            own = {"log": section.log, "sources": self._sources, "command": section.command}
            self._tell(section.name, {**result, **own, **({"found": read(found)} if found.exists() else {})})
        shorten(self.out / section.log, LARGEST_LOG)
        return code == 0

    def _leave_out(self, name: str, reason: str) -> None:
        """Note why a section is not run; what an earlier call found stays."""
        if "code" in self.known.get(name, {}):
            print(f"{name}: {reason}; before: {self.known[name]['state']}", flush=True)
        else:
            self._tell(name, {"state": reason})

    def _waited(self, needs: tuple[str, ...]) -> str:
        """Wait for sections that run beside; return why those that are needed are missing, or nothing."""
        for name in needs:
            while self._beside and self._beside.is_alive() and self.known.get(name, {}).get("state") in (None, "running"):
                if threading.current_thread() is self._beside or time.monotonic() > self._deadline:
                    break
                self._beside.join(0.2)
            if not self._passed(name):
                return f"not run: it needs {name}, which has not passed"
        return ""

    def stop(self, number: int, frame: object) -> None:
        """End the run at a signal: exit in the main thread, but not before a process that it starts is known."""
        self._signal = number
        if not self._starting:
            sys.exit(128 + number)

    def _process(self, section: Section, limit: float, environment: dict[str, str]) -> int | None:
        """Run the command in a session of its own; return its exit code, or None if it was ended at its limit."""
        with (self.out / section.log).open("ab") as log:
            log.write(f"\n== {section.name}, at most {limit:.0f} s\n".encode())
            log.flush()
            signalled = threading.current_thread() is threading.main_thread()
            self._starting |= signalled
            process = subprocess.Popen(section.command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            self._processes.append(process)
            if signalled:
                self._starting = False
                if self._signal:
                    sys.exit(128 + self._signal)
            if self._stopped:  # since the section was chosen; `_end` may not have seen it
                _end_group(process)
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end_group(process)
                self._processes.remove(process)

    def _tell(self, name: str, result: dict[str, Any]) -> None:
        with self._lock:
            self.known[name] = result
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps({"sources": self._sources, "sections": self.known}, indent=1, default=str) + "\n")
            part.replace(self.file)
        if result["state"] != "running":
            print(f"{name}: {result['state']}{_brief(result)}", flush=True)

    def _end(self, sections: list[Section]) -> None:
        """End what runs beside, and name the sections that were not run."""
        self._stopped = True
        for process in list(self._processes):
            _end_group(process)
        if self._beside:
            self._beside.join(15)
        for section in sections:
            if self.known.get(section.name, {}).get("state") in (None, "running"):
                self._leave_out(section.name, "not run: stopped")


def _state(code: int | None, limit: float) -> str:
    return "passed" if code == 0 else f"ended at its limit of {limit:.0f} s" if code is None else f"failed: exit {code}"


def _brief(result: dict[str, Any]) -> str:
    """Name the checks that failed, and each error once, for the terminal."""
    found, failed = result.get("found"), dict[str, list[str]]()
    for name, check in found.items() if isinstance(found, dict) else ():
        if isinstance(check, dict) and "error" in check:
            failed.setdefault(str(check["error"]).partition("\n")[0][:LONGEST_ERROR], []).append(name)
    told = [f"\n  failed: {', '.join(names)}: {error}" for error, names in failed.items()]
    return (f" ({result['seconds']} s)" if "seconds" in result else "") + "".join(told)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a session of processes: SIGTERM, and after five seconds SIGKILL."""
    for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def main() -> None:
    out, began = Path(os.environ["OUT"]), time.monotonic()
    os.environ["PATH"] = with_tools(os.environ["PATH"])
    wanted = os.environ.get("SECTIONS")
    sections, names = all_sections(out), [name.strip() for name in wanted.split(",")] if wanted else []
    if unknown := set(names) - {section.name for section in sections}:
        there = ", ".join(section.name for section in sections)
        print(f"no section is called {', '.join(sorted(unknown))}; there are: {there}", flush=True)
        sys.exit(1)
    sections = [section for section in sections if not names or section.name in names]
    out.mkdir(parents=True, exist_ok=True)
    run = Run(out, float(os.environ.get("LIMIT", "570")))
    signal.signal(signal.SIGTERM, run.stop)  # so that no section is left behind
    code = run.run(sections)
    left = [name for section in sections if not run._passed(name := section.name)]
    print(f"{'all well' if not left else 'NOT WELL: ' + ', '.join(left)}; {time.monotonic() - began:.0f} s; see {run.file}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
