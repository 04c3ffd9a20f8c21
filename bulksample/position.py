"""The mini-batches of an epoch that each rank takes, and the position of a loader, which can be saved and continued on any number of ranks.

    step t of rank r of p:   mini-batch f + t p + r,   f = the mini-batches that all ranks had used when p ranks took over

A mini-batch's number does not depend on p, so a state that names how many were used fits any p.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .errors import UsageError


@dataclass(frozen=True)
class EpochShare:
    """The mini-batches of one epoch that one rank takes.

    Parameters
    ----------
    minibatches : int
        M, of the whole epoch.
    rank, ranks : int
    even : bool
        Take a mini-batch at every step: repeat the first ones at the end of the epoch or, with `drop_last`, leave out the last ones.
    drop_last : bool
    first : int
        f, the number of the mini-batch that rank 0 takes at step 0.
    """

    minibatches: int
    rank: int = 0
    ranks: int = 1
    even: bool = False
    drop_last: bool = False
    first: int = 0

    @property
    def steps(self) -> int:
        """The number of steps, the same on every rank."""
        left = self.minibatches - self.first
        return left // self.ranks if self.even and self.drop_last else -(-left // self.ranks)

    def id(self, step: int) -> int | None:
        """Return the number of the mini-batch of a step; None if the epoch has none left for this rank."""
        number = self.first + step * self.ranks + self.rank
        if number < self.minibatches:
            return number
        return number % self.minibatches if self.even else None

    def repeats(self, step: int) -> bool:
        """Return True if the mini-batch of a step is one that was taken before, for want of others."""
        return self.first + step * self.ranks + self.rank >= self.minibatches


class Position:
    """The position of a loader: its epoch, and the steps of it that are used.

    Parameters
    ----------
    whole : EpochShare
        The share of an epoch that begins at its first mini-batch.

    Attributes
    ----------
    share : EpochShare
        The share of the current epoch; it begins later if another number of ranks used the first mini-batches.
    step : int
        Steps of `share` that are used.
    """

    def __init__(self, whole: EpochShare) -> None:
        self._whole = self.share = whole
        self._epoch = self.step = 0
        self._resumed = False  # True if the next iteration goes on at the step of a state

    @property
    def epoch(self) -> int:
        """The current epoch, from 0. Set it to take that epoch from its start."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch, self.step, self.share, self._resumed = epoch, 0, self._whole, False

    def begin(self) -> int:
        """Begin an iteration and return its epoch.

        If the previous iteration stopped early, move to the next epoch, unless a state was just loaded.
        """
        if self.step and not self._resumed:
            self.epoch += 1
        self._resumed = False
        return self._epoch

    def use(self, epoch: int, step: int) -> None:
        """Record that an iteration has used so many steps of its epoch; ignored if the loader is in another epoch by now."""
        if self._epoch == epoch:
            self.step = step

    def end(self, epoch: int) -> None:
        """Move on to the next epoch."""
        if self._epoch == epoch:
            self.epoch = epoch + 1

    @property
    def used(self) -> int:
        """The number of mini-batches of the epoch that all ranks have used."""
        return min(self.share.first + self.step * self.share.ranks, self.share.minibatches)

    def state(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the position and what the mini-batches depend on, ready for JSON."""
        return {"epoch": self._epoch, "step": self.step, "first": self.share.first, "ranks": self._whole.ranks, **identity}

    def load(self, state: dict[str, Any], identity: dict[str, Any]) -> None:
        """Go to the position of a state, which may come from another number of ranks.

        Raises
        ------
        UsageError
            If the state has another identity, is no state, or names a step that an epoch does not have. A key "graph" may be missing.
        """
        if not isinstance(state, dict):
            raise UsageError(f"the loader's state must be what state_dict returned; got {type(state).__name__}")
        for key, own in identity.items():
            if state.get(key) != own and (key != "graph" or key in state):
                raise UsageError(f"the loader's state does not fit: {key} was {state.get(key)!r} and is {own!r} now")
        epoch, step, first, ranks = (
            state.get(key, default) for key, default in (("epoch", -1), ("step", -1), ("first", 0), ("ranks", self._whole.ranks))
        )
        if not all(type(number) is int for number in (epoch, step, first, ranks)) or min(epoch, step, first, ranks - 1) < 0:
            raise UsageError(f"the loader's state is damaged: epoch {epoch!r}, step {step!r}, first {first!r}, ranks {ranks!r}")
        then = replace(self._whole, rank=0, ranks=ranks, first=first)
        if first > then.minibatches or step > then.steps:
            found = f"epoch {epoch!r}, step {step!r}, first {first!r}"
            raise UsageError(f"the loader's state is damaged: {found}; an epoch has {replace(then, first=0).steps} steps")
        self._epoch, self._resumed = epoch, True
        if ranks == self._whole.ranks:
            self.step, self.share = step, replace(self._whole, first=first)
        else:
            self.step, self.share = 0, replace(self._whole, first=min(first + step * ranks, then.minibatches))
