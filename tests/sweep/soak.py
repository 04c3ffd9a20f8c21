"""Two hours of trainings that are pre-empted at random moments and go on with --resume auto: no epoch is lost, the last bits are the same.

A case is ten minutes of trainings, one after another. While its time lasts, each launch is sent SIGTERM, SIGINT or SIGUSR1, or loses one
rank or all to SIGKILL. After that the training is launched until it is complete. Each epoch must have one record, equal to that of an
unbroken run, and the last checkpoint must have its bits.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from launch import Ranks

from bulksample.errors import EXIT_PEER_LOST
from bulksample.methods import METHODS

from .checkpoints import digest_of, newest
from .jobs import verdict_of
from .resume import LONGEST, epochs_of, processes_of, training, unbroken

MINUTES, SLOT = 120, 10
RANKS = (1, 2, 3, 4)
STOPS = (  # a signal, and who gets it; mpirun hands its own on to all ranks
    (signal.SIGTERM, "mpirun"), (signal.SIGINT, "mpirun"), (signal.SIGUSR1, "one"), (signal.SIGTERM, "one"), (signal.SIGKILL, "one"),
    (signal.SIGKILL, "all"),
)  # fmt: skip
EARLY = 0.25  # share of the pre-emptions that may come before a launch has made a step


def cases(seed: int, minutes: float = MINUTES) -> list[dict[str, Any]]:
    """Return slots of ten minutes; the last one may be shorter."""
    begins = [SLOT * number for number in range(math.ceil(minutes / SLOT))]
    return [{"group": "slots", "minutes": min(SLOT, minutes - begin), "draw": f"{seed}/{begin}"} for begin in begins]


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Train and pre-empt until the time of the case is over."""
    counted = dict.fromkeys(("pre-emptions", "trainings", "epochs"), 0)
    return {**verdict_of(lambda: _soaked(case, counted)), "counted": counted}


def _soaked(case: dict[str, Any], counted: dict[str, int]) -> str:
    rng, left = random.Random(case["draw"]), 60.0 * case["minutes"]
    while left > 0:
        method, ranks = rng.choice(list(METHODS)), rng.choice(RANKS)
        whole, began = unbroken(method, ranks), time.monotonic()
        with TemporaryDirectory(prefix="bulksample-sweep-") as place:
            _finish(Path(place), Soaked(method, ranks, whole["seconds"]), began + left, rng, counted)
            _compare(Path(place), whole, f"{method} on {ranks} ranks")
        left -= time.monotonic() - began
        counted["trainings"] += 1
        counted["epochs"] += len(whole["epochs"])
    return "slots without a loss"


class Soaked(NamedTuple):
    """A training, and the seconds that it takes unbroken."""

    method: str
    ranks: int
    seconds: float


def _finish(place: Path, soaked: Soaked, until: float, rng: random.Random, counted: dict[str, int]) -> None:
    """Launch a training until it is complete; pre-empt each launch until a time of the monotonic clock."""
    command = [*training(soaked.method, place), "--json", str(place / "report.json")]
    while True:
        (number, whom), early, moment = rng.choice(STOPS), rng.random() < EARLY, rng.random() * soaked.seconds / 3
        launched, stopped = Ranks(soaked.ranks, command), False
        if time.monotonic() < until:
            _wait(launched, place, early, 3 * moment if early else moment)
            stopped = _stop(launched, number, rng.randrange(soaked.ranks) if whom == "one" else whom)
            counted["pre-emptions"] += stopped
        ended = launched.wait(LONGEST)
        if ended.code == 0:
            return
        what = f"{soaked.method} on {soaked.ranks} ranks, {number.name} to {whom}{', early' if early else ''}"
        assert stopped, f"{what}: it ended without a pre-emption: {ended}"
        harsh = number == signal.SIGKILL and (whom == "all" or soaked.ranks == 1)
        done = (place / "report.json").exists()  # nothing is left but to leave, where signals end a process at once
        assert early or harsh or done or ended.code == EXIT_PEER_LOST, f"{what}: it ended otherwise: {ended}"


def _wait(launched: Ranks, place: Path, early: bool, seconds: float) -> None:
    """Wait for a new checkpoint, unless `early`, and then some seconds; return at once if the launch has ended."""
    before = set(place.glob("step-*"))
    while launched.process.poll() is None and not early and set(place.glob("step-*")) <= before:
        time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        launched.process.wait(seconds)


def _stop(launched: Ranks, number: int, whom: int | str) -> bool:
    """Send a signal to mpirun, to one rank or to all processes; False if the launch has ended."""
    if launched.process.poll() is not None:
        return False
    victims = [launched.process.pid] if whom == "mpirun" else processes_of(launched, whom)
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process, number)
    return bool(victims)


def _compare(place: Path, whole: dict[str, Any], what: str) -> None:
    """Fail unless each epoch has one record, equal to that of the unbroken run, and the last checkpoints are equal."""
    epochs, report = epochs_of(place), json.loads((place / "report.json").read_text())
    numbers = [one["epoch"] for one in epochs]
    assert numbers == [one["epoch"] for one in whole["epochs"]], f"{what}: the records are of epochs {numbers}"
    assert epochs == whole["epochs"], f"{what}: the records differ: {epochs} and {whole['epochs']}"
    assert report["epochs"] == len(epochs), f"{what}: the report says {report['epochs']} epochs"
    assert digest_of(newest(place)) == whole["digest"], f"{what}: it ends with other bits"
