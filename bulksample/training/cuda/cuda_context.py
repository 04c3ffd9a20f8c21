"""One GPU for training: the sampling back end and torch on the same device, and the streams on which they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack

from ...backends.cuda.backend import Cuda
from ...backends.cuda.device import CudaDevice
from .streams import DeviceStreams


class CudaContext:
    """The GPU of this rank.

    Parameters
    ----------
    engine : Cuda
        The back end that samples and launches our kernels.
    where : torch.device
        The same GPU for torch.
    streams : DeviceStreams
    """

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
