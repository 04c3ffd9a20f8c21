"""Make torch.distributed process groups for the ranks of a communicator, and check that NCCL can be used: one GPU for each rank."""

from __future__ import annotations

import socket
from typing import Any

import torch

from ...distributed.comm.base import Comm
from ...distributed.comm.torch_distributed import TorchComm, process_group
from ..process_group import shared_store

_EXTRA_SECONDS = 60.0  # the communicator's deadline, whose error names the lost rank, passes before the group's own


def why_not_nccl(comm: Comm, where: torch.device) -> str | None:
    """Say why NCCL cannot move tensors between these ranks, or return None if it can; collective, the same on every rank."""
    own = [socket.gethostname(), device_name(where)]
    sharing = [rank for rank, other in enumerate(comm.gather_control(own)) if other == own]
    reasons = comm.gather_control(_why_not(comm.rank, where, sharing))
    return next((reason for reason in reasons if reason), None)


def _why_not(rank: int, where: torch.device, sharing: list[int]) -> str | None:
    if where.type != "cuda":
        return f"rank {rank} computes on the {where.type}"
    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        return f"torch {torch.__version__} is built without it"
    return f"ranks {', '.join(map(str, sharing))} share a device" if len(sharing) > 1 else None


def device_name(where: torch.device) -> str:
    """Name the hardware device, which two ranks may see under different numbers."""
    return str(getattr(torch.cuda.get_device_properties(where), "uuid", where)) if where.type == "cuda" else str(where)


def group_of(comm: Comm, backend: str) -> Any:
    """Make a process group of the ranks of a communicator, in their order; collective."""
    if isinstance(comm, TorchComm):
        return comm.new_group(backend)
    return process_group(backend, shared_store(comm), backend, comm.rank, comm.size, comm.timeout + _EXTRA_SECONDS)
