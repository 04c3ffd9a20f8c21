"""Run a program on several ranks within a time limit, and leave no process behind.

Launchers put ranks into sessions of their own, and some leave ranks running when they are killed. Therefore every process of a launch
has a mark in its environment, and every process that still has it at the end is killed (on Linux, by /proc).
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ..distributed.comm.launchers import PREFIXES, launched
from ..distributed.comm.process_end import Stopped, handling
from ..errors import UsageError

_MARK = "BULKSAMPLE_RUN"
_GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL
_KILLED_SECONDS = 5.0  # for the kernel to end killed processes
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """The end of a launch: `late` if it reached the time limit and was ended, and all that it printed."""

    code: int
    seconds: float
    late: bool
    printed: str


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` on the first SIGTERM, SIGINT or SIGHUP, and ignore later ones during cleanup."""

    def stop(number: int, frame: FrameType | None) -> None:
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    with handling(_SIGNALS, stop):
        yield


def starter(ranks: int, launcher: str | None) -> list[str]:
    """Return the command that starts a program on the ranks; the launcher, if one is given, contains {ranks}, their number.

    By default it is ``mpirun -n {ranks}`` with the mpirun beside this Python or on the path, and an empty command for one rank. Raises
    `UsageError` if there are several ranks but no mpirun, or if the launcher does not contain {ranks}.
    """
    if launcher is not None:
        if "{ranks}" not in launcher:
            raise UsageError(f"the launcher must contain {{ranks}}, the number of ranks; got {launcher!r}; use 'mpirun -n {{ranks}}'")
        return shlex.split(launcher.replace("{ranks}", str(ranks)))
    if ranks == 1:
        return []
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise UsageError(f"{ranks} ranks need mpirun, and there is none beside this Python or on the path; use pip install mpich")
    return [mpirun, "-n", str(ranks)]


def refuse_inside_a_launch() -> None:
    """Raise `UsageError` if this process is one of several ranks: each of them would start all ranks."""
    launch = launched()
    if launch.ranks > 1:
        reason = f"{launch.variable} says that it was started {launch.ranks} times"
        raise UsageError(f"this command starts the ranks itself, but {reason}; start it once, without a launcher")


def launch(command: list[str], log: Path, limit: float, alone: bool = False) -> Ended:
    """Run a command to its end, or for `limit` seconds. After that, or when this process is stopped, end it by SIGTERM and SIGKILL.

    Its output and its errors go to the file `log`. `alone` hides from it the variables that a launcher around this process has set. Raises
    `UsageError` if the command cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if not (alone and name.startswith(PREFIXES))}
    mark, began, late, asked = f"{os.getpid()}-{time.monotonic_ns()}", time.monotonic(), False, list[int]()
    try:
        with open(log, "wb") as stream, _noted(asked):  # a child that has not begun its program has no mark yet
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True,
                env={**environment, _MARK: mark},
            )  # fmt: skip
        try:
            for number in asked[:1]:
                signal.raise_signal(number)
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(process)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error}") from error
    finally:
        _kill_rest(f"{_MARK}={mark}".encode())
    return Ended(process.returncode, time.monotonic() - began, late, log.read_text(encoding="utf-8", errors="replace"))


@contextmanager
def _noted(asked: list[int]) -> Iterator[None]:
    """Note the signals that ask this process to stop, for the length of a ``with`` block, in place of stopping."""
    if threading.current_thread() is not threading.main_thread():  # signals are another thread's
        yield
        return
    signals = [one for one in _SIGNALS if signal.getsignal(one) not in (signal.SIG_IGN, None)]
    with handling(signals, lambda number, frame: asked.append(number)):
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher, which ends its ranks: first by SIGTERM, then by SIGKILL."""
    for number, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _KILLED_SECONDS)):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def _kill_rest(mark: bytes) -> None:
    """Kill the processes that the launcher left behind: those that have a mark, NAME=VALUE, in their environment."""
    deadline, left = time.monotonic() + _KILLED_SECONDS, True
    while left and time.monotonic() < deadline:
        left = False
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile, or belongs to another user
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    left = True
                    os.kill(int(folder.name), signal.SIGKILL)
        if left:
            time.sleep(0.05)
