"""The sampled edges of one layer as torch tensors, for models of a user's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..minibatch import Block
from .aggregate import aggregate


@dataclass(frozen=True, eq=False)
class TensorBlock:
    """The sampled edges of one layer as tensors, made when they are first read. Destinations are the first of the sources.

    Parameters
    ----------
    block : Block
    device : torch.device
    """

    block: Block
    device: Any

    @property
    def num_sources(self) -> int:
        return self.block.num_sources

    @property
    def num_destinations(self) -> int:
        return self.block.num_destinations

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """Positions of source and destination in the mini-batch's list of vertices, as torch_geometric has them: int64, shape (2, E)."""
        counts = _tensor(self.block.indptr, self.device).diff()
        destination = torch.repeat_interleave(torch.arange(self.num_destinations, device=self.device), counts)
        return torch.stack([_tensor(self.block.indices, self.device).long(), destination])

    @cached_property
    def weights(self) -> torch.Tensor | None:
        """The weight of each edge in the aggregation: float32, shape (E,); None stands for the mean over a destination's edges."""
        return None if self.block.weights is None else _tensor(self.block.weights, self.device)

    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum, or the mean, of the sources of each destination: shape (num_destinations, f) from (num_sources, f).

        On a CPU by the kernel that the package's own layers use, with its gradient.
        """
        if h.device.type == "cpu":
            return aggregate(self.block, h).to(h.dtype)
        source, destination = self.edge_index
        scale = self.weights
        if scale is None:
            scale = 1 / destination.bincount(minlength=self.num_destinations).clamp(min=1).to(h.dtype)[destination]
        return h.new_zeros(self.num_destinations, h.shape[1]).index_add(0, destination, h[source] * scale[:, None])


def _tensor(array: Any, device: Any) -> torch.Tensor:
    """Return an array or a tensor as a tensor on a device. A read-only array is copied."""
    if isinstance(array, np.ndarray):
        array = torch.from_numpy(array if array.flags.writeable else array.copy())
    there: torch.Tensor = array.to(device)
    return there
