"""Run tests on a mutant, in a fork of a process that has imported all but the package.

    python tests/sweep/mutant_server.py ROOT MODULE ...

imports the modules, then answers lines of JSON on standard input. A request holds ``{"tests", "seconds"}`` and a mutant:
``{"module", "file", "source"}`` with the text that the module is to have, or ``{"module", "file"}`` with another file for an extension.
The source tree stays as it is, so processes that a test starts with another Python see no mutant. The answer is ``{"code", "failed",
"late", "output"}``: the exit code of pytest, the first test that failed, and the end of the output.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class Source(importlib.machinery.SourceFileLoader):
    """Loads a module from a text instead of its file."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class Mutated:
    """Finds one module in the request, and no other."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Return how to load the mutant."""
        if name != self.request["module"]:
            return None
        file = self.request["file"]
        loader = Source(name, file, self.request["source"]) if "source" in self.request else None
        places = [str(Path(file).parent)] if file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=places)


class FirstFailure:
    """A plugin of pytest that writes the first test that failed to a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the name of a test that failed."""
        if report.failed and not os.path.getsize(self.path):
            Path(self.path).write_text(report.nodeid)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Fork, run the tests of a request, and return what they said; a late child is killed with all that it started."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as failed:
        child = os.fork()
        if not child:
            _run(request, out.fileno(), failed.name)
        code, late = _wait(child, request["seconds"])
        output = Path(out.name).read_bytes()[-2000:].decode(errors="replace")
        return {"code": code, "late": late, "failed": Path(failed.name).read_text(), "output": output}


def _wait(child: int, seconds: float) -> tuple[int, bool]:
    """Return the exit code of a child, and whether it was late."""
    ended = os.pidfd_open(child)
    deadline = time.monotonic() + seconds
    late = not select.select([ended], [], [], max(0.0, deadline - time.monotonic()))[0]
    os.close(ended)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), late


def _run(request: dict[str, Any], out: int, failed: str) -> None:
    """Run pytest in a session of its own."""
    code = 70
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(out, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if "module" in request:
            sys.meta_path.insert(0, Mutated(request))
        import pytest

        options = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "--no-header", "--tb=line", "-m", ""]
        code = int(pytest.main([*options, *request["tests"]], plugins=[FirstFailure(failed)]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def main() -> None:
    root, *modules = sys.argv[1:]
    os.chdir(root)
    sys.path[0] = root
    for name in modules:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
