"""How many threads a rank may use without taking the processors of another."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from ...errors import UsageError
from .base import Comm


def fair_threads(comm: Comm) -> int:
    """Processors that this rank may run on, shared evenly among the ranks of its machine that may run on the same ones.

    Launchers either give all ranks of a machine the same mask or bind each to processors of its own; both come out right.
    """
    mask = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    place = [socket.gethostname(), mask]
    return max(1, len(mask) // comm.gather_control(place).count(place))


class ThreadBudget(NamedTuple):
    """The threads of a rank; those of each part work at the same time, so they add up to what the rank has."""

    sample: int  # for the next bulk; 0: in turn with everything else, on the threads that compute
    gather: int  # for the features of the next minibatch; 0: in turn
    compute: int

    def __str__(self) -> str:
        ahead = [f"{count} {what}" for count, what in ((self.sample, "sample"), (self.gather, "gather")) if count]
        return ", ".join([*ahead, f"{self.compute} compute"]) if ahead else f"{self.compute}, in turn"


def divide_threads(threads: int, asked: int | None = None, waits: bool = False) -> ThreadBudget:
    """Divide the threads of a rank between what is used now and what comes next.

    Sampling and gathering are about a tenth of a step on a processor. Up to three threads a whole one for them would idle, and compute
    miss it more than a step in turn costs, so each has all threads in turn; from four on sampling gets an eighth of them, at least
    one, and from eight on gathering as many.

    Parameters
    ----------
    threads : int
    asked : int, optional
        Threads that sample, instead of that rule.
    waits : bool
        Whether sampling is mostly waiting, for other ranks or a device: then it has a thread beside those that compute, unless 0 were
        asked for.

    Raises
    ------
    UsageError
        If no thread would be left to compute.
    """
    sample = max(1, threads // 8) if asked is None and threads >= 4 else asked or 0
    if waits:
        return ThreadBudget(0 if asked == 0 else max(1, sample), 0, threads)
    if sample >= threads:
        raise UsageError(f"{sample} of {threads} threads cannot sample and leave one to compute; at most {threads - 1} would fit")
    gather = threads // 8 if sample else 0
    return ThreadBudget(sample, gather, threads - sample - gather)
