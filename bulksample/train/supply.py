"""Minibatches together with their inputs, one ahead: the rows of the next travel while the present one is computed with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..loader import BulkLoader
from ..minibatch import MiniBatch
from ..report.ledger import Ledger
from .features import Fetching
from .layers import Input
from .view import View

_NOTHING = np.empty(0, np.int32)


class Step(NamedTuple):
    """What a rank trains on in one step."""

    minibatch: MiniBatch | None  # None where the epoch has none for this rank; it takes part in the collectives all the same
    x: Input


class Supply:
    """The steps of a loader, and where the run stands in them.

    Parameters
    ----------
    loader : BulkLoader
    view : View
    ledger : Ledger
        Time goes to "sample" and "fetch".

    Notes
    -----
    The loader is one step ahead of what was consumed, so the place of a run is told here. Features are fetched in the
    same order on every rank, by all of them.
    """

    def __init__(self, loader: BulkLoader, view: View, ledger: Ledger) -> None:
        self._loader, self._view, self._ledger = loader, view, ledger
        self._place = loader.state_dict()
        self._upcoming: tuple[MiniBatch | None, Fetching] | None = None

    @property
    def epoch(self) -> int:
        """The epoch under way."""
        return int(self._place["epoch"])

    @property
    def step(self) -> int:
        """Steps of it that were consumed: yielded, and asked for the next."""
        return int(self._place["step"])

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self._loader.steps

    def __iter__(self) -> Iterator[Step]:
        """The remaining steps of the epoch. The one that was yielded last counts as consumed."""
        minibatches = iter(self._loader)
        self._start(minibatches)
        while self._upcoming is not None:
            (minibatch, fetching), place = self._upcoming, self._loader.state_dict()
            with self._ledger.phase("fetch"):
                x = fetching.wait()
            self._start(minibatches)
            self._place = place
            yield Step(minibatch, x)
        self._place = self._loader.state_dict()

    def drop(self) -> None:
        """Give up the step that is under way, before its time; all ranks do so after the same step."""
        if self._upcoming is not None:
            self._upcoming[1].wait()
            self._upcoming = None

    def _start(self, minibatches: Iterator[MiniBatch | None]) -> None:
        """Take the next minibatch, if there is one, and send for its rows."""
        self._upcoming = None
        with self._ledger.phase("sample"):
            try:
                minibatch = next(minibatches)
            except StopIteration:
                return
        with self._ledger.phase("fetch"):
            self._upcoming = minibatch, self._view.features.start(_NOTHING if minibatch is None else minibatch.vertices)

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands; see `BulkLoader.state_dict`."""
        return dict(self._place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; raises `UsageError` where it does not fit the loader."""
        self._loader.load_state_dict(state)
        self._place = self._loader.state_dict()
