"""How the ranks of a communicator meet in torch.distributed, and whether they may: NCCL needs a device for each rank."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch

from ...distributed.comm.base import Comm
from ...distributed.comm.torch_distributed import TorchComm, process_group

_GROUP_SECONDS_MORE = 60.0  # the deadline is that of the communicator; a group's own, which names nobody, comes after it


def why_not_nccl(comm: Comm, where: torch.device) -> str | None:
    """Why NCCL cannot move what lies on the devices of these ranks, or None where it can; collective, and alike on every rank."""
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
    """The same for two ranks of a machine if they have the same device, be it the first that either is shown."""
    return str(getattr(torch.cuda.get_device_properties(where), "uuid", where)) if where.type == "cuda" else str(where)


def group_of(comm: Comm, backend: str) -> Any:
    """A process group of torch.distributed of the ranks of a communicator, in their order; collective.

    Ranks that torchrun started have a store already. Others meet at one that the first of them opens and whose address it tells; a
    communicator of a row or a column of the grid makes the group of that row or column.
    """
    if isinstance(comm, TorchComm):
        return comm.new_group(backend)
    from torch.distributed import TCPStore

    host = meeting_place(comm.gather_control([socket.gethostname(), os.environ.get("MASTER_ADDR", "")]))
    options: dict[str, Any] = {"timeout": timedelta(seconds=comm.timeout), "wait_for_workers": False}
    store = TCPStore(host, 0, comm.size, True, **options) if comm.rank == 0 else None
    port = comm.gather_control(store.port if store else 0)[0]
    there = store or TCPStore(host, port, comm.size, False, **options)
    return process_group(backend, there, backend, comm.rank, comm.size, comm.timeout + _GROUP_SECONDS_MORE)


def meeting_place(ranks: list[list[str]]) -> str:
    """The address at which the first rank can be found, from the machine of each rank and what its MASTER_ADDR says."""
    machine, said = ranks[0]
    return "127.0.0.1" if all(other == machine for other, _ in ranks) else said or machine
