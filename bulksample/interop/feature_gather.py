"""Gather features of the vertices of a mini-batch, for the drop-in loaders.

X[V]        float32, one row a vertex, into memory that is reused once no batch refers to it
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

from ..backends import on_host
from ..nn.gather import RowPool, gather_rows


def can_gather(x: Any) -> bool:
    """Return True for features that `FeatureGather` can gather: a contiguous float32 matrix on the host that needs no gradient."""
    plain = isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.layout is torch.strided and not x.requires_grad
    return plain and x.dim() == 2 and x.dtype == torch.float32 and x.is_contiguous()


class FeatureGather:
    """Gathers rows of features on all threads of torch. Each calling thread has a memory pool of its own."""

    def __init__(self) -> None:
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureGather, ()

    def __call__(self, x: torch.Tensor, vertices: np.ndarray) -> torch.Tensor:
        """Return rows of x: float32, shape (N, f)."""
        if not hasattr(self._own, "pool"):
            self._own.pool = RowPool()
        return torch.from_numpy(gather_rows(x.numpy(), vertices, pool=self._own.pool, backend=on_host(torch.get_num_threads())))
