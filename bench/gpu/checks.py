"""Check on a GPU what emulation cannot show, one line each; a failure does not stop the others.

    python -m gpu.checks PART [PART]     with PYTHONPATH=.:tests:bench

Results are written to the file that the variable FOUND names after every check.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Checks = dict[str, Callable[[], Any]]
PARTS = {  # by the functions that make their checks; imported when they are run, since a machine may lack what one needs
    "tools": "tools:tools", "compile": "kernels:compile_all", "device": "kernels:first_launch", "launch": "kernels:launch",
    "samples": "samples:samples", "unpooled": "samples:unpooled", "repeat": "repeated:repeated", "memory": "memory:memory",
    "models": "models:models", "spin": "models:spun",
}  # fmt: skip


def checks_of(part: str) -> Checks:
    """Make the checks of a part, by name."""
    module, _, name = PARTS[part].partition(":")
    return dict(getattr(import_module(f"gpu.{module}"), name)())


def run(
    checks: Checks, tell: Callable[[dict[str, Any]], None] = lambda found: None, works: Callable[[], Any] = lambda: None
) -> dict[str, dict[str, Any]]:
    """Return the result and the seconds of each check, or its error; `tell` is called with the results so far after each.

    After an error `works` is called; if it raises, as a device does after an illegal address, no other check can be run.
    """
    found: dict[str, dict[str, Any]] = {}
    broken = ""
    for name, check in checks.items():
        if broken:
            found[name] = {"error": f"not run: the device can do nothing more after {broken}"}
            tell(found)
            continue
        began = time.perf_counter()
        try:
            found[name] = {"found": check()}
        except Exception as error:
            traceback.print_exc(limit=-3)
            found[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            try:
                works()
            except Exception as lost:
                broken = f"{name}: {lost}"
        found[name]["seconds"] = round(time.perf_counter() - began, 3)
        print(f"{name}: {found[name]}", flush=True)
        tell(found)
    return found


def _synchronize(part: str) -> None:
    if part != "tools":  # which needs no device
        from .hardware import this_gpu

        this_gpu().synchronize()


def main() -> None:
    if not sys.argv[1:]:
        sys.exit(__doc__)
    if unknown := set(sys.argv[1:]) - set(PARTS):
        sys.exit(f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    file, found = os.environ.get("FOUND"), dict[str, dict[str, Any]]()

    def tell(more: dict[str, Any]) -> None:
        if file:
            Path(file).write_text(json.dumps(found | more, indent=1, default=str), encoding="utf-8")

    for part in sys.argv[1:]:
        try:
            checks = checks_of(part)
        except Exception as error:  # of an import, most likely
            tell({part: {"error": f"{type(error).__name__}: {error}"}})
            raise
        found |= run(checks, tell, lambda: _synchronize(part))  # noqa: B023
    failed = [name for name, result in found.items() if "error" in result]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
