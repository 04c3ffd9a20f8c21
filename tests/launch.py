"""Real MPI processes for tests, with a deadline and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun")


@dataclass
class Ended:
    """How a launch ended."""

    code: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.1f} s\n--- out\n{self.out}\n--- err\n{self.err}"


def run_ranks(n, what, timeout=60.0, env=None):
    """Run `what` on n ranks: Python source, or a list of arguments after ``python``.

    Fails the test, with everything that was printed, if the launch takes longer than `timeout` seconds.
    """
    launched = Ranks(n, what, env)
    return launched.wait(timeout)


class Ranks:
    """A launch that is under way; `wait` ends it."""

    def __init__(self, n, what, env=None):
        if MPIRUN is None or n == 0:
            pytest.skip("no mpirun: pip install mpich would bring one")
        command = [MPIRUN, "-n", str(n), sys.executable, *(["-c", what] if isinstance(what, str) else what)]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **(env or {})}
        self.began = time.monotonic()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, **streams)

    def wait(self, timeout=60.0):
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGTERM)
            time.sleep(0.5)
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            pytest.fail(f"{timeout} s were not enough\n--- out\n{out}\n--- err\n{err}")
        return Ended(self.process.returncode, out, err, time.monotonic() - self.began)


def alive(marker):
    """Processes whose command line holds a marker, this one aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if marker in line and state != "Z" and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found
