"""The device on which a rank trains: `ComputeContext` is the CPU, `training.cuda.compute` the GPU. The loop uses both alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .. import backends
from ..backends.base import Backend
from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..errors import UsageError
from ..nn.model import Model
from ..profiling import profiled
from ..samplers import Sampler
from ..views.view import View
from .tensor_comm import HostTensorComm, TensorComm


class ComputeContext:
    """Place the model, the features and the mini-batches on the CPU, and make the back end that samples."""

    where = torch.device("cpu")  # holds the model, and the features and blocks of a mini-batch
    ahead = False  # sampling runs beside the threads that compute
    has_device = False  # each rank has a device of its own, among which features can be divided

    def __init__(self, precision: str = "fp32") -> None:
        if precision == "tf32":
            raise UsageError("precision tf32 needs a GPU, and this run computes on the CPU; use fp32 or bf16")
        self.precision = precision

    def backend(self, config: TrainOptions, threads: int) -> Backend:
        """Return the back end that samples."""
        return sampling_backend(config.backend, threads)

    def move_view(self, view: View, over: TensorComm, sampler: Sampler) -> View:
        """Move this rank's view of the graph to the compute device; collective. `over` is what `tensors` returned."""
        return view

    def move_model(self, model: Model) -> Model:
        """Move a model to the compute device."""
        return model.to(self.where)

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Return a context for forward passes in the requested precision; weights, gradients and aggregation stay float32."""
        return torch.autocast(self.where.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a small tensor of the host to the compute device; the host does not wait."""
        return tensor

    def start_read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Start to copy a tensor of the compute device to the host; return a function that waits for the copy and returns it."""
        return lambda: tensor

    def synchronize(self) -> None:
        """Wait until the compute device has done all its work."""

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that marks a named range on a profiler's timeline."""
        return profiled(name)

    def budget(self) -> int | None:
        """Return the bytes for sampled mini-batches, or None to let the loader decide."""
        return None

    def tensors(self, comm: Comm) -> TensorComm:
        """Return the communicator that moves tensors between ranks; collective."""
        return HostTensorComm(comm)

    def transport_note(self, over: TensorComm) -> str:
        """Describe for the user how the devices reach each other; empty on a CPU."""
        return ""

    def describe(self) -> dict[str, Any]:
        """Return the entries for the run's report."""
        return {"device": self.where.type, "precision": self.precision}


def sampling_backend(name: str, threads: int) -> Backend:
    """Make a back end. The CUDA one allocates from torch's memory pool, so that sampling and training share free memory."""
    backend = backends.make(name, threads)
    if backend.name == "cuda" and torch.cuda.is_available():
        from ..backends.cuda.nvrtc import share_pool

        share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)
    return backend
