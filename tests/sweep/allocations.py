"""Memory that runs out: each allocation of samplers, SpGEMM and gather is refused; an error or a smaller bulk, and nothing leaks.

`scarce_memory.cpp` refuses requests of the extension, of numpy and of the library of C++ for memory and for threads: one, or all from one
on. A case refuses up to 25 requests one by one, each followed by a call that is served, and does so twice. The digests are those of the
reference back end. After the second time the extension holds no more blocks than after the first, and the resident memory is the same.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from .operations import OPERATIONS
from .scarce import missing, starved

SPAN = 25  # refusals in a case
MOST_GROWTH = 0.01
COLD = {"samplers": "sage", "SpGEMM": "spgemm", "gather": "gather"}
GOOD = {"MemoryError", "a smaller bulk", "the same result", "not reached"}


@cache
def _asked(group: str, of: str, operation: str, threads: int, cold: bool) -> int:
    """Return how many requests an operation makes."""
    case = {"group": group, "of": of, "operation": operation, "threads": threads, "cold": cold, "onwards": False, "last": None}
    return int(starved().ask(case)["asked"])


def _spans(group: str, of: str, operation: str, threads: int, cold: bool) -> list[dict[str, Any]]:
    """Return the cases of one operation."""
    asked = _asked(group, of, operation, threads, cold)
    about = {"group": group, "of": of, "operation": operation, "threads": threads, "cold": cold}
    starts = range(1, asked + 1, SPAN)
    return [about | {"onwards": onwards, "first": nth, "last": min(nth + SPAN - 1, asked)} for onwards in (False, True) for nth in starts]


def cases(seed: int) -> list[dict[str, Any]]:
    """Return every request of every operation, by one thread and by three, shuffled.

    Cold: the first call of a process. The last group refuses what libgomp asks for when it makes a team.
    """
    if missing():
        return [{"group": "missing", "tool": missing()}]
    warm = [
        case for of, named in OPERATIONS.items() for name in named for threads in (1, 3) for case in _spans(of, of, name, threads, False)
    ]
    cold = [case for of, name in COLD.items() for case in _spans("first call", of, name, 3, True)]
    found = [*warm, *cold, *_spans("OpenMP team", "SpGEMM", "spgemm", 3, True)]
    random.Random(seed).shuffle(found)  # so that the first ones are a sample of all
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Refuse the requests of a case."""
    if case["group"] == "missing":
        return {"passed": False, "seen": case["tool"]}
    found = starved().ask(case)
    if "seen" not in found:
        return {"passed": False, "seen": str(found)}
    seen, held = dict(found["seen"]), found.get("held", [])
    for end in found.get("ends", ()):
        what = _end_of_libgomp(end) if case["group"] == "OpenMP team" else ""
        seen[what or str(end)] = seen.get(what or str(end), 0) + 1
    wrong = [what for what in seen if what not in GOOD and not what.startswith("libgomp ends")]
    wrong += _grown(*held) if held else []
    return {"passed": not wrong, "seen": "; ".join(wrong) or ", ".join(sorted(seen)), "refusals": seen}


def _end_of_libgomp(end: dict[str, Any]) -> str:
    """Name the end that libgomp makes of a process when it cannot make a team; nothing for any other end."""
    return "libgomp ends the process with a message" if end.get("died") == 1 and "\nlibgomp: " in end["said"] else ""


def _grown(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Say what is held after the second time, and was not after the first."""
    growth = after["resident"] / before["resident"] - 1
    faults = {
        f"{before['blocks']} blocks become {after['blocks']}": after["blocks"] > before["blocks"],
        f"{after['mapped']} bytes stay mapped": after["mapped"] > 1.25 * after["most_mapped"],
        f"resident memory grows by {growth:.2%}": growth >= MOST_GROWTH,
    }
    return [fault for fault, holds in faults.items() if holds]
