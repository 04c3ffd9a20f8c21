"""The sampled edges of one layer as torch tensors, for models of a user's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..graph.minibatch import Block
from ..pickled import Uncached
from .aggregate import aggregate


class TensorBlock(Uncached):
    """The sampled edges of one layer as tensors, made when they are first read. Destinations are the first of the sources."""

    def __init__(self, block: Block, device: Any) -> None:
        self.block, self.device = block, device

    def sources(self, h: torch.Tensor) -> torch.Tensor:
        """Return the rows of all sources, shape (num_sources, f), from the output of the layer before.

        In a mini-batch these are the same rows. Methods that exchange rows between layers fetch those of other ranks here (`HaloBlock`),
        so a module that begins each layer with ``h = block.sources(h)`` trains by every method.
        """
        return h

    @property
    def num_sources(self) -> int:
        return self.block.num_sources

    @property
    def num_destinations(self) -> int:
        return self.block.num_destinations

    @property
    def num_edges(self) -> int:
        return self.block.num_edges

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

        On a CPU by the kernel that the package's own layers use, with its gradient. Raises `ValueError` if `h` has too few rows.
        """
        if len(h) < self.num_sources:
            raise ValueError(f"aggregate needs a row for each of the {self.num_sources} sources; got {len(h)}: use block.sources(h) first")
        if h.device.type == "cpu":
            return aggregate(self.block, h).to(h.dtype)
        source, destination = self.edge_index
        scale = self.weights
        if scale is None:
            scale = 1 / destination.bincount(minlength=self.num_destinations).clamp(min=1).to(h.dtype)[destination]
        return h.new_zeros(self.num_destinations, h.shape[1]).index_add(0, destination, h[source] * scale[:, None])


class HaloBlock(TensorBlock):
    """A layer of a pass over the whole graph: its sources are this rank's m rows, then h halo rows, which other ranks hold.

    `edges` holds the edges, which all layers share. `exchange` returns the rows of all sources, shape (m + h, f), from those of this rank,
    shape (m, f); it is collective, forward and backward, and `exchanges` counts its calls.
    """

    def __init__(self, edges: TensorBlock, exchange: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__(edges.block, edges.device)
        self._edges, self._exchange, self.exchanges = edges, exchange, 0

    def sources(self, h: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows, then the halo rows. Collective: every rank calls it once for each layer."""
        self.exchanges += 1
        return self._exchange(h)

    @property
    def edge_index(self) -> torch.Tensor:
        return self._edges.edge_index

    @property
    def weights(self) -> torch.Tensor | None:
        return self._edges.weights


def _tensor(array: Any, device: Any) -> torch.Tensor:
    """Return an array or a tensor as a tensor on a device. A read-only array is copied."""
    if isinstance(array, np.ndarray):
        array = torch.from_numpy(array if array.flags.writeable else array.copy())
    there: torch.Tensor = array.to(device)
    return there
