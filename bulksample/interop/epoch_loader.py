"""Epochs, positions and devices of loaders, the same for plain and for heterogeneous graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import UsageError, is_whole
from ..loader import BulkLoader
from ..pickled import CopiedAlong, Uncached
from ..position import Positioned
from ..profiling import Profile, profiled
from .tensor_batch import device_of

if TYPE_CHECKING:
    from .shared_steps import SharedMinibatches, SharedSteps

B = TypeVar("B")  # the batch
T = TypeVar("T")  # the same as tensors


class EpochLoader(Positioned, Uncached, CopiedAlong, Generic[B, T]):
    """A loader that yields the batches of a new epoch in each iteration, with one position, which a state holds.

    Attributes
    ----------
    bulks : BulkLoader
        Samples the mini-batches.
    _shared : SharedMinibatches, optional
        The batches of a graph that ranks share, whose rows are fetched ahead of use; None for a graph in this process.
    """

    bulks: BulkLoader
    _shared: SharedMinibatches[B] | None = None
    _profile: Profile | None = None

    @abstractmethod
    def _batch(self, minibatch: Any, repeated: bool) -> B:
        """Return the batch of a mini-batch whose rows lie in this process."""

    def __len__(self) -> int:
        """Return the number of mini-batches that this rank yields in an epoch."""
        return self.bulks.steps

    def __iter__(self) -> Iterator[B]:
        """Yield the mini-batches of an epoch; of the epoch of a state that was just loaded, the remaining ones.

        Raises `UsageError` while another thread iterates over this loader.
        """
        if self._shared is not None:
            yield from self._shared
            return
        for minibatch in self._sampled():
            yield self._batch(minibatch, self.bulks.repeated)

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

    def to(self, device: Any = "cpu") -> TensorLoader[T]:
        """Return a view of this loader whose batches are torch tensors on a device; see `Batch.to`."""
        return TensorLoader(self, device_of(device))

    @property
    def _position(self) -> BulkLoader | SharedSteps:
        """Knows the mini-batch in use: the loader of bulks, or the steps whose rows are fetched ahead of use."""
        return self.bulks if self._shared is None else self._shared.steps


class TensorLoader(Positioned, Uncached, Generic[T]):
    """A loader whose batches are torch tensors on one device; `Loader.to` makes it. Both have one position."""

    def __init__(self, loader: EpochLoader[Any, T], device: Any) -> None:
        self.loader, self.device = loader, device

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[T]:
        return (batch.to(self.device) for batch in self.loader)

    @property
    def _position(self) -> Any:
        return self.loader._position


def check_fetching(fetch_together: Any, shared: bool, rank: int = 0, ranks: int = 1) -> None:
    """Raise `UsageError` unless these arguments suit a graph in this process, or one that ranks share."""
    if not is_whole(fetch_together):
        raise UsageError(f"fetch_together must be a positive whole number; got {fetch_together!r}")
    if shared and (rank, ranks) != (0, 1):
        raise UsageError(f"rank and ranks are those of the world of the graph; got {rank} and {ranks}: leave them out")
    if not shared and fetch_together != 1:
        raise UsageError(f"fetch_together is for a graph that ranks share, load(path, world=...); got {fetch_together!r}: leave it out")
