"""Iterate over epochs for all drop-in loaders of torch_geometric: the order, the share of each rank, sampling ahead, and the state.

A thread samples the next bulk while the current one is used; `num_workers` threads finish batches ahead. There are no worker processes,
so nothing is copied between processes. Mini-batch t of an epoch does not depend on the size of bulks, the threads or the ranks, so a
state that counts the mini-batches used fits any of them.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property, reduce
from itertools import chain, islice, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from ...bulk_sizes import AUTO_LIMIT, check_bulk_size, growing
from ...distributed.comm.agree import begin_together, made_alike
from ...distributed.comm.base import Comm
from ...errors import UsageError
from ...free_memory import free_memory
from ...loader import COPIES
from ...pickled import Uncached
from ...position import EpochShare, Position
from ...prefetch import Prefetcher
from ...rng import Stream
from ...shuffle import Shuffle
from ..hand_split import warn_of_equal_draws
from ..made_together import OwnComm
from .bulk_sampler import SamplerOfBulks

_ENDLESS = 2**62  # mini-batches of a sampler of unknown length
_NOT_HERE = {
    "worker_init_fn": "there are no worker processes to set up",
    "multiprocessing_context": "there are no worker processes",
    "generator": "the order of an epoch is a function of `seed`",
}
_CHANGED = (
    "the order of your sampler is not the one of the loader's state; give it the same order again. Ranks with samplers of their own save "
    "and load a state each"
)
_ONE_OF_THEM = "leave out one of them; Lightning adds none with Trainer(use_distributed_sampler=False)"
_SPELLED = {"inputs": "the examples of the loader and their times"}  # what users call a part of the identity


class _Step(NamedTuple):
    """A mini-batch of this rank: its number, its examples, and the digest of the user's order up to it."""

    id: int
    index: Any
    order: str


class EpochLoading(OwnComm, Uncached, ABC):
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

    batch_size: int | None
    bulk_size: int | Literal["auto"]
    batch_sampler: Any
    drop_last: bool
    pin_memory: bool
    num_workers: int
    prefetch_factor: int | None
    dataset: Sequence[Any]
    _sampler: SamplerOfBulks | None = None  # its options and its graph are compared with those of the loader

    def set_up_epochs(
        self,
        stream: Stream,
        bulk_size: int | Literal["auto"],
        memory_budget: int | None,
        options: dict[str, Any],
        comm: Comm | None = None,
        together: bool = False,
        seeded: bool = True,
    ) -> None:
        """Keep the options that `DataLoader` does not have; raises `UsageError` for options of `DataLoader` that have no meaning here.

        Ranks cannot share a sampler without a length, nor one that is divided already. `together` is True if sampling a bulk is collective,
        `seeded` if the seed was given.
        """
        check_bulk_size(bulk_size, memory_budget)
        for name, reason in _NOT_HERE.items():
            if options.get(name) is not None:
                raise UsageError(f"{name} was given, but {reason}; leave it out")
        if "batch_size" in options and options["batch_size"] is None:
            raise UsageError("batch_size was None; use a positive number")
        for name in ("sampler", "batch_sampler"):
            if isinstance(options.get(name), str):
                raise UsageError(
                    f"{name} orders the examples, as in torch; got {options[name]!r}. Draw by another law with LaborLoader, LadiesLoader, "
                    "FastGCNLoader or neighbor_sampler=BulkSampler(data, num_neighbors, sampler=...)"
                )
            if comm is not None and options.get(name) is not None and not _has_length(options[name]):
                raise UsageError(f"{name} has no length, so ranks cannot share its mini-batches; give it a __len__, or use a list")
            if comm is not None and _distributed_sampler(options.get(name)) is not None:
                raise UsageError(f"comm divides the mini-batches among ranks, and so does your DistributedSampler; {_ONE_OF_THEM}")
        self.bulk_size, self._budget, self._grows = bulk_size, memory_budget, bulk_size == "auto"
        self._stream, self._comm, self._together, self._seeded = stream, comm, together, seeded
        self._shuffle = bool(options.get("shuffle"))
        self._own_order = options.get("sampler") is None and options.get("batch_sampler") is None
        self._order = ""  # the digest of the mini-batches of this epoch that are used, if the user's sampler orders them
        self._order_of: list[int] | None = None  # the rank of a DistributedSampler whose order that is, and the number of its ranks

    def compared(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """See `made_together.Shared`."""
        own = {**self._settings, **({"bulk_size": self.bulk_size} if self._together else {})}
        hashes = {_SPELLED.get(name, name): value for name, value in self._describe().items()}
        settings, graph = ({}, {}) if self._sampler is None else self._sampler.compared()
        return {**settings, **own}, {**graph, **hashes}

    def connect(self) -> None:
        """Make the communicators of the loader and of its sampler; collective."""
        if self._sampler is not None:
            self._sampler.connect()
        super().connect()

    @property
    def _settings(self) -> dict[str, Any]:
        """The options on which mini-batches and steps depend, by the names that a user gives them."""
        order = {"shuffle": self._shuffle, "sampler of yours": not self._own_order, "drop_last": self.drop_last}
        return {"loader": type(self).__name__, "batch_size": self.batch_size, "seed": int(self._stream.seed), **order}

    @abstractmethod
    def _bulk(self, indices: list[Any], ids: list[int], epoch: int) -> list[Any]:
        """Sample the mini-batches with these ids from the positions of their examples in the data set."""

    @abstractmethod
    def _finished(self, sampled: Any) -> Any:
        """Make the batch that the user gets from a sampled mini-batch; runs on the threads of `num_workers`."""

    @abstractmethod
    def _nbytes(self, sampled: Any) -> int:
        """Return the bytes of a sampled mini-batch."""

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """Return the arguments on which mini-batches depend, as JSON values, for the state."""

    @property
    def _finishes_ahead(self) -> bool:
        return self.num_workers > 0

    @property
    def _position(self) -> Position:
        held = vars(self)
        if "_standing" not in held:  # `setdefault` is atomic: all threads have one position
            held.setdefault("_standing", Position(self._share(self._minibatches() if self._knows_length else _ENDLESS)))
        standing: Position = held["_standing"]
        return standing

    @property
    def epoch(self) -> int:
        """The current epoch, from 0; every iteration begins the next one. Set it to begin that epoch instead, from its start."""
        return self._position.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._position.epoch = epoch

    def __len__(self) -> int:
        """Return the number of mini-batches of this rank in an epoch."""
        return self._share(self._minibatches()).steps

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch; of the epoch of a state that was just loaded, the remaining ones.

        One thread iterates at a time, else `UsageError` is raised. A copy in a worker process of another `DataLoader` warns of batches that
        come twice; see `bulksample.Loader`.
        """
        return self._position.in_turn(self._batches_of_epoch())

    def _batches_of_epoch(self) -> Generator[Any, None, None]:
        if self._comm is not None:
            begin_together(self._comm, self._position.coming)
        elif not self._seeded and self._divided is None:
            warn_of_equal_draws(type(self).__name__)
        begun, start, orders = self._position.begin(), self._position.step, []

        def steps() -> Iterator[_Step]:
            for step in self._steps(begun.epoch):
                orders.append(step.order)
                yield step

        for done, batch in enumerate(self._batches(steps(), begun.epoch)):
            if self._position.use(begun, start + done + 1):
                self._order, self._order_of = orders[done], self._place
            yield batch
        self._position.end(begun)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, ready for JSON; the batch yielded last counts as used."""
        order: dict[str, Any] = {} if self._own_order else {"order": self._order if self._position.used else ""}
        if self._divided is not None:
            order["order_of"] = self._order_of or self._place
        return self._position.state(self._identity) | order

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position that `state_dict` returned; the batches that follow are those of an uninterrupted run.

        `num_workers`, `bulk_size`, `backend` and the number of ranks may differ. An order that your own `sampler` or `batch_sampler`
        gives is run through again; the next iteration raises `UsageError` if it has changed. The state of one rank of a
        `DistributedSampler` fits all of them. After the last mini-batch of an epoch, the next epoch begins. With a `comm`, the next
        iteration raises on all ranks if they have not all loaded the same position; nothing is sent before.

        Raises
        ------
        UsageError
            If the state belongs to other data, input nodes, options or another seed, or is damaged.
        """
        self._position.load(state, self._identity, onward=True)
        self._order, self._order_of = str(state.get("order", "")), state.get("order_of")

    @cached_property
    def _identity(self) -> dict[str, Any]:
        order = {"shuffle": self._shuffle, "minibatches": self._minibatches()} if self._own_order else {}
        return {
            "loader": type(self).__name__,
            "batch_size": self.batch_size,
            "random_seed": int(self._stream.seed),
            **order,
            **self._describe(),
        }

    def _batches(self, steps: Iterator[_Step], epoch: int) -> Iterator[Any]:
        with Prefetcher(1, "sampler") as sampler, Prefetcher(max(1, self.num_workers), "gather") as gatherers:
            if not self._finishes_ahead:
                yield from (self._pinned(sampled) for sampled in self._sampled(steps, epoch, sampler))
                return
            ahead: deque[Callable[[], Any]] = deque()
            for sampled in self._sampled(steps, epoch, sampler):
                ahead.append(gatherers.submit(self._pinned, sampled))
                if len(ahead) > self.num_workers * (self.prefetch_factor or 2):
                    yield ahead.popleft()()
            while ahead:
                yield ahead.popleft()()

    def _sampled(self, steps: Iterator[_Step], epoch: int, thread: Prefetcher) -> Iterator[Any]:
        """Yield the sampled mini-batches of an epoch; the next bulk is sampled while the current one is used."""
        first = next(steps, None)
        if first is None:
            return
        k, steps = self._fitting(first), chain([first], steps)
        sizes = growing(k) if self._grows else repeat(k)

        def start() -> Callable[[], list[Any]] | None:
            bulk = list(islice(steps, next(sizes)))
            return thread.submit(self._bulk, [step.index for step in bulk], [step.id for step in bulk], epoch) if bulk else None

        coming = start()
        while coming is not None:
            outputs, coming = coming(), start()
            yield from outputs

    def _pinned(self, sampled: Any) -> Any:
        batch = self._finished(sampled)
        return batch.pin_memory() if self.pin_memory and torch.cuda.is_available() else batch

    def _steps(self, epoch: int) -> Iterator[_Step]:
        """Yield the remaining mini-batches of this rank, in the seeded order or in that of the user's sampler."""
        position = self._position
        used, share, step = position.used, position.share, position.step
        if self._own_order:
            examples = self._examples_of(epoch)
            for t in range(step, share.steps):
                id = share.id(t)
                assert id is not None
                yield _Step(id, examples(id), "")
            return
        if self._comm is None:
            yield from self._user_order(used)
            return
        every = self._shared_order(self._comm, used)
        share = EpochShare(len(every), share.rank, share.ranks, True, self.drop_last, share.first)
        for t in range(step, share.steps):
            id = share.id(t)
            assert id is not None
            last = min(share.first + (t + 1) * share.ranks, len(every)) - 1
            yield every[id]._replace(order=every[last].order)

    @property
    def _divided(self) -> DistributedSampler[Any] | None:
        """The user's sampler, if it gives this rank its share of a common order."""
        return None if self._own_order else _distributed_sampler(self.batch_sampler)

    @property
    def _place(self) -> list[int] | None:
        """The rank and the number of ranks of a `DistributedSampler`."""
        return None if self._divided is None else [self._divided.rank, self._divided.num_replicas]

    def _user_order(self, used: int) -> Iterator[_Step]:
        """Yield the mini-batches of the user's sampler after those that are used.

        Mini-batch t of rank r of p of a `DistributedSampler` has number t p + r, as with a `comm`.
        """
        rank, ranks = self._place or (0, 1)
        digest, left, expected = "", used, self._order
        if used and self._order_of not in (None, self._place):
            expected = self._order_for_this_rank(used)
        for t, index in enumerate(map(np.asarray, self.batch_sampler)):
            digest = _chained(digest, index)
            left -= 1
            if left == 0 and digest != expected:
                break
            if left < 0:
                yield _Step(t * ranks + rank, index, digest)
        if left > 0 or (left == 0 and used and digest != expected):
            raise UsageError(_CHANGED)

    def _order_for_this_rank(self, used: int) -> str:
        """Return the digest of this rank's order, if the state's is that of another rank of the same `DistributedSampler`."""
        own, saved = self._divided, self._order_of
        if own is None or not isinstance(saved, list) or len(saved) != 2 or saved[1] != own.num_replicas or saved[0] not in range(saved[1]):
            found = "no DistributedSampler" if own is None else f"rank {own.rank} of {own.num_replicas} ranks"
            raise UsageError(
                f"the loader's state was saved on [rank, ranks] {saved} of a DistributedSampler; got {found}: use as many ranks"
            )
        if type(own).__iter__ is not DistributedSampler.__iter__ or type(self.batch_sampler) is not BatchSampler:
            found = " in a ".join(type(one).__name__ for one in (own, self.batch_sampler))
            raise UsageError(
                f"the loader's state was saved on rank {saved[0]}, whose order cannot be derived on rank {own.rank} from a {found}; save "
                "and load a state on each rank"
            )
        other = copy.copy(own)
        other.rank = saved[0]
        size, drop_last = self.batch_sampler.batch_size, self.batch_sampler.drop_last
        if _digest(islice(BatchSampler(other, size, drop_last), used)) != self._order:
            raise UsageError(_CHANGED)
        return _digest(islice(BatchSampler(own, size, drop_last), used))

    def _shared_order(self, comm: Comm, used: int) -> list[_Step]:
        """Return all mini-batches of the user's sampler; raises `UsageError` on every rank if one's fails, or orders differ. Collective."""

        def run_through() -> tuple[list[_Step], dict[str, Any], dict[str, Any]]:
            every = list(self._user_order(0))
            digest = every[-1].order[:16] if every else ""
            if used and (used > len(every) or every[used - 1].order != self._order):
                raise UsageError(_CHANGED)
            return every, {"the number of mini-batches of your sampler": len(every)}, {"the order of your sampler": digest}

        return made_alike(comm, run_through)

    def _examples_of(self, epoch: int) -> Callable[[int], np.ndarray]:
        """Return the order of an epoch: the positions of the examples of a mini-batch, by its number."""
        n, size = len(self.dataset), self.batch_size
        assert size is not None
        at = Shuffle(self._stream, n, epoch).at if self._shuffle else np.asarray
        return lambda id: at(np.arange(id * size, min((id + 1) * size, n)))

    def _minibatches(self) -> int:
        if not self._own_order:
            return len(self.batch_sampler)
        assert self.batch_size is not None
        return len(self.dataset) // self.batch_size if self.drop_last else -(-len(self.dataset) // self.batch_size)

    def _share(self, minibatches: int) -> EpochShare:
        rank, ranks = (0, 1) if self._comm is None else (self._comm.rank, self._comm.size)
        return EpochShare(minibatches, rank, ranks, True, self.drop_last)

    @property
    def _knows_length(self) -> bool:
        return self._own_order or _has_length(self.batch_sampler)

    def _fitting(self, first: _Step) -> int:
        """Return k; ``auto`` becomes the mini-batches that fit the budget, and ranks that sample together agree on the smallest.

        The user's sampler is not asked for a mini-batch to measure: its `first` one of this iteration is.
        """
        if self.bulk_size == "auto":
            index = self._examples_of(0)(0) if self._own_order else first.index
            size = sum(self._nbytes(sampled) for sampled in self._bulk([index], [0], 0))
            budget = free_memory() // 4 if self._budget is None else self._budget
            fit = max(1, min(budget // max(1, COPIES * size), AUTO_LIMIT, len(self) if self._knows_length else AUTO_LIMIT))
            if self._comm is not None and self._together:
                fit = self._comm.allgather(np.array([fit]), "control").min()
            self.bulk_size = int(fit)
        return self.bulk_size


def _distributed_sampler(sampler: Any) -> DistributedSampler[Any] | None:
    """Return the `DistributedSampler` that a sampler of vertices or of mini-batches is or holds."""
    found = getattr(sampler, "sampler", sampler)
    return found if isinstance(found, DistributedSampler) else None


def _chained(digest: str, index: np.ndarray) -> str:
    """Return the digest of an order that one more mini-batch makes longer."""
    return hashlib.sha256(digest.encode() + np.ascontiguousarray(index, np.int64).tobytes()).hexdigest()


def _digest(lists: Iterator[Any]) -> str:
    return reduce(_chained, map(np.asarray, lists), "")


def _has_length(sampler: Any) -> bool:
    """Return whether `len` works: a batch sampler of torch has the method, but not the length, if its sampler has none."""
    try:
        len(sampler)
    except (TypeError, NotImplementedError):
        return False
    return True
