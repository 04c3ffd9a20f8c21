"""Start a program on several ranks and see it end: within a time limit, and with nothing left behind however it ends.

Launchers put ranks into sessions of their own, and some leave ranks behind when they are killed. So every process of a
launch carries a mark in its environment, and whatever still carries it at the end is killed (on Linux, where /proc shows it).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..distributed.comm.launchers import PREFIXES, launched
from ..errors import UsageError

_MARK = "BULKSAMPLE_RUN"
_GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL
_KILLED_SECONDS = 5.0  # for the kernel to end what was killed
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asked this process to stop."""


@dataclass(frozen=True)
class Ended:
    """How a launch ended. `late`: it took longer than allowed and was ended; `said` is what it printed."""

    code: int
    seconds: float
    late: bool
    said: str


@contextmanager
def stoppable() -> Iterator[None]:
    """The first SIGTERM, SIGINT or SIGHUP raises `Stopped` here; further ones do not disturb the tidying up."""

    def stop(number: int, frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def starter(ranks: int, launcher: str | None) -> list[str]:
    """The words that start a program on so many ranks.

    Parameters
    ----------
    launcher : str, optional
        A command in which {ranks} stands for their number. Unless given, ``mpirun -n {ranks}`` of the mpirun beside this
        Python or on the path, and nothing for one rank.

    Raises
    ------
    UsageError
        If several ranks are asked for and there is no mpirun, or the launcher cannot be told their number.
    """
    if launcher is not None:
        if "{ranks}" not in launcher:
            raise UsageError(f"the launcher must say where the number of ranks goes; got {launcher!r}; 'mpirun -n {{ranks}}' would fit")
        return shlex.split(launcher.replace("{ranks}", str(ranks)))
    if ranks == 1:
        return []
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise UsageError(f"{ranks} ranks need mpirun, and there is none beside this Python or on the path; pip install mpich would fit")
    return [mpirun, "-n", str(ranks)]


def refuse_inside_a_launch() -> None:
    """Raise `UsageError` where this process is itself one of several ranks: each of them would start all ranks."""
    launch = launched()
    if launch.ranks > 1 and launch.variable != "SLURM_NTASKS":  # which is also set where a job's script runs, once
        told = f"{launch.variable} says that it was started {launch.ranks} times"
        raise UsageError(f"this command starts the ranks itself, but {told}; start it once")


def launch(command: list[str], log: Path, limit: float, alone: bool = False) -> Ended:
    """Run a command to its end, or for `limit` seconds; then, or when this process is stopped, SIGTERM and later SIGKILL end it.

    Parameters
    ----------
    log : path
        Gets what it prints, on both streams.
    alone : bool
        Hide from the program what a launcher around this process has set.

    Raises
    ------
    UsageError
        If it cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if not (alone and name.startswith(PREFIXES))}
    mark, began, late = f"{os.getpid()}-{time.monotonic_ns()}", time.monotonic(), False
    try:
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
                env={**environment, _MARK: mark},
            )  # fmt: skip
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(process)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error}") from error
    finally:
        _kill_rest(f"{_MARK}={mark}".encode())
    return Ended(process.returncode, time.monotonic() - began, late, log.read_text(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the launcher to end, then insist; it ends its ranks."""
    for ask, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _KILLED_SECONDS)):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, ask)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def _kill_rest(mark: bytes) -> None:
    """End what the launcher has left behind."""
    deadline = time.monotonic() + _KILLED_SECONDS
    while (left := _carrying(mark)) and time.monotonic() < deadline:
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)


def _carrying(mark: bytes) -> list[int]:
    """The processes with a mark, NAME=VALUE, in their environment; of those that have ended, there is none to see."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
