"""Judge what a command did with a damaged file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bulksample.errors import EXIT_BAD_DATA, EXIT_BAD_USE

from .child import in_child

DEADLINE = 120.0  # seconds for a case on a busy machine; most take a tenth of a second
_NAMES = {EXIT_BAD_USE: "UsageError", EXIT_BAD_DATA: "DataError"}


def judged(attempt: Callable[[Path], dict[str, Any]], whole: str, codes: tuple[int, ...]) -> dict[str, Any]:
    """Return the outcome of an attempt, which runs in a child with an empty folder.

    Parameters
    ----------
    attempt : callable
        Returns ``{"code", "err", "digest"}``; "digest" is read if the code is 0.
    whole : str
        The digest that the undamaged file leads to.
    codes : tuple of int
        Exit codes that refuse this file as documented.
    """
    with TemporaryDirectory(prefix="bulksample-sweep-") as made:
        found = in_child(lambda: attempt(Path(made)), DEADLINE)
    if "hung" in found:
        return _failed(f"no answer within {found['hung']:.0f} s")
    if "died" in found:
        return _failed(f"the process died: {found['died']}")
    code, lines = found["code"], found["err"].strip().splitlines()
    if code == 0:
        return {"passed": True, "seen": "harmless"} if found["digest"] == whole else _failed("accepted, with another result")
    if code not in codes or "Traceback" in found["err"] or not any(line.startswith(f"bulksample: {_NAMES[code]}: ") for line in lines):
        return _failed(f"exit code {code}: {found['err'].strip()[-800:]}")
    return {"passed": True, "seen": "refused", "said": lines[-1][:200]}


def _failed(seen: str) -> dict[str, Any]:
    return {"passed": False, "seen": seen}
