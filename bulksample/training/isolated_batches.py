"""The training steps of ranks that each train on a part of the graph: the same number on every rank, and every seed in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UsageError
from ..position import VERSION, check_version
from .batches import EMPTY_BATCH, BatchSource, MiniBatchSource, StepBatch


def shared_steps(seeds: list[int], batch_size: int) -> tuple[int, list[int]]:
    """Return the number of steps of an epoch, max over r of ceil(n_r / b), and the batch size of each rank.

    A rank that needs all these steps keeps the batch size b; a rank with fewer seeds takes smaller mini-batches.

    Parameters
    ----------
    seeds : list of int
        n_r, the seeds of each rank.
    """
    needed = [-(-count // batch_size) for count in seeds]
    steps = max(needed)
    return steps, [batch_size if own == steps else max(1, -(-count // steps)) for own, count in zip(needed, seeds, strict=True)]


def _differs(key: str, before: Any, now: Any) -> str:
    """Return what differs between a checkpoint and a run, and what to use instead."""
    if key == "ranks":
        return f"it is of {before} ranks, and there are {now} now; use {before}, or start a new run"
    found = f", {before} steps an epoch and not {now}" if key == "steps" else ""  # a partition is named by a hash
    return f"its ranks trained on other vertices{found}; use the partition of the run that saved it, or start a new run"


class IsolatedBatches(BatchSource):
    """The training steps of a rank on its own view of the graph, which a method may replace during the run.

    Parameters
    ----------
    fixed : dict
        Values that a checkpoint must hold for a run to resume from it, such as the number of ranks.
    on_drop : callable
        Called when the steps that were prepared ahead are discarded.

    Attributes
    ----------
    minibatches : MiniBatchSource, optional
        The mini-batches of the current view; None if a step is one pass over the whole view.
    """

    def __init__(self, fixed: dict[str, Any], on_drop: Callable[[], None] = lambda: None) -> None:
        self._fixed, self._on_drop = fixed, on_drop
        self.minibatches: MiniBatchSource | None = None

    def train_on(self, minibatches: MiniBatchSource | None, steps: int) -> None:
        """Continue at the current epoch and step with the mini-batches of another view, `steps` of them in an epoch."""
        self.minibatches, self.steps = minibatches, steps
        if minibatches is not None:
            position = {"epoch": self.epoch, "step": min(self.step, minibatches.steps)}
            minibatches.load_state_dict(minibatches.state_dict() | position)

    def __iter__(self) -> Iterator[StepBatch]:
        own = iter(self.minibatches or ())
        while self.step < self.steps:
            batch = next(own, EMPTY_BATCH)
            self.step += 1
            yield batch
        for _ in own:  # asking once more moves the loader on to the next epoch
            raise UsageError(f"there are more than {self.steps} steps in epoch {self.epoch}")
        self.epoch, self.step = self.epoch + 1, 0

    def drop(self) -> None:
        if self.minibatches is not None:
            self.minibatches.drop()
        self._on_drop()

    def state_dict(self) -> dict[str, Any]:
        return {"version": VERSION, "epoch": self.epoch, "step": self.step, **self._fixed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for key, own in self._fixed.items():
            if state.get(key) != own:
                raise UsageError(f"the checkpoint does not fit this run: {_differs(key, state.get(key), own)}")
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        check_version(state, within=self.step not in (0, self.steps))  # on every rank, also where the own part is used up
        self.train_on(self.minibatches, self.steps)

    def describe(self) -> dict[str, Any]:
        return {} if self.minibatches is None else self.minibatches.describe()
