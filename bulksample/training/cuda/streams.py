"""The CUDA streams of training and the events that order them.

The arrays of a mini-batch belong to the stream that sampled it, fetched rows to the stream that fetched them. Memory that Python
frees is reused on its own stream at once, while steps that read it may still be queued on another. So another stream waits for an event
before it reads such memory and leaves an event behind after use, and nothing is freed before its own stream waits for that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch

from ...backends.cuda.nvrtc import DeviceLauncher
from ...graph.minibatch import MiniBatch
from ...views.sync import StreamSync


class DeviceStream(Protocol):
    """A stream of a device."""

    def on(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that queues our kernels and torch's on this stream, in a named range of the profiler's timeline."""

    def record(self) -> Any:
        """Return an event that follows all work queued here so far."""

    def wait(self, event: Any) -> None:
        """Make work queued from now on wait for an event; the host does not wait."""


class DeviceStreams(NamedTuple):
    """The streams of the three stages that overlap."""

    sample: DeviceStream
    fetch: DeviceStream
    train: DeviceStream


@dataclass
class BulkMemory:
    """Keeps the arrays of a bulk until the stream that sampled it waits for their last use.

    Parameters
    ----------
    ready : event
        Follows the writes to its arrays.
    unused : int
        Mini-batches that no step has used yet.
    held : list
        The fields of its mini-batches. Python drops a mini-batch before the device has run its step; the objects would be a cycle.
    """

    ready: Any
    unused: int
    held: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class DeviceMiniBatch(MiniBatch):
    """A mini-batch with its blocks on a device. Its seeds are on the host; its vertices are where they were sampled."""

    memory: BulkMemory = field(kw_only=True)
    cuda: Any = field(kw_only=True)  # the `CudaContext`, which sends to the device

    def in_order_of_seeds(self, columns: Mapping[str, Any]) -> Any:
        parts = list(columns.values())
        if not all(isinstance(part, torch.Tensor) for part in parts):
            return super().in_order_of_seeds(columns)
        order = np.argsort(np.concatenate([self.rows[name].seed_trees for name in columns]))
        return torch.cat(parts)[self.cuda.send(torch.from_numpy(order))]


class CudaStreamSync(StreamSync):
    """Orders sampling, fetching and training by events."""

    def __init__(self, streams: DeviceStreams) -> None:
        self.streams = streams

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
            memory.held.clear()

    def never_used(self, minibatches: Sequence[MiniBatch | None]) -> None:
        """Let later fetches and later sampling wait for all that was started on these mini-batches, and give back their memory."""
        memories = [memory for memory in map(_memory_of, minibatches) if memory is not None]
        if memories:
            self.streams.fetch.wait(self.streams.train.record())
            self.streams.sample.wait(self.streams.fetch.record())
        for memory in memories:
            memory.held.clear()

    def on_fetch_stream(self) -> AbstractContextManager[Any]:
        return self.streams.fetch.on("fetch")


def _memory_of(minibatch: Any) -> BulkMemory | None:
    """Return the memory of the bulk that a mini-batch on a device belongs to; None on the host."""
    memory: BulkMemory | None = None if minibatch is None else getattr(minibatch.whole, "memory", None)
    return memory


class CudaStream:
    """A stream that CuPy and torch share.

    Parameters
    ----------
    launcher : DeviceLauncher
    stream : cupy.cuda.Stream, optional
        By default torch's current stream.
    """

    def __init__(self, launcher: DeviceLauncher, stream: Any = None) -> None:
        self._launcher, external = launcher, cast(Any, torch.cuda.ExternalStream)
        self._torch = torch.cuda.current_stream(launcher.number) if stream is None else external(stream.ptr, launcher.number)
        self._cupy = stream or launcher.external_stream(self._torch.cuda_stream)

    def on(self, name: str) -> AbstractContextManager[Any]:
        both = ExitStack()
        both.enter_context(torch.cuda.stream(self._torch))
        both.enter_context(self._launcher.phase(name, self._cupy))
        return both

    def record(self) -> Any:
        return self._torch.record_event()

    def wait(self, event: Any) -> None:
        self._torch.wait_event(event)


def open_streams(launcher: DeviceLauncher) -> DeviceStreams:
    """Return the stream on which the back end samples, a new one to fetch features, and torch's current one to train."""
    fetch = CudaStream(launcher, launcher.new_stream())
    return DeviceStreams(CudaStream(launcher, launcher.stream), fetch, CudaStream(launcher))
