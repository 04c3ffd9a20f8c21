"""Collectives on torch tensors, wherever the tensors are, with the meaning and the byte counts of `distributed.comm.base.Comm`.

`HostTensorComm` copies tensors to the host and uses any communicator; it always works. `training.cuda.device_comms` has the
communicators that move tensors between GPUs directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.partition import block_bounds


class TensorArrival:
    """The tensors that an all-to-all under way will deliver. Every arrival must be waited for."""

    def __init__(self, finish: Callable[[], tuple[torch.Tensor, list[int]]]) -> None:
        self._finish = finish
        self._received: tuple[torch.Tensor, list[int]] | None = None

    def whole(self) -> tuple[torch.Tensor, list[int]]:
        """Wait, then return the rows of all senders concatenated in rank order, and how many rows each sent. May be called again."""
        if self._received is None:
            self._received = self._finish()
        return self._received

    def wait(self) -> list[torch.Tensor]:
        """Wait, then return the rows of each rank as views."""
        whole, counts = self.whole()
        return list(torch.split(whole, counts))


class TensorComm(ABC):
    """Collectives on tensors: `name` is the transport, for the report, and `why` the reason for it, for the user.

    The thread that trains and the one that samples ahead may each use a communicator of this kind at the same time.
    """

    name: str
    why = ""

    @abstractmethod
    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        """Sum a contiguous 1-d float32 tensor over ranks, in place; counts the bytes that `Comm.allreduce` counts."""

    @abstractmethod
    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str, incoming: Sequence[int] | None = None) -> TensorArrival:
        """Start to send one part to each rank, by the contract of `Comm.start_alltoall_rows`.

        All parts are on one device, and the received rows arrive there. Work is queued on torch's current stream. `incoming` is the number
        of rows from each rank, where all ranks know it.
        """

    @abstractmethod
    def among(self, comm: Comm, later: bool = False) -> TensorComm:
        """Make such a communicator for other ranks; collective. With `later`, only the device waits for all-to-alls until `settle`."""

    def settle(self) -> None:
        """Wait, with a deadline, for messages that only the device waits for; call it before the host reads what depends on them."""
        return

    def alltoall(self, parts: Sequence[torch.Tensor], kind: str) -> list[torch.Tensor]:
        """Return the part that each rank sent to this one, in rank order; see `Comm.alltoall`."""
        return self.start_alltoall(parts, kind).wait()


class HostTensorComm(TensorComm):
    """Moves tensors over the host: sent and received rows of a GPU cross the bus once each."""

    name = "host"

    def __init__(self, comm: Comm, why: str = "") -> None:
        self._comm, self.why = comm, why

    def allreduce(self, tensor: torch.Tensor, kind: str) -> None:
        on_host = tensor.cpu()
        self._comm.allreduce(on_host.numpy(), kind)
        if on_host is not tensor:
            tensor.copy_(on_host)

    def start_alltoall(self, parts: Sequence[torch.Tensor], kind: str, incoming: Sequence[int] | None = None) -> TensorArrival:
        counts, where, dtype = np.array([len(part) for part in parts]), parts[0].device, parts[0].dtype
        rows = torch.cat(list(parts)).cpu()
        numbers = rows.view(torch.int16) if dtype == torch.bfloat16 else rows  # numpy has no bfloat16
        known = None if incoming is None else np.array(incoming)
        arrival = self._comm.start_alltoall_rows(numbers.numpy(), counts, kind, known)

        def finish() -> tuple[torch.Tensor, list[int]]:
            return torch.from_numpy(arrival.wait()).view(dtype).to(where), arrival.counts.tolist()

        return TensorArrival(finish)

    def among(self, comm: Comm, later: bool = False) -> TensorComm:
        return HostTensorComm(comm)


BUCKET = 2**22  # numbers: 16 MiB of float32


def add_over_ranks(tensors: list[torch.Tensor], comm: Comm, kind: str, codec: str = "fp32", over: TensorComm | None = None) -> None:
    """Sum float32 tensors over ranks, in place, flattened into buckets of at most 2**22 numbers.

    All ranks pass the same shapes in the same order, and together send 2 (p - 1) times the encoded bytes of one rank's tensors. With a
    codec other than fp32, each rank's tensors are rounded, added in float32, and the sum is rounded again. `over` adds fp32 tensors on the
    device of the first tensor; by default they are added in host memory.
    """
    if comm.size == 1:
        return
    flat = torch.cat([tensor.detach().reshape(-1).to(tensors[0].device) for tensor in tensors])
    for bucket in torch.split(flat, BUCKET):
        if codec == "fp32":
            (over or HostTensorComm(comm)).allreduce(bucket, kind)
        else:
            on_host = bucket.cpu()
            numbers, how, bounds = on_host.numpy(), codec_named(codec), block_bounds(len(bucket), comm.size)
            received = comm.alltoall(np.split(how.encode(numbers), bounds[1:-1]), kind)
            share = np.stack([how.decode(part) for part in received]).sum(0, np.float32)  # of this rank, added in rank order
            numbers[:] = how.decode(comm.allgather_rows(how.encode(share), np.diff(bounds), kind))
            bucket.copy_(on_host)
    for tensor, total in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(total.view_as(tensor))
