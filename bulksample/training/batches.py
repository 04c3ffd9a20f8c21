"""The steps of a round: what a rank trains on in each, and where a run stands in them.

`Minibatches` come with their inputs: the rows of the next ones travel while the present ones are computed with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

from ..config.train import TrainConfig
from ..distributed.comm.base import Comm
from ..distributed.comm.ledger import Ledger
from ..errors import UsageError
from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..nn.layers import Input
from ..samplers import Sampler
from ..views.features import Fetching
from ..views.view import View
from .link_batches import loader_of


class Step(NamedTuple):
    """What a rank trains on in one step."""

    minibatch: MiniBatch | None  # None where the epoch has none for this rank; it takes part in the collectives all the same
    x: Input | None


NOTHING = Step(None, None)


class BatchSource(ABC):
    """The steps of one epoch after another; alike in number on every rank.

    Attributes
    ----------
    epoch : int
        The one under way.
    step : int
        Steps of it that were consumed: yielded, and asked for the next.
    steps : int
        Of an epoch.
    together : int
        Minibatches whose features are fetched at once.
    """

    epoch = step = 0
    steps = together = 1

    @abstractmethod
    def __iter__(self) -> Iterator[Step]:
        """The remaining steps of the epoch. The one that was yielded last counts as consumed."""

    @abstractmethod
    def drop(self) -> None:
        """Give up what is under way, before its time; all ranks do so after the same step."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Where the run stands: what JSON can say, with ``epoch`` and ``step``."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; raises `UsageError` where it does not fit."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """For the report."""


class Window(NamedTuple):
    """Minibatches whose rows are fetched at once, and where the loader stands after each of them."""

    minibatches: list[MiniBatch | None]
    places: list[dict[str, Any]]
    fetching: Fetching


class MiniBatchSource(BatchSource):
    """The minibatches of a loader, their features fetched.

    Parameters
    ----------
    loader : BulkLoader
    view : View
    ledger : Ledger
        Time goes to "sample" and "fetch".
    together : int
        Minibatches in a window. A row that several of them hold is fetched once; the rows of up to two windows are held.

    Notes
    -----
    The next window is sent for in the middle of the present one, before its only minibatch where it has one: so there is time
    to sample as well as to fetch. The loader is ahead of what was consumed, and the place of a run is told here. Features are
    fetched in the same order on every rank, by all of them.
    """

    def __init__(self, loader: BulkLoader, view: View, ledger: Ledger, together: int = 1) -> None:
        self.loader, self._view, self._ledger, self.together, self.steps = loader, view, ledger, together, loader.steps
        self._stand(loader.state_dict())
        self._upcoming: Window | None = None

    def _stand(self, place: dict[str, Any]) -> None:
        self._place, self.epoch, self.step = place, int(place["epoch"]), int(place["step"])

    def __iter__(self) -> Iterator[Step]:
        remaining = iter(self.loader)
        self._start(remaining)
        while self._upcoming is not None:
            window, self._upcoming = self._upcoming, None
            with self._ledger.phase("fetch"):
                rows = window.fetching.wait()
            first = 0
            for i, (minibatch, place) in enumerate(zip(window.minibatches, window.places, strict=True)):
                if i == len(window.places) // 2:
                    self._start(remaining)
                last = first + (0 if minibatch is None else len(minibatch.vertices))
                self._stand(place)
                yield Step(minibatch, rows if len(window.minibatches) == 1 else rows[first:last])
                self._view.stream_sync.after_use(minibatch)
                first = last
        self._stand(self.loader.state_dict())

    def drop(self) -> None:
        if self._upcoming is not None:
            self._upcoming.fetching.wait()
            self._upcoming = None

    def _start(self, remaining: Iterator[MiniBatch | None]) -> None:
        """Take the next window, if there is one, and send for its rows."""
        taken, places = [], []
        with self._ledger.phase("sample"):
            for minibatch in islice(remaining, self.together):
                taken.append(minibatch)
                places.append(self.loader.state_dict())
        if taken:
            with self._ledger.phase("fetch"):
                self._view.stream_sync.before_use(taken)
                fetching = self._view.features.start(_vertices(taken))
            self._upcoming = Window(taken, places, fetching)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)
        self._stand(self.loader.state_dict())

    def describe(self) -> dict[str, Any]:
        return {"bulk_size": self.loader.bulk_size, "predicted_bytes": self.loader.predicted_bytes}


def _vertices(minibatches: list[MiniBatch | None]) -> Any:
    """Of all of them, where they lie."""
    lists: list[Any] = [minibatch.vertices for minibatch in minibatches if minibatch is not None]
    if len(lists) < 2:
        return lists[0] if lists else np.empty(0, np.int32)
    return torch.cat(lists) if isinstance(lists[0], torch.Tensor) else np.concatenate(lists)


class WholeGraphSource(BatchSource):
    """One step an epoch, on everything."""

    def __iter__(self) -> Iterator[Step]:
        if not self.step:
            self.step = 1
            yield NOTHING
        self.epoch, self.step = self.epoch + 1, 0

    def drop(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != {"epoch", "step"}:
            raise UsageError("the state is one of minibatches, not of training on the whole graph")
        self.epoch, self.step = int(state["epoch"]), int(state["step"])

    def describe(self) -> dict[str, Any]:
        return {}


def make_loader(config: TrainConfig, view: View, sampler: Sampler, comm: Comm, ahead: bool = True, budget: int | None = None) -> BulkLoader:
    """This rank's loader: of the minibatches of an epoch it gets those whose number is its rank modulo the ranks.

    `ahead`: sample the next bulk while the present one is used. `budget`: of bytes, where the configuration has none.
    """
    loader = loader_of(
        config, view, sampler,
        batch_size=config.batch_size, bulk_size=config.bulk_size, seed=config.seed,
        rank=comm.rank, ranks=comm.size, memory_budget=config.memory_budget or budget, prefetch=ahead, handed=view.stream_sync.bulk_sampled,
    )  # fmt: skip
    if view.sampling is not None:  # every call is collective then
        loader.bulk_size = min(comm.gather_control(loader.bulk_size))
    return loader
