"""Synchronization of the sampler with the training step, and of the steps of ranks that share a graph. By default nothing needs it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..graph.minibatch import MiniBatch


class StreamSync:
    """Orders the sampler's work and the training step's work on shared memory. On a CPU nothing needs ordering."""

    def bulk_sampled(self, bulk: list[MiniBatch]) -> list[MiniBatch]:
        """Return the bulk that the loader hands out; called on the thread that sampled it."""
        return bulk

    def before_use(self, minibatches: Sequence[MiniBatch | None]) -> None:
        """Make later fetches and steps wait until these mini-batches are complete."""

    def after_use(self, minibatch: MiniBatch | None) -> None:
        """Note that every operation on this mini-batch has been started."""

    def never_used(self, minibatches: Sequence[MiniBatch | None]) -> None:
        """Note that no step will use these mini-batches; their rows may have been fetched."""

    def on_fetch_stream(self) -> AbstractContextManager[Any]:
        """Return a context that queues operations on tensors where fetches read them."""
        return nullcontext()


class Meeting:
    """The meetings of ranks that iterate over a graph together. Training ranks agree on their steps otherwise, so these are no meetings."""

    meets = False  # at every bulk, to sample it or to ask for its rows

    def at(self, step: dict[str, Any]) -> None:
        """Name the step, by its position, whose rows are fetched next; ranks that fetch together compare it."""


class SharedMeeting(Meeting):
    """The meetings of ranks whose loaders share a graph: on `sampled` if the adjacency is collective, on `fetching` if rows are fetched."""

    def __init__(self, comm: Comm, sampled: Comm | None, fetching: list[Comm]) -> None:
        self._rank, self._fetching, self._sampled = comm.rank, fetching, sampled
        self._fetched = fetching[0] if fetching else sampled or comm
        self.meets = bool(fetching) or sampled is not None

    def at(self, step: dict[str, Any]) -> None:
        place = f"step {step['step'] - 1} of epoch {step['epoch']}"
        for comm in self._fetching:
            comm.at(f"{place} from {step['first']}", f"rank {self._rank} is at {place}")

    def begin(self, epoch: int, step: int, first: int, left: int | None, message: str, ahead: bool, samples: bool) -> None:
        """Compare the beginning of an iteration with all ranks, also with those that are still in the one before; collective.

        This rank left the iteration before after `left` steps, None if it took all, of which `message` tells errors. With `ahead`, ranks
        sample on a thread, so those that go on meet this one as they ask for rows; otherwise they meet it as they sample. With `samples`,
        the threads of ranks that go on are sampling a bulk, and wait for this rank. Raises `UsageError` on every rank if the ranks are at
        different places.
        """
        place = f"begin epoch {epoch} at step {step} from {first}, left {left}"
        message = f"rank {self._rank} begins epoch {epoch} at step {step}{message}"
        meeting = self._fetched if ahead or self._sampled is None else self._sampled
        try:
            _compare(meeting, place, message)
        except UsageError:
            if samples and self._sampled is not None and self._sampled is not meeting:
                with suppress(UsageError):
                    _compare(self._sampled, place, message)
            raise


def _compare(comm: Comm, place: str, message: str) -> None:
    comm.at(place, message)
    try:
        comm.exchange_counts([0] * comm.size, "control", "an iteration", 0)
    finally:
        comm.at("", "")
