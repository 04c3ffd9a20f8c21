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
RANKS_OF_SIGNALS = (2, 2, 4, 4, 8)  # a launch of 8 ranks costs as much as the others together
EXITS = ("exit", "_exit 0", "_exit 3")
STEPWISE = ("forward", "backward", "reduce", "step")  # phases that every step of every method enters
NEVER = {
    **dict.fromkeys(("full", "cofree", "bns", "adaqp"), ("sample", "fetch")), **dict.fromkeys(("retexo", "retexo-federated"), ("sample",)),
}  # phases that no rank enters  # fmt: skip
SHARED = Path("/dev/shm")


def cases(seed: int) -> list[dict[str, Any]]:
    """Return kills and stops at random points, then an exception and an early exit in each phase of each method on 2, 4 and 8 ranks."""
    found = [_signal(f"{seed} {act}", act, number) for act, count in (("kill", KILLS), ("stop", STOPS)) for number in range(count)]
    phases = [(method, phase) for method, phase in itertools.product(METHODS, PHASES) if phase not in NEVER.get(method, ())]
    for number, (method, phase) in enumerate(phases):
        for turn, ranks in enumerate(RANKS):
            rank = 0 if phase == "checkpoint" else ranks - 1  # rank 0 writes it; the server of an average, rank 0, trains nothing
            place = {"ranks": ranks, "rank": rank, "method": method, "where": ["phase", phase, 2]}
            found += [{"group": "exception", "act": "raise", **place}, {"group": "early exit", "act": EXITS[(number + turn) % 3], **place}]
    random.Random(seed).shuffle(found)  # the first ones are a sample of all
    return found


def _signal(seed: str, act: str, number: int) -> dict[str, Any]:
    """Return a kill or a stop of one rank at a random point."""
    rng, ranks = random.Random(f"{seed} {number}"), RANKS_OF_SIGNALS[number % len(RANKS_OF_SIGNALS)]
    points = (
        ["phase", rng.choice(STEPWISE), rng.randint(1, 60)],
        ["collective", rng.randint(1, 30)],
        ["seconds", round(rng.uniform(0, 8), 2)],
    )
    method, rank, where = list(METHODS)[number % len(METHODS)], rng.randrange(ranks), rng.choice(points)
    if where[:2] == ["phase", "backward"]:
        rank = max(rank, 1)  # the server of an average trains nothing
    return {"group": act, "act": act, "ranks": ranks, "rank": rank, "method": method, "where": where}


def workers(case: dict[str, Any]) -> int:
    """Return 2 for cases that may run in pairs: few ranks, and a fault after MPI has connected, which leaves no shared memory."""
    return 2 if case["ranks"] <= 4 and case["where"][0] != "seconds" else 1


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
    assert "fault: " in ended.err or where[0] == "seconds", f"the point of the fault was never reached: {ended}"
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
