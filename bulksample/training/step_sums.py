"""The sums of the latest steps: seeds, loss and stop requests over all ranks, float32, shape (3,).

Sums on a device are copied to the host for several steps at once, and read when as many more have been queued: the device has then
passed the copy, and training never waits for a single step. All ranks read after the same steps. Sums on the host are read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from .compute import ComputeContext

STEPS = 8  # copied together; sums are read at most 2 * STEPS - 1 steps late


class KnownSums(NamedTuple):
    """The sums of a step, on the host."""

    step: int
    sums: torch.Tensor
    late: bool  # later steps have been made meanwhile


class StepSums:
    """The sums of the steps that the host has not counted yet.

    Parameters
    ----------
    compute : ComputeContext
    """

    def __init__(self, compute: ComputeContext) -> None:
        self._compute = compute
        self._known: list[KnownSums] = []
        self._queued: list[tuple[int, torch.Tensor]] = []
        self._copies: list[tuple[list[int], Callable[[], torch.Tensor]]] = []

    def add(self, step: int, sums: torch.Tensor) -> None:
        """Take the sums of the newest step."""
        if on_device(sums):
            self._queued.append((step, sums))
        else:
            self._known.append(KnownSums(step, sums, late=False))

    def read(self, now: bool) -> list[KnownSums]:
        """Return the sums that have reached the host, in the order of the steps, each once; with `now`, wait for those of all steps."""
        if len(self._queued) == STEPS or (now and self._queued):
            steps, sums = zip(*self._queued, strict=True)
            self._copies.append((list(steps), self._compute.start_read(torch.stack(sums))))
            self._queued = []
        while len(self._copies) > (0 if now else 1):
            numbers, finish = self._copies.pop(0)
            self._known += [KnownSums(step, row, late=True) for step, row in zip(numbers, finish(), strict=True)]
        known, self._known = self._known, []
        return known


def on_device(sums: torch.Tensor) -> bool:
    """Return True if the host would wait for a device to read these sums."""
    return sums.device.type != "cpu"
