"""Threads that a rank may use without taking processors from another rank, and their division between tasks."""

from __future__ import annotations

import socket
from typing import NamedTuple

from ...backends.native import processor_ids
from ...errors import UsageError
from .base import Comm


def fair_threads(comm: Comm) -> int:
    """Return the number of processors for this rank: those of its affinity mask, divided by the ranks with the same mask.

    This is right whether a launcher gives all ranks of a machine the same mask or binds each rank to its own processors.
    """
    mask = processor_ids()
    processors = [socket.gethostname(), mask]
    return max(1, len(mask) // comm.gather_control(processors).count(processors))


class ThreadBudget(NamedTuple):
    """Threads of a rank by task. The tasks run at the same time."""

    sample: int  # for the next bulk; 0: sampling takes turns with computing, on the same threads
    gather: int  # for the features of the next mini-batch; 0: takes turns likewise
    compute: int

    def __str__(self) -> str:
        ahead = [f"{count} {what}" for count, what in ((self.sample, "sample"), (self.gather, "gather")) if count]
        return ", ".join([*ahead, f"{self.compute} compute"]) if ahead else f"{self.compute}, in turn"


def divide_threads(threads: int, asked: int | None = None, waits: bool = False) -> ThreadBudget:
    """Divide the threads of a rank between computing and preparing the next mini-batches.

    Sampling and gathering take about a tenth of a step on a CPU. With up to three threads, a thread for them would mostly idle, so
    the tasks take turns on all threads. From four threads on, sampling gets an eighth of them, at least one. From eight threads on,
    gathering gets as many as sampling.

    Parameters
    ----------
    threads : int
    asked : int, optional
        Threads for sampling, instead of this rule.
    waits : bool
        True if sampling mostly waits for other ranks or a device. It then gets a thread in addition, unless `asked` is 0.

    Raises
    ------
    UsageError
        If no thread is left to compute.
    """
    sample = max(1, threads // 8) if asked is None and threads >= 4 else asked or 0
    if waits:
        return ThreadBudget(0 if asked == 0 else max(1, sample), 0, threads)
    if sample >= threads:
        raise UsageError(f"sampling with {sample} of {threads} threads leaves none to compute; use at most {threads - 1}")
    gather = threads // 8 if sample else 0
    return ThreadBudget(sample, gather, threads - sample - gather)
