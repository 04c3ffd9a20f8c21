"""Seconds and bytes by phase of a run, kept in one place so that algorithms stay free of timers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..dist.base import KINDS, Comm

PHASES = ("sample", "fetch", "forward", "backward", "reduce", "step", "evaluate", "checkpoint")


class Ledger:
    """What this rank spent since it was made, and since the last `take`.

    Parameters
    ----------
    comm : Comm
        Its tally says what was sent meanwhile.
    sampling : Comm, optional
        What a sampling thread communicates over: its bytes are those of the phase "sample", whenever they are sent.
    """

    def __init__(self, comm: Comm, sampling: Comm | None = None) -> None:
        self._comm, self._sampling = comm, sampling
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase_bytes = dict.fromkeys(PHASES, 0)
        self._taken = self.total()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time and the bytes of a block under one of PHASES."""
        began, sent = time.perf_counter(), self._sent()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began
            self._phase_bytes[name] += self._sent() - sent

    def total(self) -> dict[str, dict[str, Any]]:
        """Seconds by phase, bytes by phase, bytes by kind."""
        own, beside = (comm.tally if comm else {} for comm in (self._comm, self._sampling))
        sampled = {kind: traffic.bytes for kind, traffic in beside.items()}
        return {
            "seconds": dict(self._seconds),
            "phase_bytes": {**self._phase_bytes, "sample": self._phase_bytes["sample"] + sum(sampled.values())},
            "bytes": {kind: own[kind].bytes + sampled.get(kind, 0) for kind in KINDS},
        }

    def take(self) -> dict[str, dict[str, Any]]:
        """The same, counted since the last call."""
        now, before = self.total(), self._taken
        self._taken = now
        return {part: {key: value - before[part][key] for key, value in now[part].items()} for part in now}

    def _sent(self) -> int:
        return sum(traffic.bytes for traffic in self._comm.tally.values())


def combine(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The ledgers of all ranks as one: seconds of the slowest rank in each phase, bytes summed with their total."""
    phases = {name: max(rank["seconds"][name] for rank in ranks) for name in PHASES}
    phase_bytes = {name: sum(rank["phase_bytes"][name] for rank in ranks) for name in PHASES}
    kinds = {kind: sum(rank["bytes"][kind] for rank in ranks) for kind in KINDS}
    return {"phases": phases, "phase_bytes": phase_bytes, "bytes_sent": {"total": sum(kinds.values()), **kinds}}
