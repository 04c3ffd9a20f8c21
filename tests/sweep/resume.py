"""Kills with SIGKILL at random moments of a training: the resumed run ends with the bits of an unbroken one."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from launch import ROOT, Ranks, alive, run_ranks

from bulksample.errors import EXIT_PEER_LOST
from bulksample.methods import METHODS

from .checkpoints import digest_of, newest
from .jobs import store_for_jobs, verdict_of
from .journal import version

CASES, RANKS = 200, (1, 2, 4)
LONGEST = 300.0  # seconds for a launch on a busy machine
_LOCK = Lock()  # two cases need the same unbroken run
UNBROKEN = ROOT / "build" / "sweep" / "unbroken"
OPTIONS = {
    "fanouts": "3,3", "hidden": 8, "batch-size": 32, "dropout": 0.5, "epochs": 60, "threads": 1, "checkpoint-every": 3, "eval-every": 5,
}  # fmt: skip


def cases(seed: int) -> list[dict[str, Any]]:
    """Return kills of one rank and of all at random fractions of a training, of every method on 1, 2 and 4 ranks."""
    found = []
    for number in range(CASES):
        rng, round_ = random.Random(f"{seed} resume {number}"), number // len(METHODS)
        ranks = RANKS[(number + round_) % len(RANKS)]
        killed = rng.choice(["all", rng.randrange(ranks)])
        found.append({"group": f"{ranks} rank{'s' * (ranks > 1)}", "method": list(METHODS)[number % len(METHODS)], "ranks": ranks,
                      "killed": killed, "moment": round(rng.random(), 4)})  # fmt: skip
    return found


def workers(case: dict[str, Any]) -> int:
    """Return 2: cases run in pairs, as a kill leaves half of the processors idle for a while."""
    return 2


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Kill a training, resume it, and compare the last checkpoint with that of an unbroken run."""
    return verdict_of(lambda: _resumed(case))


def _resumed(case: dict[str, Any]) -> str:
    with _LOCK:
        whole = unbroken(case["method"], case["ranks"])
    seconds = case["moment"] * whole["seconds"]
    for _ in range(8):
        with TemporaryDirectory(prefix="bulksample-sweep-") as place:
            command = training(case["method"], Path(place))
            if _killed(case, command, Path(place), seconds):
                ended = run_ranks(case["ranks"], command)
                assert ended.code == 0, f"it cannot be resumed: {ended}"
                assert digest_of(newest(Path(place))) == whole["digest"], "the resumed run ends with other bits"
                return "resumed, same bits"
        seconds /= 2  # it ended before the kill
    raise AssertionError("it ends too soon to be killed")


def training(method: str, folder: Path) -> list[str]:
    """Return the arguments of a training that goes on from the checkpoints of a folder."""
    words = [str(word) for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    own = ["--method", method, "--quiet", "--checkpoint", str(folder), "--resume", "auto"]
    return ["-m", "bulksample", "train", store_for_jobs(), *words, *own]


def unbroken(method: str, ranks: int) -> dict[str, Any]:
    """Return the digest of the last checkpoint of an unbroken run, its epochs, and its seconds from the first checkpoint to the last."""
    kept = UNBROKEN / f"{method}-{ranks}.json"
    key = [version(ROOT), OPTIONS, "epochs"]
    with suppress(OSError, ValueError, KeyError):
        held = json.loads(kept.read_text())
        if held["key"] == json.loads(json.dumps(key)):
            return dict(held)
    with TemporaryDirectory(prefix="bulksample-sweep-") as place:
        launched = Ranks(ranks, training(method, Path(place)))
        _first_checkpoint(launched, Path(place))
        began = time.monotonic()
        ended = launched.wait(LONGEST)
        assert ended.code == 0, f"the unbroken run failed: {ended}"
        seconds = time.monotonic() - began
        held = {"key": key, "digest": digest_of(newest(Path(place))), "epochs": epochs_of(Path(place)), "seconds": seconds}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(held))
    return held


def epochs_of(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the epochs of a run, without seconds and bytes."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    words = ("epoch", "steps", "loss", "train_", "val_", "test_")
    return [{key: value for key, value in line.items() if key.startswith(words) and isinstance(value, int | float)} for line in lines]


def _first_checkpoint(launched: Ranks, folder: Path) -> None:
    """Wait until a run has a checkpoint or has ended."""
    deadline = time.monotonic() + LONGEST
    while not any(folder.glob("step-*")) and launched.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def _killed(case: dict[str, Any], command: list[str], folder: Path, seconds: float) -> bool:
    """Start a training and kill it some seconds after its first checkpoint; False if it had ended by then."""
    launched = Ranks(case["ranks"], command)
    _first_checkpoint(launched, folder)
    time.sleep(seconds)
    victims = processes_of(launched, case["killed"])
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    ended = launched.wait(LONGEST)
    alone = case["ranks"] == 1 or case["killed"] == "all"
    assert alone or ended.code in (0, EXIT_PEER_LOST), f"the other ranks ended otherwise: {ended}"
    return bool(victims) and ended.code != 0


def processes_of(launched: Ranks, whose: int | str) -> list[int]:
    """Return the process of one rank, or all processes of a launch."""
    processes = {process: _rank_and_parent(process) for process in alive(launched.mark)}
    ranks = {process: rank for process, (rank, parent) in processes.items() if rank != processes.get(parent, (None, 0))[0]}
    return list(processes if whose == "all" else (process for process, rank in ranks.items() if rank == whose))


def _rank_and_parent(process: int) -> tuple[int | None, int]:
    """Return the rank in the environment of a process, and the number of its parent; the sentinel is a child of its rank."""
    with suppress(OSError):
        words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        ranks = [int(word.partition(b"=")[2]) for word in words if word.startswith(b"PMI_RANK=")]
        return ranks[0] if ranks else None, int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return None, 0
