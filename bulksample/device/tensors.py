"""Collectives of tensors that lie on a device.

`Staged` copies them to the host, where any communicator moves them; that always works. `Grouped` gives them to torch.distributed:
NCCL moves them between devices, gloo between hosts. Both mean what `dist.base.Comm` means, and count the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as torch_distributed

from ..dist.base import Comm
from ..dist.torched import ended
from ..errors import UsageError
from .meeting import group_of, why_not_nccl

DEVICE_COMMS = ("auto", "host", "nccl")


class TensorArrival:
    """What an all-to-all of tensors that is under way will bring; every arrival is waited for."""

    def __init__(self, land: Callable[[], tuple[torch.Tensor, list[int]]]) -> None:
        self._land = land
        self._came: tuple[torch.Tensor, list[int]] | None = None

    def whole(self) -> tuple[torch.Tensor, list[int]]:
        """What all ranks sent to this one, in rank order, end to end, and how much of it each sent. Waits; may be called again."""
        if self._came is None:
            self._came = self._land()
        return self._came

    def wait(self) -> list[torch.Tensor]:
        """The same, rank by rank: views."""
        whole, counts = self.whole()
        return list(whole.split(counts))


class TensorComm(ABC):
    """Collectives on tensors.

    Attributes
    ----------
    name : str
        How they travel, for the report.
    why : str
        Why in this way, for the user.
    concurrent : bool
        Whether several threads may use communicators of this kind at once, each one of its own.
    """

    name: str
    why = ""
    concurrent = True

    @abstractmethod
    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        """Sum a contiguous float32 tensor of one dimension over ranks, in place; counted as `Comm.allreduce` counts."""

    @abstractmethod
    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> TensorArrival:
        """Begin to send a part to each rank; see `Comm.start_alltoall`, of which this keeps the contract.

        All parts lie on one device, and there the others will arrive. What is started here is on torch's present stream.
        """

    @abstractmethod
    def among(self, comm: Comm) -> TensorComm:
        """The same for a communicator of some of the ranks, such as a row or a column of the grid; collective in it."""

    def alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> list[torch.Tensor]:
        """What each rank sent to this one, in rank order; see `Comm.alltoall`."""
        return self.start_alltoall(parts, kind).wait()


class Staged(TensorComm):
    """Over the host: all that is sent and all that comes crosses the bus once each, where it lies on a device."""

    name = "host"

    def __init__(self, comm: Comm, why: str = "") -> None:
        self._comm, self.why = comm, why

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        there = tensor.cpu()
        self._comm.allreduce(there.numpy(), kind)
        if there is not tensor:
            tensor.copy_(there)

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> TensorArrival:
        counts, where, dtype = [len(part) for part in parts], parts[0].device, parts[0].dtype
        held = torch.cat(list(parts)).cpu()
        numbers = held.view(torch.int16) if dtype == torch.bfloat16 else held  # numpy has no such type
        arrival = self._comm.start_alltoall([part.numpy() for part in numbers.split(counts)], kind)

        def land() -> tuple[torch.Tensor, list[int]]:
            came = [torch.from_numpy(part).view(dtype) for part in arrival.wait()]
            return torch.cat(came).to(where), [len(part) for part in came]

        return TensorArrival(land)

    def among(self, comm: Comm) -> TensorComm:
        return Staged(comm)


class Grouped(TensorComm):
    """Over a process group of torch.distributed; collective to make.

    Parameters
    ----------
    comm : Comm
        Of the same ranks in the same order; its tally is counted into, and it says how many rows of a part are coming.
    backend : {"nccl", "gloo"}

    Notes
    -----
    Two communicators of NCCL that two threads use in different orders on different ranks may wait for each other for ever.
    """

    def __init__(self, comm: Comm, backend: str) -> None:
        self._comm, self._group, self.name = comm, group_of(comm, backend), backend
        self.concurrent, self.why = backend != "nccl", "a device for each rank"

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        comm = self._comm
        share = len(range(comm.rank, len(tensor), comm.size)) * tensor.element_size()
        comm.count(kind, 2 * (comm.size - 1), tensor.nbytes - share + (comm.size - 1) * share)
        self._wait(self._group.allreduce([tensor]), f"allreduce {kind} {tuple(tensor.shape)}")

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> TensorArrival:
        """As bytes, which every back end takes; the part for this rank goes the same way."""
        held, shape = torch.cat(list(parts)), parts[0].shape[1:]
        row = held.element_size() * shape.numel()
        counts = self._comm.announce([len(part) for part in parts], kind, f"{held.dtype} {tuple(shape)}", row).tolist()
        out = held.new_empty((sum(counts), *shape))
        lengths = [row * count for count in counts], [row * len(part) for part in parts]
        work = self._group.alltoall_base(_bytes(out), _bytes(held), *lengths, torch_distributed.AllToAllOptions())

        def land() -> tuple[torch.Tensor, list[int]]:
            self._wait(work, f"alltoall {kind} {out.nbytes} bytes for {held.nbytes}")  # both live as long
            return out, counts

        return TensorArrival(land)

    def among(self, comm: Comm) -> TensorComm:
        return Grouped(comm, self.name)

    def _wait(self, work: Any, what: str) -> None:
        """Until the group is done, and with it all that torch's present stream starts from now on."""
        self._comm.wait_for(f"{what} by {self.name}", ended(work))


def over_nccl(comm: Comm, where: torch.device, asked: str) -> TensorComm:
    """How tensors travel between the devices of the ranks of a communicator; collective, and alike on every rank.

    Raises
    ------
    UsageError
        On all ranks, if NCCL was asked for and some rank cannot take part.
    """
    if comm.size == 1 or asked == "host":
        return Staged(comm, "one rank" if comm.size == 1 else "as asked for")
    why = why_not_nccl(comm, where)
    if why is None:
        return Grouped(comm, "nccl")
    if asked == "nccl":
        raise UsageError(f"device_comm nccl was asked for, but {why}; device_comm host would fit")
    return Staged(comm, why)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
