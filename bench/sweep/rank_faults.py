"""Faults of one rank among 2, 4 and 8: the job ends in time, names the rank, and leaves no process and no shared memory."""

from __future__ import annotations

import itertools
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from faulty_jobs import WITNESS, killed_at_any_time, run_with_fault, stopped_at_any_time, training

from bulksample.distributed.comm.ledger import PHASES
from bulksample.methods import METHODS

from .jobs import store_for_jobs, verdict_of

KILLS, STOPS, RANKS = 200, 60, (2, 4, 8)
EXITS = ("exit", "_exit 0", "_exit 3")
STEPWISE = ("forward", "backward", "reduce", "step")  # phases that every step of every method enters
SHARED = Path("/dev/shm")


def cases(seed: int) -> list[dict[str, Any]]:
    """Return kills and stops at random points, then an exception and an early exit in each phase of each method."""
    found = []
    for act, count in (("kill", KILLS), ("stop", STOPS)):
        for number in range(count):
            rng, ranks = random.Random(f"{seed} {act} {number}"), RANKS[number % 3]
            points = (
                ["phase", rng.choice(STEPWISE), rng.randint(1, 60)],
                ["collective", rng.randint(1, 30)],
                ["seconds", round(rng.uniform(0, 8), 2)],
            )
            method = list(METHODS)[number % len(METHODS)]
            found.append(
                {"group": act, "act": act, "ranks": ranks, "rank": rng.randrange(ranks), "method": method, "where": rng.choice(points)}
            )
    for number, (method, phase) in enumerate(itertools.product(METHODS, PHASES)):
        ranks = RANKS[number % 3]
        rank = 0 if phase == "checkpoint" else ranks - 1  # only rank 0 writes it
        place = {"ranks": ranks, "rank": rank, "method": method, "where": ["phase", phase, 2]}
        found += [{"group": "exception", "act": "raise", **place}, {"group": "early exit", "act": EXITS[number // 3 % 3], **place}]
    random.Random(seed).shuffle(found)  # the first ones are a sample of all
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Train with a fault on one rank."""
    return verdict_of(lambda: _noticed(case))


def _noticed(case: dict[str, Any]) -> str:
    before, where = _segments(), case["where"]
    with TemporaryDirectory(prefix="bulksample-sweep-") as place:
        fixed = where[0] == "phase" and case["group"] in ("exception", "early exit")
        options = ["--method", case["method"], "--checkpoint", place, "--checkpoint-every", "2"]
        command = training(store_for_jobs(), *options, epochs=4 if fixed else 1000)
        ended = run_with_fault(case["ranks"], case["rank"], case["act"], where, command)
    if fixed and ended.code == 0:
        assert "fault: " not in ended.err, f"the fault went unnoticed: {ended}"
        return "this rank never enters the phase"
    witness = WITNESS[case["act"].split()[0]]
    if where[0] == "seconds":  # it may hit the start of MPI, which may leave shared memory
        witness = {"kill": killed_at_any_time, "stop": stopped_at_any_time}[case["act"]]
    witness(ended, case["rank"], case["ranks"])
    if where[0] != "seconds":
        left = _left(before)
        assert not left, f"left in {SHARED}: {sorted(left)}"
    return "ended, rank named"


def _segments() -> set[str]:
    """Return the names of the shared memory of this user."""
    found = set()
    for path in SHARED.iterdir():
        with suppress(OSError):
            if path.stat().st_uid == os.getuid():
                found.add(path.name)
    return found


def _left(before: set[str]) -> set[str]:
    """Return new shared memory that no process has mapped and that stays for three seconds."""
    for _ in range(30):
        left = _segments() - before
        left = {name for name in left if not _mapped(name)}
        if not left:
            break
        time.sleep(0.1)
    return left


def _mapped(name: str) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if f"{SHARED}/{name}" in maps.read_text():
                return True
    return False
