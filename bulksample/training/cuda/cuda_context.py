"""One GPU for training: the sampling back end and torch on the same device, and the streams on which they work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
import torch.utils.dlpack

from ...backends.cuda.backend import Cuda
from ...backends.cuda.device import CudaDevice
from ...backends.cuda.nvrtc import DeviceLauncher


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


class CudaContext:
    """The GPU of this rank: `engine` samples and launches our kernels, and `where` is the same GPU for torch."""

    def __init__(self, engine: Cuda, where: torch.device, streams: DeviceStreams) -> None:
        self.engine, self.where, self.streams = engine, where, streams

    @property
    def kernels(self) -> CudaDevice:
        """The back end's device, which launches kernels."""
        return self.engine.device

    def tensor(self, array: Any) -> Any:
        """Convert an array of the back end to a tensor that shares its memory (DLPack)."""
        return torch.utils.dlpack.from_dlpack(array)

    def array(self, tensor: torch.Tensor) -> Any:
        """Convert a tensor to an array of the back end; the memory is shared if the tensor is contiguous."""
        return self.kernels.arrays.from_dlpack(tensor.detach().contiguous())

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a small tensor of the host to the GPU through pinned memory, on torch's current stream; the host does not wait."""
        return tensor.pin_memory().to(self.where, non_blocking=True) if self.where.type == "cuda" else tensor.to(self.where)

    def start_read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Start to copy a tensor to pinned memory, on the stream that trains; return a function that waits for the copy and returns it."""
        with self.streams.train.on("read"):
            on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.where.type == "cuda")
            on_host.copy_(tensor, non_blocking=True)
            copied = self.streams.train.record()

        def finish() -> torch.Tensor:
            if self.where.type == "cuda":
                copied.synchronize()
            return on_host

        return finish

    def put(self, array: np.ndarray | torch.Tensor) -> Any:
        """Copy an array or a tensor to the GPU; a tensor that is already there is returned as it is."""
        if isinstance(array, torch.Tensor):
            return array.to(self.where)
        return torch.tensor(np.ascontiguousarray(array), device=self.where)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn torch's out-of-memory error into `MemoryError`, upon which the loader halves its bulk."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error)) from error


class CudaStream:
    """A stream of CuPy, by default torch's current one, that CuPy and torch share."""

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
