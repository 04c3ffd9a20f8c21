"""Epochs, positions and devices of loaders, the same for plain and for heterogeneous graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import UsageError, is_whole
from ..loader import BulkLoader
from ..pickled import CopiedAlong, Uncached
from ..profiling import Profile, profiled
from .tensor_batch import device_of

if TYPE_CHECKING:
    from .shared_steps import SharedMinibatches, SharedSteps

B = TypeVar("B")  # the batch
T = TypeVar("T")  # the same as tensors


class EpochLoader(Uncached, CopiedAlong, Generic[B, T]):
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
        began: dict[str, Any] = {}
        for i, minibatch in enumerate(self._sampled()):
            began = began or self.bulks.bare_position  # the position of the first mini-batch; a newer iteration has its own
            yield self._batch(minibatch, self.bulks.repeats(began, i))

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
    def epoch(self) -> int:
        """The current epoch, from 0. Set it to take that epoch, from its start, in the next iteration."""
        return self._position.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._position.epoch = epoch

    @property
    def _position(self) -> BulkLoader | SharedSteps:
        """Knows the mini-batch in use: the loader of bulks, or the steps whose rows are fetched ahead of use."""
        return self.bulks if self._shared is None else self._shared.steps

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, as plain JSON values; the mini-batch yielded last counts as used."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state_dict` returned; the mini-batches that follow are those of an uninterrupted run.

        `bulk_size`, `threads`, `backend` and `ranks` may differ. On another number of ranks, the remaining mini-batches of the epoch
        are dealt to these ranks in turn. After the last mini-batch of an epoch, the next epoch begins.

        Raises
        ------
        UsageError
            If the state comes from a loader with another graph, other seeds, sampler, `batch_size`, `seed` or `shuffle`. States of
            earlier versions name no graph and are accepted.
        """
        if self._shared is None:
            self.bulks.load_state_dict(state, onward=True)
        else:
            self._shared.steps.load_state_dict(state)


class TensorLoader(Uncached, Generic[T]):
    """A loader whose batches are torch tensors on one device; `Loader.to` makes it. Both have one position."""

    def __init__(self, loader: EpochLoader[Any, T], device: Any) -> None:
        self.loader, self.device = loader, device

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[T]:
        return (batch.to(self.device) for batch in self.loader)

    @property
    def epoch(self) -> int:
        """`Loader.epoch`."""
        return self.loader.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.loader.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position; see `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)


def check_shared(fetch_together: Any, rank: int, ranks: int) -> None:
    """Raise `UsageError` unless these arguments suit a graph that ranks share."""
    _check_fetching(fetch_together)
    if (rank, ranks) != (0, 1):
        raise UsageError(f"rank and ranks are those of the world of the graph; got {rank} and {ranks}: leave them out")


def check_whole(fetch_together: Any) -> None:
    """Raise `UsageError` for a number of mini-batches to fetch together, as this process holds the whole graph."""
    _check_fetching(fetch_together)
    if fetch_together != 1:
        raise UsageError(f"fetch_together is for a graph that ranks share, load(path, world=...); got {fetch_together!r}: leave it out")


def _check_fetching(fetch_together: Any) -> None:
    if not is_whole(fetch_together):
        raise UsageError(f"fetch_together must be a positive whole number; got {fetch_together!r}")
