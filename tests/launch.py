"""Real processes as ranks for tests, with a deadline and nothing left behind."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
_BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun")
_MARK = "BULKSAMPLE_LAUNCH"  # in the environment of every process of a launch
_numbers = itertools.count()


@dataclass
class Ended:
    """The exit code of a launch, its output and its seconds."""

    code: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.1f} s\n--- out\n{self.out}\n--- err\n{self.err}"


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node"]


def run_ranks(n, what, env=None, launcher="mpirun"):
    """Run `what` on n ranks: Python source, or a list of arguments after ``python``. The launcher is mpirun or torchrun.

    Fails the test, with everything that was printed, if the launch does not end within `PATIENCE`, or if any process that it
    started stays alive afterwards.
    """
    return Ranks(n, what, env, launcher).wait()


class Ranks:
    """A launch that is under way; `wait` ends it."""

    def __init__(self, n, what, env=None, launcher="mpirun"):
        if launcher == "mpirun" and (MPIRUN is None or n == 0):
            pytest.skip("no mpirun: pip install mpich would bring one")
        start = [MPIRUN, "-n"] if launcher == "mpirun" else TORCHRUN
        command = [*start, str(n), sys.executable, *(["-c", what] if isinstance(what, str) else what)]
        folders = [path for path in sys.path if Path(path).is_relative_to(ROOT / "tests")]  # a program may import its test's module
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *folders])
        self.mark = f"{_MARK}={os.getpid()}-{next(_numbers)}"
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", _MARK: self.mark.split("=")[1], **(env or {})}
        self.began = time.monotonic()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, **streams)

    def wait(self, patience=PATIENCE):
        """Return how the launch ended; the deadline is another for a launch that is long by design, as those of `make sweep`."""
        try:
            out, err = self.process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
            self._kill()
            out, err = self.process.communicate()
            pytest.fail(f"{patience:.0f} s were not enough\n--- out\n{out}\n--- err\n{err}")
        ended = Ended(self.process.returncode, out, err, time.monotonic() - self.began)
        if orphans := self._orphans():
            self._kill()
            pytest.fail(f"processes were left behind: {orphans}\n{ended}")
        return ended

    def _orphans(self):
        """Return the processes of this launch that stay alive after its end, by process number."""
        deadline = time.monotonic() + PATIENCE / 10  # programs that are to be ended sleep for longer than that
        while (left := alive(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _kill(self):
        for process in alive(self.mark):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def alive(mark):
    """The processes that were started with a mark, NAME=VALUE, in their environment: number to command line."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            line = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if mark in environment and state not in "ZX":
            found[int(folder.name)] = line
    return found
