"""Epochs, positions and devices of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self

from ..errors import UsageError
from ..loader import BulkLoader
from ..pickled import CopiedAlong, Uncached
from ..position import Positioned
from ..profiling import Profile, profiled
from .batch import Batch
from .columns import ColumnsByType, PlainColumns
from .tensors import device_of

if TYPE_CHECKING:
    from .shared_steps import SharedSteps


class EpochLoader(Positioned, Uncached, CopiedAlong):
    """A loader that yields the batches of a new epoch in each iteration, with one position, which a state holds.

    Attributes
    ----------
    bulks : BulkLoader
        Samples the mini-batches.
    device : torch.device or str, optional
        Where the tensors of batches lie; None for numpy arrays.
    _columns : callable
        Makes the columns of a mini-batch, and of its step if ranks share the graph.
    _shared : SharedSteps, optional
        The steps of ranks that share the graph, whose rows are fetched ahead of use; None for a graph in this process.
    """

    bulks: BulkLoader
    device: Any
    _columns: Callable[..., PlainColumns | ColumnsByType]
    _shared: SharedSteps | None = None
    _profile: Profile | None = None

    def __len__(self) -> int:
        """Return the number of mini-batches that this rank yields in an epoch."""
        return self.bulks.steps

    def __iter__(self) -> Iterator[Batch]:
        """Yield the mini-batches of an epoch; of the epoch of a state that was just loaded, the remaining ones.

        Raises `UsageError` while another thread iterates over this loader.
        """
        if self._shared is not None:
            for step, repeated in self._shared:
                yield Batch(self._columns(step.minibatch, step), repeated, self.device)
            return
        for minibatch in self._sampled():
            yield Batch(self._columns(minibatch), self.bulks.repeated, self.device)

    def _check_steps(self, batch_size: int, ranks: int) -> None:
        """Raise `UsageError` if `drop_last` leaves no mini-batch, on every rank."""
        if not self.bulks.steps:
            found = f"{self.bulks.examples} seeds fill {self.bulks.examples // batch_size} of {batch_size}, for {ranks} ranks"
            raise UsageError(f"drop_last leaves no mini-batch: {found}; use drop_last=False, a lower batch_size or fewer ranks")

    def _sampled(self) -> Iterator[Any]:
        """Yield the mini-batches of the whole graph; the wait for each is a phase for profilers."""
        with closing(iter(self.bulks)) as remaining:
            while True:
                with profiled("sample", self._profile):
                    minibatch = next(remaining, None)  # every step of an even loader has a mini-batch
                if minibatch is None:
                    return
                yield minibatch

    def to(self, device: Any = "cpu") -> Self:
        """Return a view of this loader whose batches are torch tensors on a device; see `Batch.to`. Both have one position."""
        view = object.__new__(type(self))
        vars(view).update(vars(self), device=device_of(device))
        return view

    @property
    def _position(self) -> BulkLoader | SharedSteps:
        """Knows the mini-batch in use: the loader of bulks, or the steps whose rows are fetched ahead of use."""
        return self.bulks if self._shared is None else self._shared
