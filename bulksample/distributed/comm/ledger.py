"""Count seconds, bytes and messages by phase of a run, in one place, so that algorithms stay free of timers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from .base import KINDS, Comm

PHASES = ("sample", "fetch", "forward", "backward", "reduce", "step", "evaluate", "checkpoint")
ASIDE = ("evaluate", "checkpoint")  # phases that are not training
WAITING = ("sample", "fetch")  # phases in which a step waits for its mini-batch
_MESSAGES, _BYTES, _BETWEEN, _COLLECTIVES = range(4)
_TRAINING_MESSAGES, _TRAINING_BYTES, _TRAINING_BETWEEN, _TRAINING_COLLECTIVES = range(4, 8)


class Sent(NamedTuple):
    """Messages and bytes that a rank has sent, how many of the bytes went to other machines, and the collectives that it took part in."""

    messages: int = 0
    bytes: int = 0
    between_machines: int = 0
    collectives: int = 0


class Ledger:
    """Seconds, bytes and messages of this rank, read from the tally of a communicator: in total, and since the last `take`.

    The bytes of `sampling`, the communicator of a sampling thread, count under "sample", whenever they are sent. `around` returns a context
    manager for the name of a phase, entered around it: a profiler marks its timeline with it. `before` is what `comm` had sent when the run
    began, which is not counted: an earlier run of this process may have used it too.
    """

    def __init__(
        self, comm: Comm, sampling: Comm | None = None, around: Callable[[str], AbstractContextManager[Any]] = lambda name: nullcontext(),
        before: dict[str, Sent] | None = None,
    ) -> None:  # fmt: skip
        self._comm, self._sampling, self._around, self._before = comm, sampling, around, before or {}
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase_bytes = dict.fromkeys(PHASES, 0)
        self._aside_seconds, self._aside = np.zeros(2), dict.fromkeys(KINDS, Sent())
        self._began: tuple[float, float] | None = None  # start of the first phase: set-up is not training
        self._taken = self.total()

    @property
    def run_bytes(self) -> int:
        """Bytes that this rank has sent in this run, without those of the sampling thread."""
        return _bytes(sent_by(self._comm)) - _bytes(self._before)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds and bytes of a ``with`` block under one of PHASES."""
        began, before = _now(), sent_by(self._comm)
        self._began = self._began or began
        try:
            with self._around(name):
                yield
        finally:
            now, after = _now(), sent_by(self._comm)
            self._seconds[name] += now[0] - began[0]
            self._phase_bytes[name] += _bytes(after) - _bytes(before)
            if name in ASIDE:
                self._aside_seconds += np.subtract(now, began)
                self._aside = _add(self._aside, after, before)

    def seconds(self, *phases: str) -> float:
        """Return the seconds that this rank has spent in some of PHASES so far."""
        return sum(self._seconds[name] for name in phases)

    def total(self) -> dict[str, dict[str, Any]]:
        """Return seconds by phase, bytes by phase, counts by kind, and the seconds of training.

        "sent" holds eight numbers for each kind: messages, bytes, bytes between machines and collectives of the run, then those of
        training. Training is every phase except ASIDE. "training" holds its wall-clock and CPU seconds from the first phase on; a rank
        that waits for others spends no CPU seconds. The result is short, because ranks send it to each other after every epoch.
        """
        beside = sent_by(self._sampling) if self._sampling else {}
        everything = _add(sent_by(self._comm), beside, self._before)
        training = _add(everything, {}, self._aside)
        now = _now()
        clock, processor = (np.subtract(now, self._began or now) - self._aside_seconds).tolist()
        return {
            "seconds": dict(self._seconds),
            "phase_bytes": {**self._phase_bytes, "sample": self._phase_bytes["sample"] + _bytes(beside)},
            "sent": {kind: [*everything[kind], *training[kind]] for kind in KINDS},
            "training": {"clock": clock, "processor": processor},
        }

    def take(self) -> dict[str, dict[str, Any]]:
        """Return the same numbers as `total`, counted since the last call."""
        now, before = self.total(), self._taken
        self._taken = now
        return {part: {key: np.subtract(value, before[part][key]).tolist() for key, value in now[part].items()} for part in now}


def combine(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Combine the ledgers of all ranks: seconds of the slowest rank in each phase; bytes and messages summed over ranks.

    "waiting_share" is the largest share of its training time that a rank spent in "sample" and in "fetch". "busiest_rank" is the
    largest number of messages and of bytes that a rank sent in training. "compute_seconds" is the largest over ranks of its CPU
    seconds of training (all threads), but at most its wall-clock seconds. "collectives" and "training_collectives" are those of the rank
    with the most, by kind.
    """
    trained = [rank for rank in ranks if rank["training"]["clock"] > 0]
    return {
        "phases": {name: max(rank["seconds"][name] for rank in ranks) for name in PHASES},
        "phase_bytes": {name: sum(rank["phase_bytes"][name] for rank in ranks) for name in PHASES},
        "bytes_sent": _by_kind(ranks, _BYTES),
        "messages_sent": _by_kind(ranks, _MESSAGES),
        "bytes_between_machines": _by_kind(ranks, _BETWEEN),
        "training_bytes": _by_kind(ranks, _TRAINING_BYTES),
        "training_bytes_between_machines": _by_kind(ranks, _TRAINING_BETWEEN),
        "training_messages": _by_kind(ranks, _TRAINING_MESSAGES),
        "collectives": _by_kind(ranks, _COLLECTIVES, max),
        "training_collectives": _by_kind(ranks, _TRAINING_COLLECTIVES, max),
        "busiest_rank": {"messages": _most(ranks, _TRAINING_MESSAGES), "bytes": _most(ranks, _TRAINING_BYTES)},
        "waiting_share": {
            name: max((rank["seconds"][name] / rank["training"]["clock"] for rank in trained), default=0.0) for name in WAITING
        },
        "compute_seconds": max(min(rank["training"].values()) for rank in ranks),
    }


def balance(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the spread over ranks of the seconds of each phase, of the computing seconds, and of the bytes sent in training."""
    return {
        "seconds": {name: _spread([rank["seconds"][name] for rank in ranks]) for name in PHASES},
        "compute_seconds": _spread([min(rank["training"].values()) for rank in ranks]),
        "bytes": _spread([sum(sent[_TRAINING_BYTES] for sent in rank["sent"].values()) for rank in ranks]),
    }


def _spread(values: list[float]) -> dict[str, float]:
    """Return the minimum, the median, the maximum, and the rank of the maximum."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "rank": values.index(max(values))}


def _now() -> tuple[float, float]:
    """Return wall-clock seconds, and CPU seconds of all threads of this process."""
    return time.perf_counter(), time.process_time()


def _by_kind(ranks: list[dict[str, dict[str, Any]]], column: int, over: Callable[[Iterator[int]], int] = sum) -> dict[str, int]:
    """Return one of the numbers of "sent", summed over ranks, or the largest (`over`), for each kind and in total."""
    kinds = {kind: over(rank["sent"][kind][column] for rank in ranks) for kind in KINDS}
    return {"total": sum(kinds.values()), **kinds}


def _most(ranks: list[dict[str, dict[str, Any]]], column: int) -> int:
    return int(max(sum(sent[column] for sent in rank["sent"].values()) for rank in ranks))


def sent_by(comm: Comm) -> dict[str, Sent]:
    """Return the messages, bytes and collectives of this rank over a communicator so far, by kind."""
    return {kind: Sent(*comm.tally[kind], comm.between_machines[kind], comm.collectives[kind]) for kind in KINDS}


def _bytes(tally: dict[str, Sent]) -> int:
    return sum(sent.bytes for sent in tally.values())


def _add(one: dict[str, Sent], other: dict[str, Sent], minus: dict[str, Sent]) -> dict[str, Sent]:
    """Return one + other - minus for each kind; a missing kind counts as zero."""
    nothing = Sent()
    parts = {kind: (one[kind], other.get(kind, nothing), minus.get(kind, nothing)) for kind in KINDS}
    return {kind: Sent(*(x + y - z for x, y, z in zip(a, b, c, strict=True))) for kind, (a, b, c) in parts.items()}
