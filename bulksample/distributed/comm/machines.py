"""The machine of each rank: ranks with the same host name and the same running kernel share a machine."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import numpy as np

from ...errors import UsageError
from .base import Comm

VARIABLE = "BULKSAMPLE_MACHINES"  # ranks of each machine, such as 2,2,2,2: simulates machines


def machines_of_ranks(comm: Comm) -> np.ndarray:
    """Return the machine of each rank: int64, shape (p,); machines are numbered by their first rank. Collective; counts no bytes.

    BULKSAMPLE_MACHINES simulates machines: ``2,2,4`` puts two, two and four ranks in the order of ranks on three machines, ``2`` puts
    two on each.

    Raises
    ------
    UsageError
        On every rank, if that variable is no list of numbers that add up to p.
    """
    before = dict(comm.tally)
    names = comm.gather_control(_own_machine(comm.rank, comm.size))
    comm.tally.update(before)  # which ranks are elsewhere was not known yet
    for name in names:
        if name.startswith("!"):
            raise UsageError(name[1:])
    return numbered(names)


def numbered(names: list[str]) -> np.ndarray:
    """Number names in the order in which they first occur: int64."""
    first = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([first[name] for name in names], np.int64)


def simulated(text: str, ranks: int) -> np.ndarray:
    """Return the machine of each rank by the value of BULKSAMPLE_MACHINES; raises `UsageError` if it is not one for p ranks."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) == 1 and counts[0] > 0:
        return np.arange(ranks, dtype=np.int64) // counts[0]
    if not counts or min(counts) < 1 or sum(counts) != ranks:
        raise UsageError(f"{VARIABLE}: got {text!r} for {ranks} ranks; use the ranks of each machine, such as 2,2, or one number for all")
    return np.repeat(np.arange(len(counts)), counts)


def on_one_machine(comm: Comm) -> Comm:
    """Return a communicator of the ranks of this machine, in the order of ranks; collective."""
    return comm.split(int(comm.machine_of[comm.rank]), comm.rank)


def uneven(comm: Comm) -> str:
    """Return how many ranks each machine has, such as "2, 2 and 1", unless all have equally many; then an empty string."""
    counts = np.bincount(comm.machine_of).tolist()
    return "" if len(set(counts)) == 1 else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _own_machine(rank: int, ranks: int) -> str:
    """Return the name of this rank's machine, or a fault that begins with an exclamation mark."""
    if VARIABLE in os.environ:
        try:
            return f"machine {simulated(os.environ[VARIABLE], ranks)[rank]}"
        except UsageError as error:
            return f"!{error}"
    kernel = ""
    with suppress(OSError):
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{socket.gethostname()} {kernel}"
