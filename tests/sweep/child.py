"""Run work in a forked child with a deadline: a crash, a hang or a leak of one case is no affair of the next."""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_MOST_MEMORY = 16 * 2**30  # bytes of addresses; damage must not exhaust the machine


class Server:
    """A process that answers one line of JSON with another, and ends when its input is closed."""

    def __init__(self, command: list[str], **environment: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, *command], env={**os.environ, **environment}, **pipes)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        asks.write(f"{json.dumps(request)}\n")
        asks.flush()
        answer: dict[str, Any] = json.loads(answers.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Ended(NamedTuple):
    """The exit code of a command, and what it wrote to standard error."""

    code: int
    err: str


@cache
def import_once() -> None:
    """Import what commands import, so that children need not."""
    own = ("cli.app", "cli.output", "cli.configured", "training.checkpoint", "methods.run", "methods.predict", "nn.layers", "samplers.sage")
    for name in (*(f"bulksample.{one}" for one in own), "safetensors.torch", "yaml", "rich.table", "rich.console", "rich.progress"):
        import_module(name)


def in_child(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return what `work` returns in a child; ``{"hung": seconds}`` or ``{"died": status}`` if it does not return.

    An exception ends up as ``{"died": traceback}``.
    """
    import_once()
    return in_fork(work, seconds)


def in_fork(work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Do the same in a child that has imported no more than this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _answer(work, writer)
    os.close(writer)
    deadline, parts = time.monotonic() + seconds, []
    with open(reader, "rb", buffering=0) as stream, selectors.DefaultSelector() as selector:  # select takes no number above 1023
        selector.register(stream, selectors.EVENT_READ)
        while left := max(0.0, deadline - time.monotonic()):
            if selector.select(left):
                part = stream.read(2**16)
                if not part:
                    break
                parts.append(part)
    if not left:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if not left:
        return {"hung": seconds}
    return json.loads(b"".join(parts)) if not status else {"died": os.waitstatus_to_exitcode(status)}


def _answer(work: Callable[[], dict[str, Any]], writer: int) -> None:
    """Write what `work` returns to the pipe, and end the child."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        try:
            answer = work()
        except BaseException:
            answer = {"died": traceback.format_exc()}
        with open(writer, "wb") as stream:
            stream.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


def command(*arguments: object) -> Ended:
    """Run `bulksample` with arguments in this process, a child; its output goes to a file, its exit code is returned."""
    from bulksample.cli import main

    sys.argv = ["bulksample", *map(str, arguments)]
    with tempfile.TemporaryFile() as out:
        for number in (1, 2):
            os.dup2(out.fileno(), number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False, errors="replace") for number in (1, 2))  # noqa: SIM115
        try:
            main()
            code: Any = 0
        except SystemExit as leave:
            code = leave.code
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        out.seek(0)
        return Ended(code or 0, out.read().decode(errors="replace"))
