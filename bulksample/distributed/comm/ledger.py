"""Seconds, bytes and messages by phase of a run, kept in one place so that algorithms stay free of timers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from .base import KINDS, Comm, SentCount

PHASES = ("sample", "fetch", "forward", "backward", "reduce", "step", "evaluate", "checkpoint")
ASIDE = ("evaluate", "checkpoint")  # what a run does besides training
WAITING = ("sample", "fetch")  # what a step waits for
_MESSAGES, _BYTES, _TRAINING_MESSAGES, _TRAINING_BYTES = range(4)


class Ledger:
    """What this rank spent since it was made, and since the last `take`.

    Parameters
    ----------
    comm : Comm
        Its tally says what was sent meanwhile.
    sampling : Comm, optional
        What a sampling thread communicates over: its bytes are those of the phase "sample", whenever they are sent.
    around : callable, optional
        Entered around every phase, with its name: a range in a profiler's timeline.
    """

    def __init__(
        self, comm: Comm, sampling: Comm | None = None, around: Callable[[str], AbstractContextManager[Any]] = lambda name: nullcontext()
    ) -> None:
        self._comm, self._sampling, self._around = comm, sampling, around
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase_bytes = dict.fromkeys(PHASES, 0)
        self._aside_seconds, self._aside = np.zeros(2), dict.fromkeys(KINDS, SentCount(0, 0))
        self._began: tuple[float, float] | None = None  # of the first phase: set-up takes its time once, whatever the method
        self._taken = self.total()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time, the bytes and the messages of a block under one of PHASES."""
        began, before = _now(), dict(self._comm.tally)
        self._began = self._began or began
        try:
            with self._around(name):
                yield
        finally:
            now, after = _now(), self._comm.tally
            self._seconds[name] += now[0] - began[0]
            self._phase_bytes[name] += _bytes(after) - _bytes(before)
            if name in ASIDE:
                self._aside_seconds += np.subtract(now, began)
                self._aside = _add(self._aside, after, before)

    def total(self) -> dict[str, dict[str, Any]]:
        """Seconds by phase; bytes by phase; by kind, four numbers: messages and bytes, then those of training, which is all but ASIDE.

        "training" are its seconds from the first phase on: by the clock, and of the processor, which spends none on waiting for others.
        Short, because ranks send it to each other after every epoch.
        """
        beside = self._sampling.tally if self._sampling else {}
        everything = _add(self._comm.tally, beside, {})
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
        """The same, counted since the last call."""
        now, before = self.total(), self._taken
        self._taken = now
        return {part: {key: np.subtract(value, before[part][key]).tolist() for key, value in now[part].items()} for part in now}


def combine(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """The ledgers of all ranks as one: seconds of the slowest rank in each phase, bytes and messages summed with their total.

    "waiting_share" is the part of the training that the rank which waits longest spent on samples and on features, be it that others
    made them or that it did so in turn. "busiest_rank" is the most that a rank sent in training. "compute_seconds" are those of the
    rank that computes longest: of its processor, on however many threads, but no more than by the clock.
    """
    return {
        "phases": {name: max(rank["seconds"][name] for rank in ranks) for name in PHASES},
        "phase_bytes": {name: sum(rank["phase_bytes"][name] for rank in ranks) for name in PHASES},
        "bytes_sent": _summed(ranks, _BYTES),
        "messages_sent": _summed(ranks, _MESSAGES),
        "training_bytes": _summed(ranks, _TRAINING_BYTES),
        "training_messages": _summed(ranks, _TRAINING_MESSAGES),
        "busiest_rank": {"messages": _most(ranks, _TRAINING_MESSAGES), "bytes": _most(ranks, _TRAINING_BYTES)},
        "waiting_share": {name: max(_share(rank, name) for rank in ranks) for name in WAITING},
        "compute_seconds": max(min(rank["training"].values()) for rank in ranks),
    }


def balance(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """How evenly the ledgers are filled: seconds of every phase, seconds of computing, and bytes sent in training, by rank."""
    return {
        "seconds": {name: _spread([rank["seconds"][name] for rank in ranks]) for name in PHASES},
        "compute_seconds": _spread([min(rank["training"].values()) for rank in ranks]),
        "bytes": _spread([sum(sent[_TRAINING_BYTES] for sent in rank["sent"].values()) for rank in ranks]),
    }


def _spread(values: list[float]) -> dict[str, float]:
    """The least, the median and the most, and the rank that has the most."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "rank": values.index(max(values))}


def _now() -> tuple[float, float]:
    """By the clock, and of the processor, all threads of this process."""
    return time.perf_counter(), time.process_time()


def _share(rank: dict[str, dict[str, Any]], phase: str) -> float:
    clock = rank["training"]["clock"]
    return rank["seconds"][phase] / clock if clock > 0 else 0.0


def _summed(ranks: list[dict[str, dict[str, Any]]], column: int) -> dict[str, int]:
    kinds = {kind: sum(rank["sent"][kind][column] for rank in ranks) for kind in KINDS}
    return {"total": sum(kinds.values()), **kinds}


def _most(ranks: list[dict[str, dict[str, Any]]], column: int) -> int:
    return max(sum(sent[column] for sent in rank["sent"].values()) for rank in ranks)


def _bytes(tally: dict[str, SentCount]) -> int:
    return sum(sent.bytes for sent in tally.values())


def _add(one: dict[str, SentCount], other: dict[str, SentCount], less: dict[str, SentCount]) -> dict[str, SentCount]:
    """one + other - less, kind by kind; a kind that is missing is nothing."""
    nothing = SentCount(0, 0)
    parts = {kind: (one[kind], other.get(kind, nothing), less.get(kind, nothing)) for kind in KINDS}
    return {kind: SentCount(a.messages + b.messages - c.messages, a.bytes + b.bytes - c.bytes) for kind, (a, b, c) in parts.items()}
