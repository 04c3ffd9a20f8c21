"""The stages of training on a device and the order between them.

A minibatch's arrays belong to the stream that sampled it, its rows to the one that fetched them; memory that Python lets go of is
given out again on the same stream at once. So whoever uses it elsewhere waits for an event first, and leaves one behind after use.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...minibatch import MiniBatch
from ...views.stream_sync import StreamSync


class Stage(Protocol):
    """A stream of a device."""

    def on(self, name: str) -> AbstractContextManager[Any]:
        """What is started inside, kernels of ours and torch's alike, is on this stream, in a range of the profiler's timeline."""

    def record(self) -> Any:
        """An event after all that was started here."""

    def wait(self, event: Any) -> None:
        """What is started from now on waits for an event; the host does not."""


class Stages(NamedTuple):
    """What goes on at the same time."""

    sample: Stage
    fetch: Stage
    train: Stage


@dataclass
class Lease:
    """A bulk whose memory is in use.

    Parameters
    ----------
    ready : event
        After which its arrays are there.
    left : int
        Minibatches that have not been used yet.
    """

    ready: Any
    left: int


@dataclass(frozen=True, eq=False)
class DeviceMiniBatch(MiniBatch):
    """A minibatch whose blocks lie on a device. Its seeds are on the host; its vertices are where they were made."""

    lease: Lease = field(kw_only=True)


class CudaStreamSync(StreamSync):
    """The order between streams."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages

    def taken(self, minibatches: Sequence[MiniBatch | None]) -> None:
        for minibatch in minibatches:
            if isinstance(minibatch, DeviceMiniBatch):
                self.stages.fetch.wait(minibatch.lease.ready)
                self.stages.train.wait(minibatch.lease.ready)

    def used(self, minibatch: MiniBatch | None) -> None:
        """Rows that are fetched later are not written before this step is done; nor is a bulk that follows its last minibatch."""
        if not isinstance(minibatch, DeviceMiniBatch):
            return
        done = self.stages.train.record()
        self.stages.fetch.wait(done)
        minibatch.lease.left -= 1
        if not minibatch.lease.left:
            self.stages.sample.wait(done)


class CudaStage:
    """A stream as CuPy and torch both see it.

    Parameters
    ----------
    launcher : backends.gpu.nvrtc.DeviceLauncher
    stream : cupy.cuda.Stream, optional
        Torch's current one unless given.
    """

    def __init__(self, launcher: Any, stream: Any = None) -> None:
        import cupy
        import torch

        self._launcher = launcher
        where = launcher.number
        self._torch = torch.cuda.current_stream(where) if stream is None else torch.cuda.ExternalStream(stream.ptr, where)
        self._cupy = stream or cupy.cuda.ExternalStream(self._torch.cuda_stream, where)

    def on(self, name: str) -> AbstractContextManager[Any]:
        import torch

        both = ExitStack()
        both.enter_context(torch.cuda.stream(self._torch))
        both.enter_context(self._launcher.phase(name, self._cupy))
        return both

    def record(self) -> Any:
        return self._torch.record_event()

    def wait(self, event: Any) -> None:
        self._torch.wait_event(event)


def cuda_stages(launcher: Any) -> Stages:
    """The stream on which the back end samples, one for features, and torch's."""
    import cupy

    with cupy.cuda.Device(launcher.number):
        return Stages(CudaStage(launcher, launcher.stream), CudaStage(launcher, cupy.cuda.Stream(non_blocking=True)), CudaStage(launcher))
