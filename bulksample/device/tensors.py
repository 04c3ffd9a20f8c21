"""Sums over ranks of tensors that lie on a device.

`Staged` copies them to the host, where any communicator adds them; that always works. `Grouped` gives them to torch.distributed, whose
processes have found each other over that communicator: NCCL adds on devices, gloo on hosts. Both count the same bytes.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any

import torch

from ..dist.base import Comm
from ..dist.torched import TorchComm, process_group
from ..errors import UsageError

DEVICE_COMMS = ("auto", "host", "nccl")


class TensorComm(ABC):
    """Collectives on tensors.

    Attributes
    ----------
    name : str
        How they travel, for the report.
    """

    name: str

    @abstractmethod
    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        """Sum a contiguous float32 tensor of one dimension over ranks, in place; counted as `Comm.allreduce` counts."""


class Staged(TensorComm):
    """Over the host: the whole tensor crosses the bus twice, where it lies on a device."""

    name = "host"

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        there = tensor.cpu()
        self._comm.allreduce(there.numpy(), kind)
        if there is not tensor:
            tensor.copy_(there)


class Grouped(TensorComm):
    """Over a process group of torch.distributed.

    Parameters
    ----------
    comm : Comm
        Of the same ranks in the same order; its tally is counted into.
    group : torch.distributed process group
    name : str
    """

    def __init__(self, comm: Comm, group: Any, name: str) -> None:
        self._comm, self._group, self.name = comm, group, name

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        comm = self._comm
        share = len(range(comm.rank, len(tensor), comm.size)) * tensor.element_size()
        comm.count(kind, 2 * (comm.size - 1), tensor.nbytes - share + (comm.size - 1) * share)
        self._group.allreduce([tensor]).wait()


def over_nccl(comm: Comm, where: torch.device, asked: str) -> TensorComm:
    """How the ranks of a communicator add tensors on their devices; collective, and alike on every rank.

    Raises
    ------
    UsageError
        On all ranks, if NCCL was asked for and some rank cannot take part.
    """
    if comm.size == 1 or asked == "host":
        return Staged(comm)
    why = next((reason for reason in comm.gather_control(_why_not(comm, where)) if reason), None)
    if why is None:
        return Grouped(comm, group_of(comm, "nccl"), "nccl")
    if asked == "nccl":
        raise UsageError(f"device_comm nccl was asked for, but {why}; device_comm host would fit")
    return Staged(comm)


def _why_not(comm: Comm, where: torch.device) -> str | None:
    """Why NCCL cannot add what lies here; collective. It needs a device for each rank."""
    own = [socket.gethostname(), device_name(where)]
    shared = comm.gather_control(own).count(own) > 1
    if where.type != "cuda":
        return f"rank {comm.rank} computes on the {where.type}"
    if not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        return f"torch {torch.__version__} is built without it"
    return f"rank {comm.rank} shares its device with another" if shared else None


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

    seconds = _timeout(comm)
    host = meeting_place(comm.gather_control([socket.gethostname(), os.environ.get("MASTER_ADDR", "")]))
    options: dict[str, Any] = {"timeout": timedelta(seconds=seconds), "wait_for_workers": False}
    store = TCPStore(host, 0, comm.size, True, **options) if comm.rank == 0 else None
    port = comm.gather_control(store.port if store else 0)[0]
    return process_group(backend, store or TCPStore(host, port, comm.size, False, **options), backend, comm.rank, comm.size, seconds)


def meeting_place(ranks: list[list[str]]) -> str:
    """The address at which the first rank can be found, from the machine of each rank and what its MASTER_ADDR says."""
    machine, said = ranks[0]
    return "127.0.0.1" if all(other == machine for other, _ in ranks) else said or machine


def _timeout(comm: Comm) -> float:
    watch = getattr(comm, "watch", None)
    return float(watch.timeout) if watch is not None else 300.0
