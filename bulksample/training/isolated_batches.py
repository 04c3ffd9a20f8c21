"""The steps of ranks that train apart, each on its own seeds: as many steps on every rank, and no seed left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..loader import BulkLoader
from ..samplers import Sampler
from ..views.view import View
from .batches import NOTHING, BatchSource, MiniBatchSource, Step
from .link_batches import loader_of

if TYPE_CHECKING:
    from .loop import Trainer

APART = 0x9E3779B97F4A7C15  # ranks draw with seeds of their own, since rows have the same names on all of them


def part_loader(trainer: Trainer, part: int, batch_size: int) -> BulkLoader:
    """The minibatches of the part that a rank sees, made ahead where the rank has a thread for that."""
    config, ahead = trainer.config, trainer.division.sample > 0
    options = {"batch_size": batch_size, "bulk_size": config.bulk_size, "prefetch": ahead}
    return loader_apart(trainer, trainer.view, trainer.sampler, APART * part, **options)


def loader_apart(trainer: Trainer, view: View, sampler: Sampler, number: int, **options: Any) -> BulkLoader:
    """A loader of the examples of a view, by a seed that differs by a number from that of the run."""
    config = trainer.config
    seed, budget = (config.seed + number) % 2**64, config.memory_budget or trainer.place.budget()
    return loader_of(config, view, sampler, seed=seed, memory_budget=budget, handed=view.stream_sync.bulk_sampled, **options)


def shared_steps(seeds: list[int], batch_size: int) -> tuple[int, list[int]]:
    """How many steps all ranks make, and the batch size of each: max over r of ceil(n_r / b); b where a rank needs them all.

    Parameters
    ----------
    seeds : n_r, those of each rank
    """
    own = [-(-count // batch_size) for count in seeds]
    steps = max(own)
    return steps, [batch_size if mine == steps else max(1, -(-count // steps)) for mine, count in zip(own, seeds, strict=True)]


class IsolatedBatches(BatchSource):
    """Steps on one view after another.

    Parameters
    ----------
    what : dict
        What must be alike for a run to go on from a state.
    forget : callable
        Called where what is under way is given up.

    Attributes
    ----------
    minibatches : Minibatches, optional
        Of the present view, to be set before the first step on it; without them a step is one pass over everything.
    """

    def __init__(self, what: dict[str, Any], forget: Callable[[], None]) -> None:
        self._what, self._forget = what, forget
        self.minibatches: MiniBatchSource | None = None

    def train_on(self, minibatches: MiniBatchSource | None, steps: int) -> None:
        """Go on with another view, from where the run stands."""
        self.minibatches, self.steps = minibatches, steps
        if minibatches is not None:
            place = {"epoch": self.epoch, "step": min(self.step, minibatches.steps)}
            minibatches.load_state_dict(minibatches.state_dict() | place)

    def __iter__(self) -> Iterator[Step]:
        held = iter(self.minibatches or ())
        while self.step < self.steps:
            step = next(held, NOTHING)
            self.step += 1
            yield step
        for _ in held:  # it moves on to the next epoch when it is asked once more
            raise UsageError(f"there are more than {self.steps} steps in epoch {self.epoch}")
        self.epoch, self.step = self.epoch + 1, 0

    def drop(self) -> None:
        if self.minibatches is not None:
            self.minibatches.drop()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "step": self.step, **self._what}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for key, own in self._what.items():
            if state.get(key) != own:
                raise UsageError(f"the state does not fit: {key} was {state.get(key)!r} and is {own!r} now")
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        self.train_on(self.minibatches, self.steps)

    def describe(self) -> dict[str, Any]:
        return {} if self.minibatches is None else self.minibatches.describe()
