"""Ranks without the wait for imports: a server that has imported the package, and forks a process for each rank that is asked for.

A launcher starts `forked_rank.py` in the place of Python, a program of 20 ms that imports nothing large. It sends its arguments,
environment, folder and open files to the server, which forks: the new process runs the program as Python would have, in an interpreter that
had no thread, no random state used and no MPI. The rank that the launcher sees passes signals on and ends as the forked process ends; if it
is killed, so is that process. What a forked process starts by ``sys.executable`` is forked, too. Tests of how processes start, fail and
stop launch Python itself (``fresh=True`` of `launch.run_ranks`).
"""

from __future__ import annotations

import array
import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

FORKED = Path(__file__).with_name("forked_rank.py")
FORKING = [sys.executable, "-I", "-S", str(FORKED)]  # in the place of ``python``
PROGRAMS = "bin"  # beside the socket: what a forked process finds beside its ``sys.executable``
ADDRESS = "BULKSAMPLE_FORK_SERVER"  # the server's socket, in the environment of a launch
PASSED = ("PMI_FD", "HYDI_CONTROL_FD")  # variables that number an open file, which the forked process needs at that number
LEFT = tuple(f"bulksample.{name}" for name in ("__main__", "interop", "report", "plan", "backends.cuda", "training.cuda"))
_HIGH = 200  # above all numbers of open files that a launcher gives
_LENGTH = 8  # bytes of the number before a message


class Server:
    """The tests' side: the first rank starts the server; `close`, or the end of this process, ends it."""

    def __init__(self):
        self._process = None
        self._folder = None

    @property
    def address(self) -> str:
        if self._process is None:
            self._folder = tempfile.TemporaryDirectory()
            paths = [str(FORKED.parents[1]), str(FORKED.parent)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # the end of stdin is the end of the server
            line = [sys.executable, __file__, str(Path(self._folder.name) / "socket")]
            self._make_programs(Path(self._folder.name) / PROGRAMS)
            self._process = subprocess.Popen(line, env=environment, start_new_session=True, **streams)
            assert self._process.stdout.readline() == b"up\n"
        return str(Path(self._folder.name) / "socket")

    def _make_programs(self, folder):
        """Make a folder like that of Python's programs, whose ``python`` is the one that has the server fork."""
        folder.mkdir()
        for program in Path(sys.executable).parent.iterdir():
            if not program.name.startswith("python"):
                (folder / program.name).symlink_to(program)
        (folder / "python").write_text(f'#!/bin/sh\nexec {shlex.join(FORKING)} "$@"\n')
        (folder / "python").chmod(0o755)

    def ask(self, **question):
        """Ask the server: the processes of a launch that run, and processor seconds of all that have ended."""
        if self._process is None:
            return {"alive": [], "seconds": 0.0}
        with socket.socket(socket.AF_UNIX) as to:
            to.connect(self.address)
            send(to, question)
            found = receive(to)[0]
            to.recv(1)  # nothing, once the server has closed its end: who counts its open files does not count this one
            return found

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._folder.cleanup()
            self._process = None


def send(to: socket.socket, message, files=()) -> None:
    text = json.dumps(message).encode()
    to.sendall(len(text).to_bytes(_LENGTH, "big"))
    sent = socket.send_fds(to, [text], list(files)) if files else 0
    to.sendall(text[sent:])


def receive(of: socket.socket):
    """A message and the files with it; None if the other end is gone."""
    head = of.recv(_LENGTH, socket.MSG_WAITALL)
    if len(head) < _LENGTH:
        return None, []
    length, text, files = int.from_bytes(head, "big"), b"", []
    while len(text) < length:
        piece, ancillary, _, _ = of.recvmsg(length - len(text), socket.CMSG_SPACE(8 * array.array("i").itemsize))
        if not piece:
            for file in files:
                os.close(file)
            return None, []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files += array.array("i", data[: len(data) - len(data) % 4])
        text += piece
    return json.loads(text), files


def serve(path: str):
    """Fork a process for each request. Returns the request in the forked process, and nothing when the server ends."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    own = sys.stdin.fileno()
    ready = selectors.DefaultSelector()
    ready.register(own, selectors.EVENT_READ, None)
    ready.register(listening, selectors.EVENT_READ, None)
    children, seconds = {}, 0.0  # by process number: the end of the pidfd, the connection, the mark
    ended = []  # until the tests ask: a rank's sentinel reads in /proc how it ended, as the launcher of a rank of Python lets it
    print("up", flush=True)
    while True:
        for key, _ in ready.select():
            if key.fileobj == own:
                for child in children:
                    os.kill(child, signal.SIGKILL)
                return None
            if key.fileobj is listening:
                of, _ = listening.accept()
                message, files = receive(of)
                if message is None:
                    of.close()
                elif "alive" in message:
                    while ended:
                        used = os.wait4(ended.pop(), 0)[2]
                        seconds += used.ru_utime + used.ru_stime
                    alive = [child for child, (_, _, mark) in children.items() if mark == message["alive"]]
                    answer(of, {"alive": alive, "seconds": seconds})
                    of.close()
                elif (child := os.fork()) == 0:
                    ready.close()
                    return message, files
                else:
                    for file in files:
                        os.close(file)
                    end = os.pidfd_open(child)
                    children[child] = end, of, message["mark"]
                    ready.register(end, selectors.EVENT_READ, child)
                    ready.register(of, selectors.EVENT_READ, child)
                    answer(of, {"child": child})
            elif key.data in children and key.fileobj is children[key.data][1]:  # the rank that the launcher sees has ended
                with suppress(ProcessLookupError):
                    os.kill(key.data, signal.SIGKILL)
                ready.unregister(key.fileobj)
            elif key.data in children:
                how = os.waitid(os.P_PID, key.data, os.WEXITED | os.WNOWAIT)
                status = how.si_status << 8 if how.si_code == os.CLD_EXITED else how.si_status
                ended.append(key.data)
                end, of, _ = children.pop(key.data)
                ready.unregister(end)
                os.close(end)
                with suppress(KeyError):
                    ready.unregister(of)
                answer(of, {"status": status})
                of.close()


def answer(to: socket.socket, message) -> None:
    """Send a message to whoever asked, unless it has been killed meanwhile."""
    with suppress(OSError):
        send(to, message)


def become(message, files) -> list[str]:
    """Take over the arguments, environment, folder and open files of a rank; returns its words after ``python``."""
    numbers = [0, 1, 2, *(int(message["environment"][name]) for name in PASSED if name in message["environment"])]
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in files]
    os.closerange(3, _HIGH)
    for number, file in zip(numbers, high, strict=True):
        os.dup2(file, number)
    os.closerange(_HIGH, max(high) + 1)
    os.setpgid(0, 0)
    libc = ctypes.CDLL(None)
    libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)  # comes after the exit functions of later libraries, before those of torch
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    installed = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))]
    sys.executable = str(Path(sys.argv[1]).with_name(PROGRAMS) / "python")
    sys.path[:] = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep), *installed]
    return message["words"]


def import_all(package) -> None:
    """Import the modules of a package, but for `LEFT`."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in LEFT:
            made = importlib.import_module(module.name)
            if module.ispkg:
                import_all(made)


def imports() -> None:
    """Import all of the package and what its ranks use, and nothing that starts a thread or MPI."""
    for name in ("mpi4py", "scipy.sparse.linalg", "torch.distributed", "bulksample.cli.app", "bulksample.interop.world"):
        importlib.import_module(name)
    import_all(sys.modules["bulksample"])
    assert "mpi4py.MPI" not in sys.modules
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()  # else a collection in each rank writes to the pages that they share


def run(words: list[str]) -> None:
    """Run a program as ``python WORDS`` does."""
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    elif words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def end(failure: BaseException | None) -> None:
    """End the process as Python does after a program, but for freeing each module, which takes longer than all else."""
    code = 0
    if isinstance(failure, SystemExit):
        code = failure.code if isinstance(failure.code, int) else int(failure.code is not None)
        if code == 1 and not isinstance(failure.code, int):
            print(failure.code, file=sys.stderr)
    elif failure is not None:
        sys.excepthook(type(failure), failure, failure.__traceback__)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if not (mpi and mpi.Is_initialized()):
        os._exit(code)
    if not mpi.Is_finalized():
        mpi.Finalize()  # as mpi4py does at the end of Python
    ctypes.CDLL(None).exit(code)  # runs the exit functions of C libraries: MPI's says to the launcher that the rank is done


if __name__ == "__main__":
    imports()
    if (asked := serve(sys.argv[1])) is not None:
        words = become(*asked)
        try:
            run(words)
        except BaseException as failure:
            end(failure)
        end(None)
