"""The sequence of training steps: the mini-batch and the input rows of each step, and the position from which a run resumes.

`MiniBatchSource` fetches inputs ahead: the rows of the next mini-batches are fetched while the model trains on the current ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np

from ..distributed.comm.ledger import Ledger
from ..errors import UsageError
from ..graph.minibatch import MiniBatch
from ..loading.loader import BulkLoader
from ..nn.gather import OwnAndMean
from ..nn.layers import FirstInput
from ..views.edges import EdgeRows
from ..views.features import FeatureSource, Fetching
from ..views.view import View
from .input_layer import InPlace


class StepBatch(NamedTuple):
    """The mini-batch and the input rows that a rank trains on in one step."""

    minibatch: MiniBatch | None  # None if the rank has no mini-batch left; it still takes part in the collectives
    x: FirstInput | None
    edges: EdgeRows | None = None  # of the edges of `MiniBatch.edge_ends`, if the view fetches them


EMPTY_BATCH = StepBatch(None, None)


class BatchSource(ABC):
    """An iterable over the training steps of this rank. Each iteration yields the remaining steps of an epoch; then the next begins."""

    epoch = 0
    step = 0  # complete steps of this epoch; a step is complete when the next one is requested
    steps = 1  # of an epoch
    together = 1  # mini-batches whose features are fetched at once
    slots = 1  # batches that an iteration yields for each step; see `training.step`

    @abstractmethod
    def __iter__(self) -> Iterator[StepBatch]:
        """Yield the remaining steps of the epoch. A step is complete when the next one is requested."""

    def drop(self) -> None:
        """Discard the steps that were prepared ahead; all ranks call this after the same step. An iteration that began cannot go on."""
        return

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the run as a JSON object, with ``epoch`` and ``step``, for a checkpoint."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position that `state_dict` returned; raises `UsageError` if it belongs to a run with other steps."""

    def describe(self) -> dict[str, Any]:
        """Return the entries for the run's report."""
        return {}


class AskedWindow(NamedTuple):
    """Mini-batches whose rows are fetched at once, and what starts to fetch them from the ranks that have been asked for them."""

    minibatches: list[MiniBatch | None]
    positions: list[dict[str, Any]]  # of the loader, after each of them
    begin: Callable[[], Fetching]
    begin_edges: Callable[[], Callable[[], EdgeRows]] | None

    def start(self, view: View) -> Callable[[], tuple[FirstInput, EdgeRows | None]]:
        """Start to fetch, collective if rows are; return what waits for the input rows and, if they are fetched, those of the edges."""
        view.meeting.at(self.positions[0])
        fetching, edges = self.begin(), None if self.begin_edges is None else self.begin_edges()
        return lambda: (fetching(), None if edges is None else edges())


class MiniBatchSource(BatchSource):
    """The mini-batches of a loader, with their features; the ledger counts seconds as "sample" and "fetch".

    A window has `together` mini-batches: a row that several of them need is fetched once, and the rows of at most two windows are in
    memory. With `leave_together`, all ranks leave an iteration after the same step; otherwise `settle` serves those that went on when this
    rank left.

    Other ranks are asked for the rows of all windows of a bulk at once, so their ids travel in one exchange, and ranks compare their steps
    once a bulk. The bulks of all ranks have the same sizes, and all ranks fetch in the same order, because fetching is collective.
    Fetching of the next window starts in the middle of the present one (before its only mini-batch, if it has one), so sampling
    and fetching both overlap with training. The loader is ahead of training; this class keeps the position of the run.

    With `in_place`, own rows and means of features are computed where they lie, in the place of input rows; see `input_layer`.
    """

    def __init__(
        self, loader: BulkLoader, view: View, ledger: Ledger, together: int = 1, leave_together: bool = True,
        in_place: InPlace | None = None,
    ) -> None:  # fmt: skip
        self.loader, self._view, self._ledger, self.together, self.steps = loader, view, ledger, together, loader.steps
        self.slots, self._leave_together, self._in_place = loader.slots, leave_together, in_place
        self._move_to(loader.state_dict())
        self._asked = deque[AskedWindow]()
        self._upcoming: tuple[AskedWindow, Callable[[], tuple[FirstInput, EdgeRows | None]]] | None = None  # with what waits for its rows
        self._taken = deque[MiniBatch | None]()  # mini-batches whose rows other streams or ranks were asked for, and that no step has used
        self._left: list[Callable[[], Any]] = []  # end the fetches of iterations that were left
        self._unused: list[MiniBatch | None] = []  # mini-batches of these iterations
        self._iteration = object()  # the one that may go on

    def _move_to(self, position: dict[str, Any]) -> None:
        self._position, self.epoch, self.step = position, int(position["epoch"]), int(position["step"])

    def __iter__(self) -> Iterator[StepBatch]:
        with closing(iter(self.loader)) as remaining:
            yield from self._fetched(remaining)

    def _fetched(self, remaining: Iterator[MiniBatch | None]) -> Iterator[StepBatch]:
        """Yield the remaining steps of an iteration, whose mini-batches are those of the loader."""
        self._iteration = this = object()
        self._asked.clear()
        self._view.stream_sync.never_used(self._taken)
        self._taken.clear()
        self._start(remaining)
        while self._upcoming is not None:
            (window, wait), self._upcoming = self._upcoming, None
            with self._ledger.phase("fetch"):
                rows, edges = wait()
            each, first_edge = self._cut(rows, window.minibatches), 0
            for i, (minibatch, position) in enumerate(zip(window.minibatches, window.positions, strict=True)):
                if i == len(window.positions) // 2:
                    self._start(remaining)
                last_edge = first_edge + (0 if minibatch is None or edges is None else minibatch.num_edges)
                self._move_to(position)
                yield StepBatch(minibatch, each[i], edges.part(first_edge, last_edge) if edges else None)
                if self._iteration is not this:
                    raise UsageError("these mini-batches were left for others: `drop`, a new position or a new iteration; iterate anew")
                self._view.stream_sync.after_use(self._taken.popleft())
                first_edge = last_edge
        self._move_to(self.loader.state_dict())

    def drop(self) -> None:
        self._iteration = object()
        self._unused += self._taken
        self._taken.clear()
        if self._upcoming is not None:
            self._left.append(self._upcoming[1])
            self._upcoming = None
        if self._leave_together:
            self.settle()
        else:
            self._left += [partial(self._fetch, window) for window in self._asked]  # for the sake of the other ranks
        self._asked.clear()

    def _fetch(self, window: AskedWindow) -> None:
        window.start(self._view)()

    def settle(self) -> None:
        """End the fetches of iterations that this rank left, to the end of their bulk; collective."""
        left, self._left = self._left, []
        for end in left:
            end()
        self._view.stream_sync.never_used(self._unused)
        self._unused.clear()

    def _start(self, remaining: Iterator[MiniBatch | None]) -> None:
        """Start to fetch the rows of the next window, if there is one."""
        if not self._asked:
            self._ask(remaining)
        if self._asked:
            window = self._asked.popleft()
            with self._ledger.phase("fetch"):
                self._upcoming = window, window.start(self._view)

    def _ask(self, remaining: Iterator[MiniBatch | None]) -> None:
        """Take the next window, and those that follow in the bulk that has been sampled, and ask for their rows."""
        windows: list[tuple[list[MiniBatch | None], list[dict[str, Any]]]] = []  # mini-batches, and positions after them
        with self._ledger.phase("sample"):
            while not windows or self.loader.ready >= self.together:
                steps = [(minibatch, self.loader.state_dict()) for minibatch in islice(remaining, self.together)]
                if not steps:
                    break
                windows.append(([minibatch for minibatch, _ in steps], [position for _, position in steps]))
        if windows:
            view = self._view
            with self._ledger.phase("fetch"):
                minibatches = [minibatch for window, _ in windows for minibatch in window]
                taken = [[minibatch for minibatch in window if minibatch is not None] for window, _ in windows]
                view.stream_sync.before_use(minibatches)
                self._taken.extend(minibatches)
                view.meeting.at(windows[0][1][0])
                with view.stream_sync.on_fetch_stream():
                    rows = self._input(taken)
                ends = repeat(None) if view.edges is None else view.edges.ask([_edge_ends(window) for window in taken])
            self._asked.extend(map(AskedWindow, *zip(*windows, strict=True), rows, ends))

    def _cut(self, rows: Any, minibatches: list[MiniBatch | None]) -> list[Any]:
        """Divide the rows of a window among its mini-batches; vertices are asked for only if there are several."""
        if len(minibatches) == 1:
            return [rows]
        return self._view.features.cut(rows, [None if one is None else one.vertices for one in minibatches])

    def _input(self, windows: list[list[MiniBatch]]) -> list[Callable[[], Fetching]]:
        """Ask for the input of each window; return what starts to fetch or to compute it."""
        features = self._view.features
        if self._in_place is None:
            return features.ask([features.joined([one.vertices for one in window]) for window in windows])
        asked: list[Callable[[], Fetching]] = []
        for window in windows:
            if window and self._in_place.gathers and self._in_place.gathers(window[0].blocks[0]):
                asked += features.ask([features.joined([one.vertices for one in window])])
            else:
                asked.append(partial(_own_and_mean, self._in_place.features, window))
        return asked

    def state_dict(self) -> dict[str, Any]:
        return dict(self._position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        now = self._position["ranks"]
        if isinstance(state, dict) and state.get("ranks", now) != now:
            raise UsageError(f"the state of training does not fit: ranks was {state['ranks']!r} and is {now!r} now")
        self.continue_from(state)

    def continue_from(self, state: dict[str, Any], onward: bool = False) -> None:
        """Go to a position that may come from another number of ranks, see `BulkLoader.load_state_dict`; drop what was prepared ahead."""
        self.drop()
        self.loader.load_state_dict(state, onward)
        self._move_to(self.loader.state_dict())

    def describe(self) -> dict[str, Any]:
        way = "gathered" if self._in_place is None else "fused"
        return {"bulk_size": self.loader.bulk_size, "predicted_bytes": self.loader.predicted_bytes, "input_layer": way}


def _own_and_mean(features: FeatureSource, window: list[MiniBatch]) -> Callable[[], OwnAndMean | None]:
    """Start to compute the input of the only mini-batch of a window, if it has one."""
    if not window:
        return lambda: None
    (minibatch,) = window
    return features.start_own_and_mean(minibatch.inner.vertices, minibatch.input_hop)


def _edge_ends(minibatches: list[MiniBatch]) -> tuple[np.ndarray, np.ndarray]:
    """Return the destinations and the sources of the sampled edges of all mini-batches, one after another."""
    ends = [minibatch.edge_ends() for minibatch in minibatches]
    empty = np.empty(0, np.int32)
    return np.concatenate([empty, *(v for v, _ in ends)]), np.concatenate([empty, *(u for _, u in ends)])


class WholeGraphSource(BatchSource):
    """One step an epoch, on the whole graph."""

    def __iter__(self) -> Iterator[StepBatch]:
        if not self.step:
            self.step = 1
            yield EMPTY_BATCH
        self.epoch, self.step = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state.keys() != {"epoch", "step"}:
            raise UsageError("the state belongs to training on mini-batches; this run trains on the whole graph")
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
