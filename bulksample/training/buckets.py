"""Many small tensors as few large messages."""

from __future__ import annotations

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.codec import Codec, codec_named
from ..distributed.matrix.partition import block_bounds
from .tensor_comm import HostTensorComm, TensorComm

BUCKET = 2**22  # numbers: 16 MiB of float32


def add_over_ranks(tensors: list[torch.Tensor], comm: Comm, kind: str, codec: str = "fp32", over: TensorComm | None = None) -> None:
    """Sum float32 tensors over ranks, in place, flattened into buckets of at most 2**22 numbers.

    All ranks bring the same shapes in the same order. Sent over all ranks: 2 (p - 1) times the bytes of one rank's tensors,
    as the codec holds them. With another than fp32, what a rank brings is rounded, then the sum; the sum itself is float32. They are
    added where the first of them lies, `over` a communicator of tensors, over the host unless given.
    """
    if comm.size == 1:
        return
    flat = torch.cat([tensor.detach().reshape(-1).to(tensors[0].device) for tensor in tensors])
    for bucket in flat.split(BUCKET):
        if codec == "fp32":
            (over or HostTensorComm(comm)).allreduce(bucket, kind)
        else:
            there = bucket.cpu()
            _add_rounded(there.numpy(), comm, kind, codec_named(codec))
            bucket.copy_(there)
    at = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()


def _add_rounded(bucket: np.ndarray, comm: Comm, kind: str, codec: Codec) -> None:
    """Each rank adds its share of the numbers in rank order, then all gather the sums."""
    bounds = block_bounds(len(bucket), comm.size)
    brought = comm.alltoall(np.split(codec.encode(bucket), bounds[1:-1]), kind)
    share = np.stack([codec.decode(part) for part in brought]).sum(0, np.float32)
    bucket[:] = codec.decode(comm.allgather_rows(codec.encode(share), np.diff(bounds), kind))
