"""Measure what messages cost: latency and bytes a second between ranks, and host seconds of a collective and of a message.

One all-to-all among g ranks takes ``collective + 2 (g - 1) (message + latency) + bytes sent / bandwidth`` seconds; its row counts go ahead
and double the messages. `collective` and `message` are what this package does on a processor. A `MirrorComm`, which moves nothing, tells
them apart. Latency and bandwidth are what remains among ranks of one machine, and among ranks of which each is on another machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Comm
from .machines import uneven
from .threads import SerialComm

ROUNDS = 9
BYTES_SENT = 2**22  # by each rank in a long all-to-all
_MIRRORED = (2, 8, 32, 128)  # ranks of the mirrored communicators
_LEAST_SECONDS = 1e-9  # of a latency below what the clock and the load of the machine can show


class MirrorComm(SerialComm):
    """A communicator of one process that plays rank 0 of p: every other rank sends what this one sends it. Nothing moves."""

    def __init__(self, size: int) -> None:
        Comm.__init__(self, 0, size)

    def _allreduce(self, array: np.ndarray, kind: str) -> None:
        array *= self.size

    def _allgather(self, part: np.ndarray, sizes: np.ndarray, kind: str) -> np.ndarray:
        return np.tile(part, self.size)

    def _alltoall_words(self, words: np.ndarray) -> np.ndarray:
        return words.copy()

    def _split(self, color: int, members: list[int]) -> Comm:
        return MirrorComm(len(members))


def measure_network(comm: Comm, rounds: int = ROUNDS, bytes_sent: int = BYTES_SENT) -> dict[str, Any]:
    """Measure messages between all ranks; collective, and equal on all ranks.

    Each rank sends about `rounds` times `bytes_sent` bytes, twice (kind "control"). "even" is True if all machines have equally many ranks;
    "collective" and "message" are host seconds. "inside" and "between" are None where no two ranks are on one machine, or all are; else the
    "ranks" of a group, "latency" in seconds and "bandwidth" in bytes a second that each rank sends while all send: those of the slowest
    group, each the mean of the rounds (10 times as many for latency).
    """
    collective, message = (float(cost) for cost in np.median(comm.gather_control(host_seconds()), axis=0))
    place = np.count_nonzero(comm.machine_of[: comm.rank] == comm.machine_of[comm.rank])
    groups = {"inside": int(comm.machine_of[comm.rank]), "between": int(place)}
    host = {"collective": collective, "message": message}
    measured = {
        name: _slowest(comm, _group(comm.split(color, comm.rank), (collective, message), rounds, bytes_sent))
        for name, color in groups.items()
    }
    return {"ranks_of_machines": np.bincount(comm.machine_of).tolist(), "even": not uneven(comm), **host, **measured}


def host_seconds(rounds: int = ROUNDS) -> tuple[float, float]:
    """Return the processor seconds of an all-to-all of short parts that no message can explain, and of each of its 2 (p - 1) messages."""
    costs = []
    for size in _MIRRORED:
        comm, parts = MirrorComm(size), [np.zeros(1, np.int64)] * size
        times = []
        for _ in range(rounds):
            began = time.process_time()
            for _ in range(4):
                comm.alltoall(parts, "control")
            times.append((time.process_time() - began) / 4)
        costs.append((2 * (size - 1), statistics.median(times)))
    messages, seconds = np.array(costs).T
    slope = max(_LEAST_SECONDS, float(np.polyfit(messages, seconds, 1)[0]))
    return max(_LEAST_SECONDS, float(seconds[0] - slope * messages[0])), slope


def _group(comm: Comm, host: tuple[float, float], rounds: int, bytes_sent: int) -> dict[str, float] | None:
    """Measure a group of ranks; None if it is a single rank."""
    others = comm.size - 1
    if not others:
        return None
    short = _seconds(comm, 8, 10 * rounds)
    long = _seconds(comm, max(8, bytes_sent // others), rounds)
    latency = max(_LEAST_SECONDS, (short - host[0]) / (2 * others) - host[1])
    sent = max(8, bytes_sent // others) * others
    return {"ranks": comm.size, "latency": latency, "bandwidth": sent / max(_LEAST_SECONDS, long - short)}


def _seconds(comm: Comm, part_bytes: int, rounds: int) -> float:
    """Return the seconds of an all-to-all: of the slowest rank, the mean of the rounds, as a median leaves out delays of a busy machine."""
    parts, times = [np.zeros(part_bytes, np.uint8)] * comm.size, []
    for _ in range(rounds + 1):
        comm.barrier()
        began = time.perf_counter()
        comm.alltoall(parts, "control")
        times.append(time.perf_counter() - began)
    return float(np.mean(np.max(comm.gather_control(times), axis=0)[1:]))


def _slowest(comm: Comm, measured: dict[str, float] | None) -> dict[str, float] | None:
    """Return the largest latency and the least bandwidth of all groups; collective."""
    groups = [group for group in comm.gather_control(measured) if group is not None]
    slowest: dict[str, Callable[..., float]] = {"ranks": max, "latency": max, "bandwidth": min}
    return {name: choose(group[name] for group in groups) for name, choose in slowest.items()} if groups else None
