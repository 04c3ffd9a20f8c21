"""Run the sections of `plan`, the most telling first.

One illegal address poisons a CUDA context for good, so each check has a process of its own, and the benchmark one that is started anew
after such an error. What is known is written to OUT/on_a_card.json after every section, also when it is killed; its log goes to OUT. A
call goes on where an earlier one with the same OUT ended: sections that passed on the same sources are left out, those that never ran
come first. The native back end is built and the graphs are made beside the first sections. Imports nothing but the standard library,
since the rest may be missing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .files import digest_of_sources, earlier, earlier_sections, read, shorten, write
from .goals import table
from .plan import LIMITS, ROOT, START, Section, sections_of, with_tools
from .worker import OPEN, Worker, end_group

LONGEST_ERROR = 200  # characters of an error on the terminal; on_a_card.json has all of it
LONGEST_TABLE = 60  # lines at the end
LARGEST_LOG = 4 << 20  # bytes; of a longer one the first quarter and the last half are kept
LEAST = 2.0  # seconds in which a section is begun


class Run:
    """Runs sections, and keeps what is known of each in a file.

    Parameters
    ----------
    out : Path
    limit : float
        Seconds for all sections together.
    patience : float
        A factor for the limits of sections.
    """

    def __init__(self, out: Path, limit: float, patience: float = 1.0) -> None:
        self._patience = max(1.0, patience)
        self.out, self.file, self._deadline = out, out / "on_a_card.json", time.monotonic() + limit
        self._lock, self._processes = threading.Lock(), list[subprocess.Popen[bytes]]()
        self._workers: dict[tuple[str, ...], Worker] = {}
        self._late: set[tuple[str, ...]] = set()  # commands of processes that did not start in time
        self._granted = time.monotonic()
        self._stopped, self._starting = False, False
        self._signal: int | None = None
        self.known: dict[str, dict[str, Any]] = earlier_sections(self.file)
        self._sources = digest_of_sources()

    def run(self, sections: list[Section]) -> int:
        """Run the sections that have not passed; return the exit code of `on_a_card.sh`."""
        for section in sections:
            if section.beside:
                self.known.pop(section.name, None)
        self._beside = {one.name: threading.Thread(target=self._one, args=[one], daemon=True) for one in sections if one.beside}
        for lane in self._beside.values():
            lane.start()
        left = [section for section in sections if not section.beside and (section.stops or not self.passed(section.name))]
        self._granted += self._unallocated(left)
        code = 0
        try:
            for section in sorted(left, key=lambda section: "code" in self.known.get(section.name, {}) and not section.stops):
                if not self._one(section) and section.stops:
                    code = 2
                    break
            for lane in self._beside.values() if not code else ():
                lane.join(max(0.0, self._deadline - time.monotonic()))
        finally:
            self._end(sections)
        return code or int(not all(self.passed(section.name) for section in sections))

    def _unallocated(self, left: list[Section]) -> float:
        """Return the seconds of this call that the limits of its sections leave: the first ones may need them to wait for what is built."""
        limits = sum(section.seconds for section in left) + START * any(section.asked for section in left)
        return max(0.0, self._deadline - time.monotonic() - self._patience * limits)

    def passed(self, name: str) -> bool:
        """True if a section passed on these sources, in this call or an earlier one."""
        result = self.known.get(name, {})
        return result.get("state") == "passed" and result.get("sources") == self._sources

    def _one(self, section: Section) -> bool:
        """Run a section if it can run; return whether it passed.

        It may also take the seconds that earlier ones were granted and did not need, and has half of its own in any case.
        """
        seconds = self._patience * section.seconds
        if not section.beside:
            self._granted += seconds
        until = self._deadline if section.beside else self._granted
        reason = f"missing: {section.missing}" if section.missing else self._waited(section.needs, until)
        now = time.monotonic()
        limit = min(seconds if section.beside else max(seconds / 2, self._granted - now), self._deadline - now)
        if section.asked and tuple(section.command) in self._late:
            reason = reason or "not run: the process that it shares does not start"
        if limit < LEAST:
            reason = reason or "not run: no time left"
        if reason or self._stopped:
            self._leave_out(section.name, reason or "not run: stopped")
            return False
        self._tell(section.name, {"state": "running", "log": section.log})
        with tempfile.TemporaryDirectory() as folder:
            found, began = Path(folder) / "found.json", time.monotonic()
            environment = {**os.environ, "FOUND": str(found)}
            code = self._ask(section, limit) if section.asked else self._process(section, limit, environment)
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

    def _waited(self, needs: tuple[str, ...], until: float) -> str:
        """Wait for sections that run beside, no longer than was granted; return why those that are needed are missing, or nothing."""
        for name in needs:
            while (
                (lane := self._beside.get(name)) and lane.is_alive() and not self._stopped and time.monotonic() < min(until, self._deadline)
            ):
                lane.join(0.2)
            if not self.passed(name):
                return f"not run: it needs {name}, which has not passed"
        return ""

    def stop(self, number: int, frame: object) -> None:
        """End the run at a signal: exit in the main thread, but not before a process that it starts is known."""
        self._signal = number
        if not self._starting:
            sys.exit(128 + number)

    @contextmanager
    def _known_before_signals(self) -> Iterator[None]:
        """Return a context in which a signal waits, so that a process that starts is known, and ended with the others."""
        in_main = threading.current_thread() is threading.main_thread()
        self._starting |= in_main
        try:
            yield
        finally:
            if in_main:
                self._starting = False
        if in_main and self._signal:
            sys.exit(128 + self._signal)

    def _process(self, section: Section, limit: float, environment: dict[str, str]) -> int | None:
        """Run the command in a session of its own; return its exit code, or None if it was ended at its limit."""
        with (self.out / section.log).open("ab") as log:
            log.write(f"\n== {section.name}, at most {limit:.0f} s\n".encode())
            log.flush()
            with self._known_before_signals():
                process = subprocess.Popen(section.command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
                self._processes.append(process)
            if self._stopped:  # since the section was chosen; `_end` may not have seen it
                end_group(process)
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                end_group(process)
                self._processes.remove(process)

    def _ask(self, section: Section, limit: float) -> int | None:
        """Ask the process that this section shares with others, and start one if there is none; one that is late is ended."""
        key, log, began = tuple(section.command), self.out / section.log, time.monotonic()
        with log.open("ab") as file:
            file.write(f"\n== {section.name}, at most {limit:.0f} s\n".encode())
        code: int | None = 0
        if key not in self._workers:
            with self._known_before_signals():
                self._workers[key] = Worker(section.command, log)
            code = self._workers[key].ask(OPEN, max(LEAST, min(3 * START * self._patience, self._deadline - began)))
            self._granted += time.monotonic() - began  # what a start takes is taken from no section
            if code is None:
                self._late.add(key)
        worker = self._workers[key]
        if code == 0:
            code = worker.ask(section.asked, min(limit, self._deadline - time.monotonic()))
        if code is None or worker.broken:
            self._workers.pop(key).close()
        return code

    def _tell(self, name: str, result: dict[str, Any]) -> None:
        with self._lock:
            self.known[name] = result
            write(self.file, {"sources": self._sources, "sections": self.known})
        if result["state"] != "running":
            print(f"{name}: {result['state']}{_brief(result)}", flush=True)

    def _end(self, sections: list[Section]) -> None:
        """End what runs beside, and name the sections that were not run."""
        self._stopped = True
        for process in list(self._processes):
            end_group(process)
        for worker in self._workers.values():
            worker.close()
        for lane in self._beside.values():
            lane.join(15)
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


def last_lines(run: Run, sections: list[Section]) -> list[str]:
    """Return what is to be known of a call in at most `LONGEST_TABLE` lines: figures beside their goals, then what is not well."""
    goals = {name: line for name, line in earlier(run.out / "gpu.json").get("goals", {}).items() if line != "not measured"}
    states = [
        f"{section.name}: {run.known.get(section.name, {}).get('state', 'not run')}" for section in sections if not run.passed(section.name)
    ]
    figures = table(goals) if goals else []
    room = max(0, LONGEST_TABLE - len(states) - 2)
    cut = [f"... and {len(figures) - room} more in gpu.json"] if len(figures) > room else []
    return [*figures[:room], *cut, *states]


def seconds_of(text: str) -> float:
    """Read a limit; raises `ValueError` unless it is a positive number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"LIMIT is {text!r}; use a number of seconds")
    return seconds


def main() -> None:
    out, began = Path(os.environ["OUT"]), time.monotonic()
    os.environ["PATH"] = with_tools(os.environ["PATH"])
    os.chdir(ROOT)
    call, only, more = (os.environ.get(name, "") for name in ("CALL", "SECTIONS", "MORE"))
    try:
        sections = sections_of(call, out, *([name.strip() for name in names.split(",") if name.strip()] for names in (only, more)))
        limit = seconds_of(os.environ.get("LIMIT") or str(LIMITS[call]))
    except ValueError as error:
        print(error, flush=True)
        sys.exit(1)
    run = Run(out, limit, limit / LIMITS[call])
    signal.signal(signal.SIGTERM, run.stop)  # so that no section is left behind
    code = run.run(sections)
    for line in last_lines(run, sections):
        print(line)
    left = [section.name for section in sections if not run.passed(section.name)]
    print(f"{'all well' if not left else 'NOT WELL: ' + ', '.join(left)}; {time.monotonic() - began:.0f} s; see {run.file}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
