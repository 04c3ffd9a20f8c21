"""Choose the device of a training run from its configuration and this machine."""

from __future__ import annotations

import torch

from .. import backends
from ..config.train import TrainOptions
from ..errors import BackendUnavailable, UsageError
from .compute import ComputeContext


def make_compute_context(config: TrainOptions) -> ComputeContext:
    """Make the compute context that a configuration names; ``auto`` takes a GPU if there is one that supports every option.

    Raises
    ------
    BackendUnavailable
        If the configuration names a GPU, and there is none.
    UsageError
        If an option does not work on the device that the configuration names.
    """
    unsupported, missing = unsupported_on_cuda(config), why_no_cuda()
    if config.device == "cpu" or (config.device == "auto" and (unsupported or missing)):
        if config.device_comm in ("nccl", "mpi"):
            raise UsageError(f"device_comm {config.device_comm} moves tensors between GPUs, and this run computes on the CPU; use auto")
        return ComputeContext(config.precision)
    if missing:
        raise BackendUnavailable(f"device 'cuda' was asked for, but {missing}; use device cpu")
    if unsupported:
        raise UsageError(f"{unsupported}; use device cpu")
    from .cuda.compute import CudaComputeContext, open_cuda  # a run on a CPU needs none of it

    return CudaComputeContext(open_cuda(), config.precision, config.device_comm)


def unsupported_on_cuda(config: TrainOptions) -> str | None:
    """Name the option of a configuration that does not work on a GPU, or return None."""
    if config.exclude_targets != "none":
        return "exclude_targets takes edges out of mini-batches on the host, and device 'cuda' was asked for"
    return None


def why_no_cuda() -> str | None:
    """Say why there is no GPU to train on, or return None if there is one."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees none"
    return backends.why_not("cuda")
