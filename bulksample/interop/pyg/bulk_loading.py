"""Iterate over an epoch for the drop-in loaders of torch_geometric: sample k mini-batches in one call, ahead of use.

A thread samples the next bulk while the current one is used. `num_workers` threads gather features ahead. There are no worker
processes, so nothing is copied between processes. Mini-batch t of an epoch does not depend on k or on the number of threads.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import SamplerOutput

from ...ahead import Ahead
from ...errors import UsageError
from ...loader import AUTO_LIMIT, COPIES, check_bulk_size, free_memory, growing
from ..feature_gather import FeatureGather, can_gather
from .sampler import BulkSampler

_NOT_HERE = {
    "worker_init_fn": "there are no worker processes to set up",
    "multiprocessing_context": "there are no worker processes",
    "generator": "the order of an epoch is a function of `seed`",
}


class BulkLoading(ABC):
    """Bulk sampling for subclasses of `NodeLoader` and `LinkLoader`.

    Attributes
    ----------
    epoch : int
        Epoch of the next iteration. It counts up with every iteration; set it to continue from another epoch.
    bulk_size : int or "auto"
        k. ``auto`` samples one mini-batch to measure it, and takes as many as fit `memory_budget` (by default a quarter of the free
        memory), at most 32; an epoch then begins with bulks of 1, 2, 4, ... mini-batches.
    comm : Comm, optional
        Rank r of p takes mini-batches r, r + p, ... All ranks make the same number of steps: if p does not divide the epoch, the
        first mini-batches repeat at its end, or, with `drop_last`, the last ones are left out.
    """

    data: Data
    input_data: Any
    filter_per_worker: bool
    transform: Callable[[Data], Any] | None
    transform_sampler_output: Callable[[Any], Any] | None
    batch_size: int | None
    batch_sampler: Any
    drop_last: bool
    pin_memory: bool
    num_workers: int
    prefetch_factor: int | None
    dataset: range

    def set_up(self, sampler: BulkSampler, bulk_size: int | Literal["auto"], memory_budget: int | None, options: dict[str, Any]) -> None:
        """Keep the options that `DataLoader` does not have; raises `UsageError` for options of `DataLoader` that have no meaning here."""
        check_bulk_size(bulk_size)
        for name, reason in _NOT_HERE.items():
            if options.get(name) is not None:
                raise UsageError(f"{name} was given, but {reason}; leave it out")
        if "batch_size" in options and options["batch_size"] is None:
            raise UsageError("batch_size was None; use a positive number")
        self.epoch = 0
        self._gather = FeatureGather()
        self._bulk_size, self._budget, self._grows = bulk_size, memory_budget, bulk_size == "auto"
        self._stream, self._comm, self._together = sampler.stream, sampler.comm, sampler.grid is not None
        self._shuffle = bool(options.get("shuffle"))
        self._own_order = options.get("sampler") is None and options.get("batch_sampler") is None

    @abstractmethod
    def _sample(self, inputs: list[Any], ids: list[int], epoch: int) -> list[SamplerOutput]:
        """Sample the mini-batches with these ids from their examples."""

    def __len__(self) -> int:
        """Return the number of mini-batches of this rank in an epoch."""
        return self._steps(self._minibatches())

    def __iter__(self) -> Iterator[Data]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        lists = self._index_lists(epoch)
        with Ahead(1, "sampler") as sampler, Ahead(max(1, self.num_workers), "gather") as gatherers:
            if not (self.filter_per_worker and self.num_workers):
                yield from (self._finished(out) for out in self._sampled(lists, epoch, sampler))
                return
            ahead: deque[Callable[[], Data]] = deque()
            for out in self._sampled(lists, epoch, sampler):
                ahead.append(gatherers.submit(self._finished, out))
                if len(ahead) > self.num_workers * (self.prefetch_factor or 2):
                    yield ahead.popleft()()
            while ahead:
                yield ahead.popleft()()

    def _sampled(self, lists: Iterator[tuple[int, Any]], epoch: int, thread: Ahead) -> Iterator[SamplerOutput]:
        """Yield the sampled mini-batches of an epoch; the next bulk is sampled while the current one is used."""

        sizes = growing(self.bulk_size) if self._grows else repeat(self.bulk_size)

        def start() -> Callable[[], list[SamplerOutput]] | None:
            bulk = list(islice(lists, next(sizes)))
            return thread.submit(self._bulk, bulk, epoch) if bulk else None

        coming = start()
        while coming is not None:
            outputs, coming = coming(), start()
            yield from outputs

    def _bulk(self, bulk: list[tuple[int, Any]], epoch: int) -> list[SamplerOutput]:
        return self._sample([self.input_data[torch.as_tensor(index)] for _, index in bulk], [id for id, _ in bulk], epoch)

    def filter_fn(self, out: SamplerOutput) -> Any:
        """Build a batch: torch_geometric slices the attributes, this class adds the rest, then the user's transform runs.

        torch_geometric sees features that `FeatureGather` gathers as matrices without columns.
        """
        ours = {} if self.transform_sampler_output else {key: x for key, x in self.data if can_gather(x) and self.data.is_node_attr(key)}
        plain = copy.copy(self)
        plain.transform, plain.data = None, copy.copy(self.data)
        for key, x in ours.items():
            plain.data[key] = x[:, :0]
        batch = super(BulkLoading, plain).filter_fn(out)  # type: ignore[misc]  # the method of torch_geometric's loader
        for key, x in ours.items():
            batch[key] = self._gather(x, out.node.numpy())
        batch = self._completed(batch, out)
        return batch if self.transform is None else self.transform(batch)

    def _completed(self, batch: Data, out: SamplerOutput) -> Data:
        """Add attributes that torch_geometric does not add; subclasses override this."""
        return batch

    def _finished(self, out: SamplerOutput) -> Data:
        data = self.filter_fn(out)
        return data.pin_memory() if self.pin_memory and torch.cuda.is_available() else data

    def _index_lists(self, epoch: int) -> Iterator[tuple[int, Any]]:
        """Yield the id and the examples of this rank's mini-batches, in the seeded order or in that of the user's sampler."""
        lists = self._own_lists(epoch) if self._own_order else (np.asarray(index) for index in self.batch_sampler)
        if self._comm is None:
            yield from enumerate(lists)
            return
        every = list(lists)
        for step in range(self._steps(len(every))):
            id = (step * self._comm.size + self._comm.rank) % len(every)
            yield id, every[id]

    def _own_lists(self, epoch: int) -> list[np.ndarray]:
        order = self._stream.permutation(len(self.dataset), epoch) if self._shuffle else np.arange(len(self.dataset))
        size = self.batch_size
        assert size is not None
        return [order[i * size : (i + 1) * size] for i in range(self._minibatches())]

    def _minibatches(self) -> int:
        if not self._own_order:
            return len(self.batch_sampler)
        assert self.batch_size is not None
        return len(self.dataset) // self.batch_size if self.drop_last else -(-len(self.dataset) // self.batch_size)

    def _steps(self, minibatches: int) -> int:
        ranks = 1 if self._comm is None else self._comm.size
        return minibatches // ranks if self.drop_last else -(-minibatches // ranks)

    @property
    def bulk_size(self) -> int:
        """k, the number of mini-batches sampled in one call."""
        if self._bulk_size == "auto":
            self._bulk_size = self._fitting()
        return self._bulk_size

    def _fitting(self) -> int:
        """Return the number of mini-batches that fit the budget; ranks that sample together agree on the smallest."""
        steps = len(self) if self._own_order or hasattr(self.batch_sampler, "__len__") else AUTO_LIMIT
        first = next(iter(self._index_lists(0)), None)
        size = 0 if first is None else sum(_nbytes(out) for out in self._bulk([first], 0))
        budget = free_memory() // 4 if self._budget is None else self._budget
        fit = max(1, min(budget // max(1, COPIES * size), AUTO_LIMIT, steps))
        if self._comm is not None and self._together:
            fit = self._comm.allgather(np.array([fit]), "control").min()
        return int(fit)


def _nbytes(out: SamplerOutput) -> int:
    return sum(part.nbytes for part in (out.node, out.row, out.col, out.edge, out.batch) if part is not None)
