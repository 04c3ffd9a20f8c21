"""The process that `scarce.starved` starts: it forks a child for each case, which runs an operation while memory runs out."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from bulksample import backends

from .child import in_fork
from .memory import resident_bytes
from .operations import OPERATIONS

DEADLINE = 120.0  # seconds for a case on a busy machine; most take a fifth of one
NEVER = 2**62
WATCHED = {"libstdc++": True, "_native": True, "_multiarray_umath": False}  # numpy frees some of its memory by way of Python
TEAM = {"libgomp": True}


@cache
def _scarce() -> ctypes.CDLL:
    """Return the preloaded library."""
    library = ctypes.CDLL(None)
    library.scarce_arm.argtypes = [ctypes.c_long, ctypes.c_long]
    for name in ("disarm", "refused", "blocks", "mapped", "most_mapped"):
        getattr(library, f"scarce_{name}").restype = ctypes.c_long
    return library


@cache
def _expected(group: str, operation: str) -> str:
    """Return the digest by the reference back end, made before memory is scarce."""
    return OPERATIONS[group][operation](backends.make("reference"))


class Starving:
    """An operation that runs while memory runs out. In a child: the libraries stay watched.

    Parameters
    ----------
    case : dict
        As `allocations.cases` lists them.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        self._operation, self._expected = OPERATIONS[case["of"]][case["operation"]], _expected(case["of"], case["operation"])
        self._backend, self._onwards = backends.make("native", case["threads"]), case["onwards"]
        for name, holds in (TEAM if case["group"] == "OpenMP team" else WATCHED).items():
            if not _scarce().scarce_watch(name.encode(), holds):
                raise LookupError(f"no library {name} is loaded")
        if not case["cold"]:
            self.serve()

    def serve(self) -> str:
        """Run without a refusal."""
        return "the same result" if self._operation(self._backend) == self._expected else "another result"

    def count(self) -> dict[str, Any]:
        """Return the number of requests of one run."""
        _scarce().scarce_arm(NEVER, NEVER)
        self.serve()
        return {"asked": _scarce().scarce_disarm()}

    def refuse(self, nth: int) -> str:
        """Refuse the nth request, or all from there on, and say what came of it; then run without a refusal."""
        os.write(2, f"request {nth}\n".encode())
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            _scarce().scarce_arm(nth, NEVER if self._onwards else nth)
            try:
                seen = self.serve()
            except MemoryError:
                seen = "MemoryError"
            except Exception as error:
                seen = f"{type(error).__name__}: {error}"
            _scarce().scarce_disarm()
            if seen == "the same result" and any("out of memory" in str(warning.message) for warning in warned):
                seen = "a smaller bulk"
        if not _scarce().scarce_refused():
            seen = "not reached"
        return seen if self.serve() == "the same result" else f"{seen}, and then another result"

    def held(self) -> dict[str, int]:
        """Return what the extension holds, and the resident bytes of the process."""
        gc.collect()
        library = _scarce()
        counts = {name: int(getattr(library, f"scarce_{name}")()) for name in ("blocks", "mapped", "most_mapped")}
        return counts | {"resident": resident_bytes()}


def _spanned(case: dict[str, Any]) -> dict[str, Any]:
    """Refuse one request after another, twice over; a third time if more is held after the second, since what is lost grows each time.

    Threads that free in another order may leave two regions of kept memory in the place of one, whose names take two blocks more.
    """
    starving, seen, held = Starving(case), Counter[str](), []
    while len(held) < 2 or (len(held) == 2 and held[1]["blocks"] > held[0]["blocks"]):
        found = Counter(starving.refuse(nth) for nth in range(case["first"], case["last"] + 1))
        seen.update(found if len(held) < 2 else found.keys() - seen.keys())
        held.append(starving.held())
    return {"seen": seen, "held": held[-2:]}


def _child(case: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run work in a child, on a thread of its own: a fork takes its teams from the thread that forks."""
    _expected(case["of"], case["operation"])
    found: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        os.dup2(said.fileno(), 2)
        thread = threading.Thread(target=lambda: found.update(work()))
        thread.start()
        thread.join()
        return found

    with tempfile.TemporaryFile() as said:
        ended = in_fork(run, DEADLINE)
        if ended.keys() & {"seen", "asked"}:
            return ended
        said.seek(0)
        return ended | {"said": said.read().decode(errors="replace")[-2000:]}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case. If it is cold, each refusal has a child, in which nothing ran before."""
    if case["last"] is None:
        return _child(case, lambda: Starving(case).count())
    if not case["cold"]:
        return _child(case, lambda: _spanned(case))
    seen, ends = Counter[str](), []
    for nth in range(case["first"], case["last"] + 1):
        ended = _child(case, lambda nth=nth: {"seen": {Starving(case).refuse(nth): 1}})  # type: ignore[misc]
        seen.update(ended.get("seen", {}))
        ends += [ended] if "seen" not in ended else []
    return {"seen": seen, "ends": ends}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
