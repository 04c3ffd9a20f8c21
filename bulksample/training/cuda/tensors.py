"""Collectives of tensors that lie on a device.

`Staged` copies them to the host, where any communicator moves them; that always works. `Grouped` gives them to torch.distributed:
NCCL moves them between devices, gloo between hosts. `Direct` hands them to an MPI library that reads device memory. All mean what
`distributed.comm.base.Comm` means, and count the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as torch_distributed

from ...distributed.comm.base import Comm
from ...distributed.comm.mpi import MpiComm
from ...distributed.comm.torch_distributed import ended
from ...errors import UsageError
from .meeting import group_of, why_not_nccl

DEVICE_COMMS = ("auto", "host", "nccl", "mpi")


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
        _count_sum(self._comm, tensor, kind)
        self._wait(self._group.allreduce([tensor]), f"allreduce {kind} {tuple(tensor.shape)}")

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> TensorArrival:
        """As bytes, which every back end takes; the part for this rank goes the same way."""
        held, counts = torch.cat(list(parts)), _announced(self._comm, parts, kind)
        out, row = held.new_empty((sum(counts), *held.shape[1:])), held.element_size() * held.shape[1:].numel()
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


class Direct(TensorComm):
    """Over MPI, which is handed the tensors themselves; sums are those of `Staged` to the bit.

    Parameters
    ----------
    comm : MpiComm
        Of a library that reads the memory in which tensors lie. It knows nothing of streams: the host waits before it sends.
    """

    name = "mpi"

    def __init__(self, comm: MpiComm, why: str = "") -> None:
        self._comm, self.why = comm, why

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        comm, counts = self._comm, [len(range(r, len(tensor), self._comm.size)) for r in range(self._comm.size)]
        _count_sum(comm, tensor, kind)
        shares = self._start(tensor.split(counts), [counts[comm.rank]] * comm.size, kind).wait()
        total = torch.zeros_like(shares[0])
        for share in shares:
            total += share
        tensor.copy_(self._start([total] * comm.size, counts, kind).whole()[0])

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> TensorArrival:
        return self._start(parts, _announced(self._comm, parts, kind), kind)

    def among(self, comm: Comm) -> TensorComm:
        assert isinstance(comm, MpiComm)
        return Direct(comm, self.why)

    def _start(self, parts: Sequence[torch.Tensor], counts: list[int], kind: str) -> TensorArrival:
        out, rank = parts[0].new_empty((sum(counts), *parts[0].shape[1:])), self._comm.rank
        into = out.split(counts)
        into[rank].copy_(parts[rank])
        if out.is_cuda:
            torch.cuda.current_stream(out.device).synchronize()
        flight = self._comm.start_bytes([_bytes(part) for part in parts], [_bytes(part) for part in into], kind)

        def land() -> tuple[torch.Tensor, list[int]]:
            flight.wait()
            return out, counts

        return TensorArrival(land)


def over_devices(comm: Comm, where: torch.device, asked: str) -> TensorComm:
    """How tensors travel between the devices of the ranks of a communicator; collective, and alike on every rank.

    Raises
    ------
    UsageError
        On all ranks, if NCCL, or MPI, was asked for and some rank cannot take part.
    """
    if comm.size == 1 or asked == "host":
        return Staged(comm, "one rank" if comm.size == 1 else "as asked for")
    not_nccl, aware = why_not_nccl(comm, where), comm.cuda_aware
    not_mpi = next((reason for yes, reason in comm.gather_control(list(aware)) if not yes), None)
    if asked == "mpi" and not_mpi is None and isinstance(comm, MpiComm):
        return Direct(comm, aware.reason)
    if asked != "mpi" and not_nccl is None:
        return Grouped(comm, "nccl")
    if asked != "auto":
        raise UsageError(f"device_comm {asked} was asked for, but {not_mpi if asked == 'mpi' else not_nccl}; device_comm host would fit")
    return Staged(comm, f"{not_nccl}; {not_mpi or aware.reason + ', so device_comm mpi would work'}")


def _announced(comm: Comm, parts: Sequence[torch.Tensor], kind: str) -> list[int]:
    """How much each rank has for this one; see `Comm.announce`."""
    shape, row = tuple(parts[0].shape[1:]), parts[0].element_size() * parts[0].shape[1:].numel()
    counts: list[int] = comm.exchange_counts([len(part) for part in parts], kind, f"{parts[0].dtype} {shape}", row).tolist()
    return counts


def _count_sum(comm: Comm, tensor: torch.Tensor, kind: str) -> None:
    """As `Comm.allreduce` does."""
    share = len(range(comm.rank, len(tensor), comm.size)) * tensor.element_size()
    comm.count(kind, 2 * (comm.size - 1), tensor.nbytes - share + (comm.size - 1) * share)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
