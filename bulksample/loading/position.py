"""The position of a loader in its epochs, which can be saved, and continued on any number of ranks."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from abc import abstractmethod
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..errors import UsageError, is_whole
from ..pickled import CopiedAlong
from ..process_lock import process_lock
from ..rng import MAX_EPOCHS
from .division import EpochShare

T = TypeVar("T")
_BEGINNING = process_lock()
_REMEDIES = {
    "edge_labels": "another table edge_labels; use that of the run that saved it",
    "seed_locality": "other groups of seeds; use the seed_locality, the partition or parts, and the seeds of the run that saved it",
    "sampling_weights": "other weights of seeds; use those of the run that saved it",
    "inputs": "other examples; use those of the run that saved it; ranks that divide examples by hand save and load a state each",
    "seeds": "other seeds; use those of the run that saved it",
    "times": "other times of seeds; use those of the run that saved it",
    "graph": "another graph; use that of the run that saved it",
}  # for what a state names by a hash
_OPTIONAL = ("graph", "seed_locality", "sampling_weights", "steps_per_epoch")  # what a state may lack
VERSION = 2  # of states; those of version 1, which name no version, come from epochs that were shuffled in another order


def check_version(state: dict[str, Any], within: bool) -> None:
    """Raise `UsageError` for a state of a later version, or one of an earlier version from within an epoch of shuffled examples."""
    version = state.get("version", 1)
    if type(version) is not int or not 1 <= version <= VERSION:
        raise UsageError(f"the loader's state is of version {version!r}; this version of bulksample reads 1 to {VERSION}")
    if version < VERSION and within:
        raise UsageError(
            "the loader's state was saved in the middle of an epoch by an earlier version of bulksample, which shuffled seeds in another "
            "order: some would come twice and others never; use a state from the end of an epoch, or start a new run"
        )


@dataclass(eq=False)
class Begun:
    """An iteration that has begun, and its epoch. It moves the position until the loader is moved elsewhere."""

    epoch: int


class Positioned:
    """A loader whose epoch and state are those of its `_position`."""

    @property
    @abstractmethod
    def _position(self) -> Any:
        """The object that knows the mini-batch in use."""

    @property
    def epoch(self) -> int:
        """The current epoch, from 0. Set it to take that epoch, from its start, in the next iteration."""
        return int(self._position.epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._position.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, as plain JSON values; the mini-batch yielded last counts as used."""
        state: dict[str, Any] = self._position.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state_dict` returned; the mini-batches that follow are those of an uninterrupted run.

        `bulk_size`, `threads`, `backend` and `ranks` may differ. On another number of ranks, the remaining mini-batches of the epoch
        are dealt to these ranks in turn. After the last mini-batch of an epoch, the next epoch begins. Raises `UsageError` if the state
        comes from a loader with another graph, other seeds, sampler, `batch_size`, `seed` or `shuffle`. States of earlier versions name no
        graph and are accepted.
        """
        self._position.load_state_dict(state, onward=True)


class Position(CopiedAlong):
    """The position of a loader: its epoch, and the steps of it that are used. `whole` is the share of an epoch from its start."""

    def __init__(self, whole: EpochShare) -> None:
        self._whole = self.share = whole  # the share of the current epoch; it begins later if other ranks used the first mini-batches
        self._epoch = self.step = 0  # steps of `share` that are used
        self._turns: dict[object, threading.Thread] = {}  # of each iteration under way, the thread that took its last step
        self._resumed = False  # True if the next iteration goes on at the step of a state
        self._named = False  # True if the user has named the epoch of the next iteration, or loaded a state
        self._begun: Begun | None = None  # the iteration that moves the position
        self._process: int | None = None  # the one in which an iteration has moved it last

    def __getstate__(self) -> dict[str, Any]:
        """Return the position for a pickle or a copy, whose next iteration goes on here, as after a state was loaded."""
        made = Position(self._whole)
        made._epoch, made._resumed, made.step, made.share, made._named = self._epoch, True, self.step, self.share, self._named
        made._skip_end()
        return vars(made)

    def _arrive(self) -> None:
        """Become, in a process that was forked after an iteration had begun, the copy that a pickle makes."""
        if self._process not in (None, os.getpid()):
            self._begun, self._process, self._resumed = None, None, True
            self._skip_end()

    def in_turn(self, steps: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the steps of an iteration; meanwhile no other thread begins one.

        Raises `UsageError` if another thread is in an iteration: it has begun and not ended, is not closed, and the thread lives.
        """
        turn, thread = object(), threading.current_thread()
        try:
            with _BEGINNING:
                others = [other for other in list(self._turns.values()) if other is not thread and other.is_alive()]
                if not others:
                    self._turns[turn] = thread
            if others:
                raise UsageError(
                    f"thread {thread.name} begins to iterate over a loader while thread {others[0].name} does, and both would get the "
                    "same mini-batches; make a loader for each thread, with rank and ranks to share an epoch, or close the first iterator"
                )
            with closing(steps):
                for step in steps:
                    self._turns[turn] = threading.current_thread()  # an iterator may be handed on
                    yield step
        finally:
            self._turns.pop(turn, None)

    @property
    def epoch(self) -> int:
        """The current epoch, from 0. Set it to take that epoch from its start, whatever an iteration under way does."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if not is_whole(epoch, 0, MAX_EPOCHS - 1):
            raise UsageError(f"epoch must be a whole number in 0 .. {MAX_EPOCHS - 1}; got {epoch!r}")
        self._go_to(int(epoch))
        self._named = True

    def _go_to(self, epoch: int) -> None:
        """Go to the start of an epoch; no iteration under way moves the position any more."""
        self._begun, self._epoch, self.step, self.share, self._resumed = None, epoch, 0, self._whole, False

    @property
    def coming(self) -> tuple[int, int, int]:
        """The epoch of the iteration that `begin` would begin, its first step, and the first mini-batch of its share."""
        self._arrive()
        if self.step and not self._resumed:
            return self._epoch + 1, 0, 0
        return self._epoch, self.step, self.share.first

    def begin(self) -> Begun:
        """Begin an iteration, of the next epoch if the previous one stopped early, unless a state was just loaded."""
        self._arrive()
        if self.step and not self._resumed:
            self._go_to(self._epoch + 1)
        if self._process is None:
            _warn_in_worker(self._epoch, again=not self._named, whole=self._whole.ranks == 1)
        self._resumed, self._named, self._process = False, False, os.getpid()
        self._begun = begun = Begun(self._epoch)
        return begun

    def use(self, begun: Begun, step: int) -> bool:
        """Record that an iteration has used so many steps; return False, with nothing recorded, if it moves the position no more."""
        if self._begun is not begun:
            return False
        self.step, self._process = step, os.getpid()
        return True

    def end(self, begun: Begun) -> None:
        """Move on to the next epoch, if the iteration moves the position."""
        if self._begun is begun:
            self._go_to(begun.epoch + 1)

    @property
    def used(self) -> int:
        """The number of mini-batches of the epoch that all ranks have used."""
        return min(self.share.first + self.step * self.share.together, self.share.minibatches)

    def state(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the position and what the mini-batches depend on, ready for JSON."""
        place = {"epoch": self._epoch, "step": self.step, "first": self.share.first, "ranks": self._whole.together}
        return {"version": VERSION, **place, **identity}

    def load(self, state: dict[str, Any], identity: dict[str, Any], onward: bool = False) -> None:
        """Go to the position of a state, which may come from another number of ranks. ``ranks`` of a state is W.

        If all of its epoch is used, the next iteration yields nothing, or with `onward` the next epoch. Raises `UsageError` if the state
        has another identity, is no state, names a step that an epoch does not have, or comes from an earlier version and the middle of an
        epoch of shuffled examples. A key "graph" may be missing.
        """
        if not isinstance(state, dict):
            raise UsageError(f"the loader's state must be what state_dict returned; got {type(state).__name__}")
        if missing := [key for key in ("epoch", "step", *identity) if key not in state and key not in _OPTIONAL]:
            raise UsageError(f"the loader's state must be what state_dict returned; got a dict without {', '.join(missing)}")
        for key in dict.fromkeys((*_OPTIONAL[1:], *identity)):  # a state may have these where this loader has none
            value = identity.get(key)
            if state.get(key) != value and (key != "graph" or key in state):
                if key in _REMEDIES:
                    raise UsageError(f"the loader's state does not fit: it was saved with {_REMEDIES[key]}, or start a new one")
                remedy = _remedy(key, state, self._whole.together)
                raise UsageError(f"the loader's state does not fit: {key} was {state.get(key)!r} and is {value!r} now{remedy}")
        defaults = {"epoch": -1, "step": -1, "first": 0, "ranks": self._whole.together}
        epoch, step, first, ranks = (state.get(key, default) for key, default in defaults.items())
        if not all(type(number) is int for number in (epoch, step, first, ranks)) or min(epoch, step, first, ranks - 1) < 0:
            raise UsageError(f"the loader's state is damaged: epoch {epoch!r}, step {step!r}, first {first!r}, ranks {ranks!r}")
        then = replace(self._whole, rank=0, ranks=ranks, first=first, virtual=0)
        if ranks != self._whole.together and step % then.cycle and step != then.steps:
            raise UsageError(
                f"the loader's state lies among steps that share the {then.groups} groups of seed_locality; got {self._whole.together} "
                f"ranks or virtual ranks, and it was saved with {ranks}: use {ranks}"
            )
        if first > then.minibatches or step > then.steps:
            got = f"epoch {epoch!r}, step {step!r}, first {first!r}"
            raise UsageError(f"the loader's state is damaged: {got}; an epoch has {replace(then, first=0).steps} steps")
        check_version(state, within=bool(identity.get("shuffle") and (first or step) and step < then.steps))
        self._begun, self._epoch, self._resumed, self._named = None, epoch, True, True
        if ranks == self._whole.together:
            self.step, self.share = step, replace(self._whole, first=first)
        else:
            self.step, self.share = 0, replace(self._whole, first=min(first + step * ranks, then.minibatches))
        if onward:
            self._skip_end()

    def _skip_end(self) -> None:
        """Move on to the next epoch if all of the current one is used."""
        if self.step == self.share.steps:
            self._go_to(self._epoch + 1)


def _remedy(key: str, state: dict[str, Any], together: int) -> str:
    """Return the end of the message that a state does not fit: what to use, if that is known; ranks take `together` mini-batches a step."""
    if key == "random_seed":
        return f"; use seed={state.get(key)!r}"
    steps, ranks = state.get("steps_per_epoch"), state.get("ranks", together)
    if key == "steps_per_epoch" and steps is None:
        return "; leave it out"
    if key not in ("steps_per_epoch", "minibatches") or steps is None or (key == "minibatches" and ranks == together):
        return ""
    of_ranks = "" if ranks == together else f" on {ranks} ranks, where it was saved, as a step has a mini-batch of each"
    return f"; use steps_per_epoch={steps!r}{of_ranks}"


def _warn_in_worker(epoch: int, again: bool, whole: bool) -> None:
    """Warn in a worker process of torch's `DataLoader` of mini-batches that come twice: in each epoch, or from each worker.

    Each worker iterates over a copy, which the parent never hears of again. `epoch` is the one that the first iteration of the copy begins.
    It comes `again` if nobody has named it: copies made for a later iteration of the `DataLoader` would begin it too. `whole` says that the
    loader yields all mini-batches of an epoch.
    """
    data = sys.modules.get("torch.utils.data")  # a worker has imported it
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return
    reasons = []
    if again:
        reasons.append(
            f"it begins epoch {epoch}, and so do the workers of a later iteration of the DataLoader unless they persist: set the loader's "
            "epoch before each"
        )
    if whole and worker.num_workers > 1:
        reasons.append(
            "each worker samples all mini-batches of an epoch: make the loader in the worker with rank=worker.id, "
            f"ranks=worker.num_workers, or skip all but every {worker.num_workers}th"
        )
    if reasons:
        where = f"a loader of bulksample runs in worker {worker.id} of {worker.num_workers} of torch's DataLoader"
        warnings.warn(f"{where}; {'; '.join(reasons)}; or iterate over the loader itself, which samples ahead on a thread", stacklevel=2)
