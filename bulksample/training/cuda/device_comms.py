"""Communicators that move tensors between devices without the host.

`GroupTensorComm` gives them to torch.distributed: NCCL moves them between devices, gloo between hosts. `MpiTensorComm` passes them to
an MPI library that reads device memory.
"""

from __future__ import annotations

import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as torch_distributed

from ...distributed.comm.base import Comm
from ...distributed.comm.mpi import MpiComm
from ...distributed.comm.ordered import CollectiveOrder
from ...distributed.comm.primitives import tree_sum
from ...distributed.comm.torch_distributed import TorchComm, ended, process_group
from ...errors import UsageError
from ..process_group import shared_store
from ..tensor_comm import HostTensorComm, TensorArrival, TensorComm

_EXTRA_SECONDS = 60.0  # the communicator's deadline, whose error names the lost rank, passes before the group's own


class GroupTensorComm(TensorComm):
    """Send tensors through a process group of torch.distributed (NCCL or gloo). Making one is collective.

    `comm` has the same ranks in the same order; it counts the bytes, and announces how many rows each part has. NCCL deadlocks if two
    threads start collectives in different orders on different ranks. So one thread starts those of all communicators that come from one
    `parent` (`CollectiveOrder`): those of the thread that made the first communicator are one sequence, those of the thread that samples
    ahead another. `later` lets torch's current stream wait for an all-to-all of NCCL; the host waits for it in `settle`.
    """

    why = "a device for each rank"

    def __init__(self, comm: Comm, backend: str, parent: GroupTensorComm | None = None, later: bool = False) -> None:
        self._later, self._unsettled = later and backend == "nccl", deque[tuple[str, Callable[[], bool]]]()
        self._comm, self._group, self.name, self._parent = comm, group_of(comm, backend), backend, parent
        self._home: int = parent._home if parent else threading.get_ident()
        self._order: CollectiveOrder = parent._order if parent else CollectiveOrder(comm)
        if parent is None:
            weakref.finalize(self, self._order.close, wait=False)

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        self._comm.count_allreduce(kind, len(tensor), tensor.element_size())
        self._wait(self._started(lambda: self._group.allreduce([tensor])), f"allreduce {kind} {tuple(tensor.shape)}")

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str, incoming: Sequence[int] | None = None) -> TensorArrival:
        """Send the parts as bytes, which every torch.distributed back end takes; this rank's own part goes the same way."""
        sent, counts = torch.cat(list(parts)), _agreed(self._comm, parts, kind, incoming)
        out, row = sent.new_empty((sum(counts), *sent.shape[1:])), sent.element_size() * sent.shape[1:].numel()
        lengths = [row * count for count in counts], [row * len(part) for part in parts]
        buffers, options = (_bytes(out), _bytes(sent)), torch_distributed.AllToAllOptions()
        work = self._started(lambda: self._group.alltoall_base(*buffers, *lengths, options))

        def finish() -> tuple[torch.Tensor, list[int]]:
            what = f"alltoall {kind} {out.nbytes} bytes for {sent.nbytes}"  # names both buffers, which live until then
            if self._later:
                work.wait()  # the stream waits, so later work on it sees the rows, and no memory of it is reused before
                self._unsettled.append((f"{what} by {self.name}", ended(work)))
            else:
                self._wait(work, what)
            return out, counts

        return TensorArrival(finish)

    def settle(self) -> None:
        while self._unsettled:
            self._comm.wait_for(*self._unsettled[0])
            self._unsettled.popleft()

    def among(self, comm: Comm, later: bool = False) -> TensorComm:
        return GroupTensorComm(comm, self.name, self, later)

    def _started(self, start: Callable[[], Any]) -> Any:
        """Start a collective in its turn, on the stream that is current here."""
        stream = torch.cuda.current_stream() if torch.cuda.is_available() else None

        def on_stream() -> Any:
            with torch.cuda.stream(stream) if stream else nullcontext():
                return start()

        return self._order.run(int(threading.get_ident() != self._home), on_stream)

    def _wait(self, work: Any, what: str) -> None:
        """Wait for the group; kernels queued later on torch's current stream see the result."""
        self._comm.wait_for(f"{what} by {self.name}", ended(work))


class MpiTensorComm(TensorComm):
    """Pass device addresses to a CUDA-aware MPI library once the host has waited for the stream. Sums are those of `HostTensorComm`."""

    name = "mpi"

    def __init__(self, comm: MpiComm, why: str = "") -> None:
        self._comm, self.why = comm, why

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        comm, counts = self._comm, [len(range(r, len(tensor), self._comm.size)) for r in range(self._comm.size)]
        comm.count_allreduce(kind, len(tensor), tensor.element_size())
        shares = self._start(torch.split(tensor, counts), [counts[comm.rank]] * comm.size, kind).wait()
        total = tree_sum(shares)
        tensor.copy_(self._start([total] * comm.size, counts, kind).whole()[0])

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str, incoming: Sequence[int] | None = None) -> TensorArrival:
        return self._start(parts, _agreed(self._comm, parts, kind, incoming), kind)

    def among(self, comm: Comm, later: bool = False) -> TensorComm:
        assert isinstance(comm, MpiComm)
        return MpiTensorComm(comm, self.why)

    def _start(self, parts: Sequence[torch.Tensor], counts: list[int], kind: str) -> TensorArrival:
        out, rank = parts[0].new_empty((sum(counts), *parts[0].shape[1:])), self._comm.rank
        into = torch.split(out, counts)
        into[rank].copy_(parts[rank])
        if out.is_cuda:
            torch.cuda.current_stream(out.device).synchronize()
        arrive = self._comm.start_bytes([_bytes(part) for part in parts], [_bytes(part) for part in into], kind)

        def finish() -> tuple[torch.Tensor, list[int]]:
            arrive()
            return out, counts

        return TensorArrival(finish)


def choose_tensor_comm(comm: Comm, where: torch.device, device_comm: str) -> TensorComm:
    """Choose how tensors travel between devices; collective, alike on all ranks. Raises `UsageError` if one cannot use `device_comm`."""
    if comm.size == 1 or device_comm == "host":
        return HostTensorComm(comm, "one rank" if comm.size == 1 else "as asked for")
    not_nccl, aware = why_not_nccl(comm, where), comm.cuda_aware
    not_mpi = next((reason for yes, reason in comm.gather_control(list(aware)) if not yes), None)
    if device_comm == "mpi" and not_mpi is None and isinstance(comm, MpiComm):
        return MpiTensorComm(comm, aware.reason)
    if device_comm != "mpi" and not_nccl is None:
        return GroupTensorComm(comm, "nccl")
    if device_comm != "auto":
        raise UsageError(
            f"device_comm {device_comm} was asked for, but {not_mpi if device_comm == 'mpi' else not_nccl}; use device_comm host"
        )
    return HostTensorComm(comm, f"{not_nccl}; {not_mpi or aware.reason + ', so device_comm mpi would work'}")


def _agreed(comm: Comm, parts: Sequence[torch.Tensor], kind: str, incoming: Sequence[int] | None) -> list[int]:
    """Return how many rows each rank has for this one; exchange the numbers unless they are known. See `Comm.exchange_counts`."""
    shape, row = tuple(parts[0].shape[1:]), parts[0].element_size() * parts[0].shape[1:].numel()
    about = ([len(part) for part in parts], kind, f"{parts[0].dtype} {shape}", row)
    if incoming is None:
        counts: list[int] = comm.exchange_counts(*about).tolist()
        return counts
    comm.count_alltoall(*about)
    return list(incoming)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


def why_not_nccl(comm: Comm, where: torch.device) -> str | None:
    """Say why NCCL cannot move tensors between these ranks, or return None if it can; collective, the same on every rank."""
    device_here = [socket.gethostname(), device_name(where)]
    sharing = [rank for rank, other in enumerate(comm.gather_control(device_here)) if other == device_here]
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
