"""Synchronization between the sampler and the training step; does nothing on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..minibatch import MiniBatch


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
