"""Time to send from one rank to another, t = theta MiB + gamma: given, or measured before training begins."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from ...distributed.comm.base import Comm
from ...errors import UsageError
from .widths import LinkSpeeds

_SIZES = 2 ** np.arange(12, 21, 2)  # bytes
_TIMES = 3  # of each size; the shortest counts


def links_of(name: str, comm: Comm) -> LinkSpeeds:
    """Return the speeds of all links of a communicator; collective.

    Parameters
    ----------
    name : "even", "measured", or the path of a JSON file
        Even links are all alike. With measured links a run depends on the speed of the machine. A file holds "theta" (ms per MiB) and
        "gamma" (ms), p x p numbers each, one row a sender.

    Raises
    ------
    UsageError
        If the file cannot be read, or its numbers do not fit.
    """
    if name == "even":
        return LinkSpeeds.even(comm.size)
    return measured(comm) if name == "measured" else _read(Path(name), comm.size)


def measured(comm: Comm) -> LinkSpeeds:
    """Measure every link: a straight line through the times of a few sizes. The pairs of a round (i to i + r) send at once.

    Sends about 4 MiB for each ordered pair (kind "control").
    """
    p, own = comm.size, [[0.0, 0.0] for _ in range(comm.size)]
    for r in range(1, p):
        seconds = [min(_seconds(comm, (comm.rank + r) % p, int(size)) for _ in range(_TIMES)) for size in _SIZES]
        slope, offset = np.polyfit(_SIZES / 2**20, 1e3 * np.array(seconds), 1)
        own[(comm.rank + r) % p] = [max(float(slope), 1e-6), max(float(offset), 0.0)]
    everyone = comm.allgather(np.array(own), "control")
    return LinkSpeeds(everyone[:, :, 0], everyone[:, :, 1])


def _seconds(comm: Comm, peer: int, size: int) -> float:
    parts = [np.zeros(size if r == peer else 0, np.uint8) for r in range(comm.size)]
    comm.barrier()
    began = time.perf_counter()
    comm.alltoall(parts, "control")
    return time.perf_counter() - began


def _read(path: Path, p: int) -> LinkSpeeds:
    try:
        held = json.loads(path.read_bytes())
        links = LinkSpeeds(np.array(held["theta"], np.float64), np.array(held["gamma"], np.float64))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"links must be even, measured, or a JSON file with theta and gamma; {path}: {error}") from error
    for part in links:
        if part.shape != (p, p) or not np.isfinite(part).all() or (part < 0).any():
            raise UsageError(f"theta and gamma of {path} must be {p} x {p} numbers, none negative; got shape {part.shape}")
    return links
