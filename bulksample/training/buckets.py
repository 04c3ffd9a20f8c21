"""All-reduce of many small tensors as a few large messages."""

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

    All ranks pass the same shapes in the same order, and together send 2 (p - 1) times the encoded bytes of one rank's tensors. With
    a codec other than fp32, each rank's tensors are rounded, added in float32, and the sum is rounded again.

    Parameters
    ----------
    over : TensorComm, optional
        Adds fp32 tensors on the device of the first tensor; by default they are added in host memory.
    """
    if comm.size == 1:
        return
    flat = torch.cat([tensor.detach().reshape(-1).to(tensors[0].device) for tensor in tensors])
    for bucket in torch.split(flat, BUCKET):
        if codec == "fp32":
            (over or HostTensorComm(comm)).allreduce(bucket, kind)
        else:
            on_host = bucket.cpu()
            _add_rounded(on_host.numpy(), comm, kind, codec_named(codec))
            bucket.copy_(on_host)
    at = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()


def _add_rounded(bucket: np.ndarray, comm: Comm, kind: str, codec: Codec) -> None:
    """Add a share of the numbers on each rank, in rank order, and gather the sums on all ranks."""
    bounds = block_bounds(len(bucket), comm.size)
    received = comm.alltoall(np.split(codec.encode(bucket), bounds[1:-1]), kind)
    share = np.stack([codec.decode(part) for part in received]).sum(0, np.float32)
    bucket[:] = codec.decode(comm.allgather_rows(codec.encode(share), np.diff(bounds), kind))
