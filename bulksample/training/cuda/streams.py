"""The order of the CUDA streams of training, by events.

The arrays of a mini-batch belong to the stream that sampled it, fetched rows to the stream that fetched them. Memory that Python
frees is reused on its own stream at once, while steps that read it may still be queued on another. So another stream waits for an event
before it reads such memory and leaves an event behind after use, and nothing is freed before its own stream waits for that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...graph.minibatch import InputHop, MiniBatch
from ...views.sync import StreamSync
from .cuda_context import CudaContext, memory_errors
from .device_rows import block_on_device


@dataclass
class BulkMemory:
    """Keeps the arrays of a bulk until the stream that sampled it waits for their last use.

    Python drops a mini-batch before the device has run its step, so its fields are kept; the objects would be a cycle.
    """

    ready: Any  # the event that follows the writes to its arrays
    unused: int  # mini-batches that no step has used yet
    kept: list[Any] = field(default_factory=list)  # the fields of its mini-batches


@dataclass(frozen=True, eq=False)
class DeviceMiniBatch(MiniBatch):
    """A mini-batch with its blocks on a device. Its seeds are on the host; its vertices are where they were sampled."""

    memory: BulkMemory = field(kw_only=True)
    cuda: CudaContext = field(kw_only=True)

    @cached_property
    def input_hop(self) -> InputHop:
        """See `MiniBatch.input_hop`; made by the stream that fetches, for it."""
        block = self.blocks[0]
        with self.cuda.streams.fetch.on("fetch"):
            return InputHop(block.indptr, self.cuda.put(self.vertices).int().index_select(0, block.indices), block.weights)

    def in_order_of_seeds(self, columns: Mapping[str, Any]) -> Any:
        parts = list(columns.values())
        if not all(isinstance(part, torch.Tensor) for part in parts):
            return super().in_order_of_seeds(columns)
        order = np.argsort(np.concatenate([self.rows[name].seed_trees for name in columns]))
        return torch.cat(parts)[self.cuda.send(torch.from_numpy(order))]


class CudaStreamSync(StreamSync):
    """Orders sampling, fetching and training by events, and copies the blocks of a host-sampled bulk to the device."""

    def __init__(self, cuda: CudaContext) -> None:
        self._cuda, self.streams = cuda, cuda.streams

    def bulk_sampled(self, bulk: list[MiniBatch]) -> list[MiniBatch]:
        stream, memory = self.streams.sample, BulkMemory(None, len(bulk))
        with stream.on("hand over"), memory_errors():
            moved: list[MiniBatch] = [self._moved(minibatch, memory) for minibatch in bulk]
            memory.ready = stream.record()
        return moved

    def _moved(self, minibatch: MiniBatch, memory: BulkMemory) -> DeviceMiniBatch:
        layers = [{key: block_on_device(self._cuda, block) for key, block in of_layer.items()} for of_layer in minibatch.layers]
        values = {part.name: getattr(minibatch, part.name) for part in fields(MiniBatch)} | {"layers": tuple(layers)}
        memory.kept.append(values)
        return DeviceMiniBatch(**values, memory=memory, cuda=self._cuda)

    def before_use(self, minibatches: Sequence[MiniBatch | None]) -> None:
        for minibatch in minibatches:
            if (memory := _memory_of(minibatch)) is not None:
                self.streams.fetch.wait(memory.ready)
                self.streams.train.wait(memory.ready)

    def after_use(self, minibatch: MiniBatch | None) -> None:
        """Let later fetches wait for this step, and later sampling too if this was the last mini-batch of its bulk."""
        memory = _memory_of(minibatch)
        if memory is None:
            return
        done = self.streams.train.record()
        self.streams.fetch.wait(done)
        memory.unused -= 1
        if not memory.unused:
            self.streams.sample.wait(done)
            memory.kept.clear()

    def never_used(self, minibatches: Sequence[MiniBatch | None]) -> None:
        """Let later fetches and later sampling wait for all that was started on these mini-batches, and give back their memory."""
        memories = [memory for memory in map(_memory_of, minibatches) if memory is not None]
        if memories:
            self.streams.fetch.wait(self.streams.train.record())
            self.streams.sample.wait(self.streams.fetch.record())
        for memory in memories:
            memory.kept.clear()

    def on_fetch_stream(self) -> AbstractContextManager[Any]:
        return self.streams.fetch.on("fetch")


def _memory_of(minibatch: Any) -> BulkMemory | None:
    """Return the memory of the bulk that a mini-batch on a device belongs to; None on the host."""
    memory: BulkMemory | None = None if minibatch is None else getattr(minibatch, "memory", None)
    return memory
