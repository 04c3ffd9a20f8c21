"""How many threads a rank may use without taking the processors of another."""

from __future__ import annotations

import os
import socket

from .base import Comm


def fair_threads(comm: Comm) -> int:
    """Processors that this rank may run on, shared evenly among the ranks of its machine that may run on the same ones.

    Launchers either give all ranks of a machine the same mask or bind each to processors of its own; both come out right.
    """
    mask = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    place = [socket.gethostname(), mask]
    return max(1, len(mask) // comm.gather_control(place).count(place))
