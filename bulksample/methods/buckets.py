"""Many small tensors as few large messages."""

from __future__ import annotations

import torch

from ..dist.base import Comm

BUCKET = 2**22  # numbers: 16 MiB of float32


def add_over_ranks(tensors: list[torch.Tensor], comm: Comm, kind: str) -> None:
    """Sum float32 tensors over ranks, in place, flattened into buckets of at most 2**22 numbers.

    All ranks bring the same shapes in the same order. Sent over all ranks: 2 (p - 1) times the bytes of one rank's tensors.
    """
    if comm.size == 1:
        return
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    for first in range(0, len(flat), BUCKET):
        comm.allreduce(flat[first : first + BUCKET].numpy(), kind)
    at = 0
    for tensor in tensors:
        tensor.detach().copy_(flat[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()
