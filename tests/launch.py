"""Real processes as ranks for tests, with a deadline and nothing left behind."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fork_server import ADDRESS, FORKING, Server
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
_BESIDE = Path(sys.executable).parent / "mpirun"
MPIRUN = str(_BESIDE) if _BESIDE.exists() else shutil.which("mpirun")
_MARK = "BULKSAMPLE_LAUNCH"  # in the environment of every process of a launch
_numbers = itertools.count()
SERVER = Server()
ENDED: list[Ended] = []  # launches of the test that runs
_SPEAKER = re.compile("\x1e(\\d+)\x1f")  # before what a rank printed, where mpirun passes on that of all


@dataclass
class Ended:
    """The exit code of a launch, its output and its seconds; `printed` is the output divided by ranks."""

    code: int
    out: str
    err: str
    seconds: float
    printed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, code, out, err, seconds):
        """Divide output in which mpirun named the rank before each piece."""
        printed = {}
        for stream, text in (("stdout", out), ("stderr", err)):
            pieces = ["", *_SPEAKER.split(text)]  # by turns a rank and what it printed
            for rank, piece in zip(pieces[::2], pieces[1::2], strict=True):
                who = f"rank {rank}, {stream}" if rank else f"all ranks, {stream}"
                printed[who] = printed.get(who, "") + piece
        found = {who: text for who, text in sorted(printed.items()) if text}
        return cls(code, _SPEAKER.sub("", out), _SPEAKER.sub("", err), seconds, found)

    def __str__(self) -> str:
        return f"exit {self.code} after {self.seconds:.1f} s\n--- out\n{self.out}\n--- err\n{self.err}"


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node"]


def run_ranks(n, what, env=None, launcher="mpirun", fresh=False):
    """Run `what` on n ranks: Python source, or a list of arguments after ``python``. The launcher is mpirun or torchrun.

    The ranks, and torchrun itself, are forked from a process that has imported the package (`fork_server`), or with `fresh` start as
    Python does.
    Fails the test, with everything that was printed, if the launch does not end within `PATIENCE`, or if any process that it
    started stays alive afterwards.
    """
    return Ranks(n, what, env, launcher, fresh).wait()


def run_fresh(n, what, env=None, launcher="mpirun"):
    """Run `what` as `run_ranks` does, on ranks that start as users' do: for tests of how processes start, fail and stop."""
    return run_ranks(n, what, env, launcher, fresh=True)


def run_alone(words, env=None, fresh=False):
    """Run ``python WORDS`` without a launcher, forked or with `fresh` as Python starts; returns what `subprocess.run` does."""
    alone = Ranks(1, [*map(str, words)], env, None, fresh)
    ended = alone.wait()
    return subprocess.CompletedProcess(alone.process.args, ended.code, ended.out, ended.err)


class Ranks:
    """A launch that is under way, without a launcher a process alone; `wait` ends it."""

    def __init__(self, n, what, env=None, launcher="mpirun", fresh=True):
        if launcher == "mpirun" and (MPIRUN is None or n == 0):
            pytest.skip("no mpirun: pip install mpich would bring one")
        python = [sys.executable] if fresh else FORKING
        starts = {"mpirun": [MPIRUN, "-prepend-pattern", "\x1e%r\x1f", "-n", str(n)], "torchrun": [*python, *TORCHRUN, str(n)], None: []}
        command = [*starts[launcher], *python, *(["-c", what] if isinstance(what, str) else what)]
        folders = [path for path in sys.path if Path(path).is_relative_to(ROOT / "tests")]  # a program may import its test's module
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *folders])
        self.mark = f"{_MARK}={os.getpid()}-{next(_numbers)}"
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", _MARK: self.mark.split("=")[1], **(env or {})}
        if not fresh:
            environment[ADDRESS] = SERVER.address
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
            ended = self._ended(*self.process.communicate())
            pytest.fail(f"{patience:.0f} s were not enough\n{ended}")
        ended = self._ended(out, err)
        if orphans := self._orphans():
            self._kill()
            pytest.fail(f"processes were left behind: {orphans}\n{ended}")
        return ended

    def _ended(self, out, err):
        ENDED.append(Ended.of(self.process.returncode, out, err, time.monotonic() - self.began))
        return ENDED[-1]

    def _orphans(self):
        """Return the processes of this launch that stay alive after its end, by process number."""
        deadline = time.monotonic() + PATIENCE / 10  # programs that are to be ended sleep for longer than that
        while (left := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _alive(self):
        """Return the processes of this launch that run; those that were forked have the environment of the server."""
        return alive(self.mark) | dict.fromkeys(SERVER.ask(alive=self.mark.split("=")[1])["alive"], "a forked rank")

    def _kill(self):
        for process in self._alive():
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
