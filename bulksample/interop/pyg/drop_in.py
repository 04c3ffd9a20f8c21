"""The drop-in loaders of torch_geometric as users of the epoch engine: options of torch's `DataLoader`, samplers of users, ranks.

A thread samples the next bulk while the current one is used; `num_workers` threads finish batches ahead. There are no worker processes,
so nothing is copied between processes. Mini-batch t of an epoch does not depend on the size of bulks, the threads or the ranks, so a
state that counts the mini-batches used fits any of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import torch

from ...distributed.comm.agree import begin_together
from ...distributed.comm.base import Comm
from ...errors import UsageError, is_whole
from ...loading.bulk_sizes import AUTO_LIMIT, COPIES, check_bulk_size, fitting
from ...loading.division import EpochShare, SeedGroups
from ...loading.epochs import Epochs, Order, Prefetcher, Step
from ...rng import Stream
from ..equal_draws import warn_of_equal_draws
from ..made_together import OwnComm
from .data_loader_options import check_options
from .sampler import BulkSampler
from .user_order import given_steps, has_length, place_of, steps_of_rank

_ENDLESS = 2**62  # mini-batches of a sampler of unknown length
_SPELLED = {"inputs": "the examples of the loader and their times"}  # what users call a part of the identity


class DropInLoader(OwnComm, Epochs[Any]):
    """The epochs of a drop-in loader, for subclasses of torch's `DataLoader`.

    Attributes
    ----------
    bulk_size : int or "auto"
        k, the mini-batches sampled in one call. If ``auto`` was asked for, the first iteration measures one mini-batch and sets as many
        as fit `memory_budget` (by default a quarter of the free memory), at most 32; an epoch then begins with bulks of 1, 2, 4, ...
        mini-batches.
    comm : Comm, optional
        Rank r of p takes mini-batches r, r + p, ... All ranks make the same number of steps: if p does not divide the epoch, the
        first mini-batches repeat at its end, or, with `drop_last`, the last ones are left out. All ranks make the loader together, with
        equal options, and begin epochs together: both are collective, and all ranks raise if they differ. Your own `sampler` or
        `batch_sampler` must have a length, and the same order on all ranks.
    """

    bulk_size: Any
    batch_sampler: Any
    drop_last: bool
    pin_memory: bool
    num_workers: int
    prefetch_factor: int | None
    dataset: Sequence[Any]
    _of_seed: tuple[str, ...] = ("_identity",)  # what was computed from the seed, and is kept
    _sampler: BulkSampler | None = None  # its options and its graph are compared with those of the loader

    def set_up_epochs(
        self, stream: Stream, bulk_size: int | Literal["auto"], memory_budget: int | None, options: dict[str, Any],
        comm: Comm | None = None, together: bool = False, seeded: bool = True,
    ) -> None:  # fmt: skip
        """Keep the options that `DataLoader` does not have, and check those that it has; see `check_options`.

        `together` is True if sampling a bulk is collective,
        `seeded` if the seed was given.
        """
        check_bulk_size(bulk_size, memory_budget)
        check_options(type(self), options, comm is not None)
        self.bulk_size, self._budget, self.grows = bulk_size, memory_budget, bulk_size == "auto"
        self._stream, self._comm, self._together, self._seeded = stream, comm, together, seeded
        self._shuffle = bool(options.get("shuffle"))
        self._own_order = options.get("sampler") is None and options.get("batch_sampler") is None
        self._digest = ""  # of the mini-batches of this epoch that are used, if the user's sampler orders them
        self._digest_of: list[int] | None = None  # the rank of a DistributedSampler whose order that is, and the number of its ranks

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        options = {**self._settings, **({"bulk_size": self.bulk_size} if self._together else {})}
        hashes = {_SPELLED.get(name, name): value for name, value in self._describe().items()}
        settings, graph = ({}, {}) if self._sampler is None else self._sampler.compared()
        return {**settings, **options, "a seed of yours": self._seeded}, {**graph, **hashes}

    def connect(self) -> None:
        """Make the communicators of the loader and of its sampler; collective."""
        if self._sampler is not None:
            self._sampler.connect()
        super().connect()

    @property
    def seed(self) -> int:
        """The seed of the order and of all draws: the one that was given, or the default; see `default_seed`."""
        return int(self._stream.seed)

    @property
    def _settings(self) -> dict[str, Any]:
        """The options on which mini-batches and steps depend, by the names that a user gives them."""
        order = {"shuffle": self._shuffle, "sampler of yours": not self._own_order, "drop_last": self.drop_last}
        return {"loader": type(self).__name__, "batch_size": self.batch_size, "seed": self.seed, **order}

    @abstractmethod
    def _finished(self, sampled: Any) -> Any:
        """Make the batch that the user gets from a sampled mini-batch; runs on the threads of `num_workers`."""

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """Return the arguments on which mini-batches depend, as JSON values, for the state."""

    @property
    def _threads(self) -> int:
        """The threads that finish batches ahead of use; 0: none."""
        return self.num_workers

    @cached_property
    def _groups(self) -> SeedGroups:  # type: ignore[override]  # known once the constructor of `DataLoader` has run
        return SeedGroups.whole(len(self.dataset))

    @cached_property
    def _whole(self) -> EpochShare:  # type: ignore[override]  # as above
        minibatches = self._minibatches() if self._own_order or has_length(self.batch_sampler) else _ENDLESS
        rank, ranks = (0, 1) if self._comm is None else (self._comm.rank, self._comm.size)
        return EpochShare(minibatches, rank, ranks, True, self.drop_last)

    def __len__(self) -> int:
        """Return the number of mini-batches of this rank in an epoch."""
        return replace(self._whole, minibatches=self._minibatches()).steps

    def _minibatches(self) -> int:
        return self._groups.minibatches(self.batch_size, self.drop_last) if self._own_order else len(self.batch_sampler)

    def _batches_of_epoch(self) -> Generator[Any, None, None]:
        if self._comm is not None:
            begin_together(self._comm, self._position.coming, self.seed)
        elif not self._seeded and self._place is None:
            warn_of_equal_draws(type(self).__name__, self.seed)
        yield from super()._batches_of_epoch()

    def _steps(self, epoch: int) -> Iterator[Step]:
        at = self._position
        if self._own_order:
            steps = super()._steps(epoch)
        elif self._comm is None:
            steps = given_steps(self.batch_sampler, len(self.dataset), at.used, at.step, self._digest, self._digest_of)
        else:
            steps = steps_of_rank(self.batch_sampler, len(self.dataset), at.used, at.step, self._digest, at.share, self._comm)
        if self.bulk_size == "auto" and (first := next(steps, None)) is not None:
            self.bulk_size, steps = self._fitting(first), chain([first], steps)
        return steps

    def _fitting(self, first: Step) -> int:
        """Return the mini-batches that fit the budget; ranks that sample together agree on the smallest number.

        The user's sampler is not asked for a mini-batch to measure: its `first` one of this iteration is.
        """
        examples = self._examples_of([Step(0, 0) if self._own_order else first], self._order(0))
        size = sum(_nbytes(sampled) for sampled in self._bulk(examples, [0], 0))
        most = AUTO_LIMIT if self._whole.minibatches == _ENDLESS else len(self)
        fit = fitting(lambda k: COPIES * k * size, most, self._budget)
        if self._comm is not None and self._together:
            fit = self._comm.allgather(np.array([fit]), "control").min()
        return int(fit)

    def _examples_of(self, steps: list[Step], order: Order) -> list[Any]:
        return super()._examples_of(steps, order) if self._own_order else [step.index for step in steps]

    def _batches(self, sampled: Iterator[tuple[Step, Any]]) -> Iterator[tuple[Step, Any]]:
        ahead: deque[tuple[Step, Callable[[], Any]]] = deque()
        with Prefetcher(self._threads, "gather") as gatherers:
            for step, minibatch in sampled:
                ahead.append((step, gatherers.submit(self._pinned, minibatch)))
                if len(ahead) > self._threads * (self.prefetch_factor or 2):
                    step, batch = ahead.popleft()
                    yield step, batch()
            while ahead:
                step, batch = ahead.popleft()
                yield step, batch()

    def _pinned(self, sampled: Any) -> Any:
        batch = self._finished(sampled)
        return batch.pin_memory() if self.pin_memory and torch.cuda.is_available() else batch

    def _use(self, step: Step) -> None:
        self._digest, self._digest_of = step.order, self._place

    @property
    def _place(self) -> list[int] | None:
        """The rank and the number of ranks, if the user's sampler gives this rank its share of a common order."""
        return None if self._own_order else place_of(self.batch_sampler)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, ready for JSON; the batch yielded last counts as used."""
        order: dict[str, Any] = {} if self._own_order else {"order": self._digest if self._position.used else ""}
        if self._place is not None:
            order["order_of"] = self._digest_of or self._place
        return super().state_dict() | order

    def load_state_dict(self, state: dict[str, Any], onward: bool = True) -> None:
        """Continue from a position that `state_dict` returned; the batches that follow are those of an uninterrupted run.

        `num_workers`, `bulk_size`, `backend` and the number of ranks may differ. An order that your own `sampler` or `batch_sampler`
        gives is run through again; the next iteration raises `UsageError` if it has changed. The state of one rank of a
        `DistributedSampler` fits all of them. After the last mini-batch of an epoch, the next epoch begins. With a `comm`, the next
        iteration raises on all ranks if they have not all loaded the same position; nothing is sent before. A loader to which no seed was
        given takes that of the state. Raises `UsageError` if the state belongs to other data, input nodes, options or another seed, or is
        damaged.
        """
        before, seed = self.seed, cast(Any, state.get("random_seed") if isinstance(state, dict) else None)
        if not self._seeded and is_whole(seed, 0, 2**64 - 1):
            self._take_seed(int(seed))
        try:
            super().load_state_dict(state, onward)
        except UsageError:
            self._take_seed(before)
            raise
        self._digest, self._digest_of = str(state.get("order", "")), state.get("order_of")

    def _take_seed(self, seed: int) -> None:
        if seed == self.seed:
            return
        self._stream = Stream(seed)
        for name in self._of_seed:
            vars(self).pop(name, None)
        if self._sampler is not None:
            self._sampler = self._sampler.with_seed(seed)
            for name in ("node_sampler", "link_sampler"):  # of torch_geometric
                if name in vars(self):
                    setattr(self, name, self._sampler)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        named = super()._identity
        if not self._own_order:
            del named["shuffle"], named["minibatches"]
        return {"loader": type(self).__name__, **named, **self._describe()}


def _nbytes(sampled: Any) -> int:
    """Return the bytes of the tensors of a sampled mini-batch, which is one or a `SamplerOutput`."""
    parts = [sampled] if isinstance(sampled, torch.Tensor) else vars(sampled).values()
    tensors = [tensor for part in parts for tensor in (part.values() if isinstance(part, dict) else [part])]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))
