"""Measure one section of the benchmark after another in a process of its own, as it is asked, until one breaks CUDA.

It imports, opens the device and uploads the graphs once. `Worker` is the side of the one that asks; this module's program is the other.
They share a socket: a line names a section, and a line answers, ``passed``, ``failed``, or ``broken``, after which it ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .files import earlier, write

OPEN = "open"  # asks for the device and the graphs alone


class Worker:
    """Start the process, ask it, and end it.

    Parameters
    ----------
    command : list of str
        Its last argument, the number of the socket's descriptor, is added.
    log : Path
        File to which its output is added.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._broken, (self._socket, theirs) = False, socket.socketpair()
        with log.open("ab") as output, theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def ask(self, section: str, seconds: float) -> int | None:
        """Return 0 if a section passed, 1 if it failed, the exit code if the process ended, None if it needs more seconds."""
        deadline, answer = time.monotonic() + seconds, b""
        try:
            self._socket.sendall(f"{section}\n".encode())
            while not answer.endswith(b"\n"):
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                if not (more := self._socket.recv(64)):
                    return self._code()
                answer += more
        except TimeoutError:
            return None
        except (ConnectionError, BrokenPipeError):
            return self._code()
        self._broken = answer == b"broken\n"
        return int(answer != b"passed\n")

    def _code(self) -> int:
        """Return the exit code of a process that answers no more."""
        self._broken = True
        try:
            return self.process.wait(5) or 1
        except subprocess.TimeoutExpired:
            return 1

    @property
    def broken(self) -> bool:
        """True if it can be asked nothing more."""
        return self._broken or self.process.poll() is not None

    def close(self) -> None:
        """End the process, and all that it started."""
        self._socket.close()
        end_group(self.process)


def end_group(process: subprocess.Popen[bytes]) -> None:
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
    """Answer requests on a socket, and add what was found to a file after each."""
    file, asked = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    bench: Any = None
    with asked, asked.makefile("r") as lines:
        for line in lines:
            name = line.strip()
            found: Any = None
            try:
                from . import benchmark
                from .hardware import this_gpu

                bench = bench or benchmark.Bench(this_gpu())
                found = None if name == OPEN else benchmark.measured(bench, name)
                well, broken = name == OPEN or benchmark.is_well(found), _why_broken(bench)
                known = benchmark.added(earlier(file), bench.about, {} if name == OPEN else {name: found})
            except Exception as error:  # of an import, or of the first use of the device
                traceback.print_exc()
                found, well = f"failed: {type(error).__name__}: {error}", False
                broken = "" if isinstance(error, ImportError) else str(found) if bench is None else _why_broken(bench)
                known = earlier(file) | {name: found}
            print(f"{name}: {found}", flush=True)
            write(file, known)
            asked.sendall(b"broken\n" if broken else b"passed\n" if well else b"failed\n")
            if broken:
                sys.exit(f"the device can do nothing more: {broken}")


def _why_broken(bench: Any) -> str:
    """Return the error of a device whose context is lost, as by an illegal address; nothing if it works."""
    try:
        bench.gpu.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
