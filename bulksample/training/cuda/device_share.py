"""Exact inference on a device; rows still travel between ranks over the host."""

from __future__ import annotations

import numpy as np
import torch

from ...graph.minibatch import Block
from ...nn.layers import Input, Layer
from ...views.inference_share import InferenceShare, Neighborhood
from .cuda_context import CudaContext
from .device_rows import block_on_device, rows_on_device


class DeviceShare(InferenceShare):
    """A share that copies each range of rows to the device when it is computed."""

    def __init__(self, cuda: CudaContext, share: InferenceShare) -> None:
        self._cuda, self._share, self.chunk_numbers = cuda, share, share.chunk_numbers
        self.n, self.edges, self.rows, self.indptr, self.sparse = share.n, share.edges, share.rows, share.indptr, share.sparse
        self.vertices, self.comm, self.first, self.holds_features, self.gathered = (
            share.vertices, share.comm, share.first, share.holds_features, share.gathered,
        )  # fmt: skip
        self.degrees, self.labels, self.masks = cuda.put(share.degrees), share.labels, share.masks

    def places(self, vertices: np.ndarray) -> np.ndarray:
        return self._share.places(vertices)

    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self._share.entries(at)

    def put(self, rows: torch.Tensor) -> torch.Tensor:
        placed: torch.Tensor = self._cuda.put(rows)
        return placed

    def block_of(self, rows: np.ndarray) -> tuple[Block, np.ndarray]:
        block, places = super().block_of(rows)
        return block_on_device(self._cuda, block), places

    def features(self, first: int, last: int) -> Input:
        return rows_on_device(self._cuda, self._share.features(first, last))

    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        return self._copied(self._share.distribute(sent))

    def distribute_features(self, layer: Layer) -> Neighborhood:
        return self._copied(self._share.distribute_features(layer))

    def steps(self, width: int) -> list[tuple[int, int]]:
        return self._share.steps(width)

    def _copied(self, neighborhood: Neighborhood) -> Neighborhood:
        last: list[torch.Tensor] = []  # the last rows on the host and on the device: ranges often share one tensor, copied once

        def on_device(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            block, sent, own = neighborhood(a, b)
            if not last or last[0] is not sent:
                last[:] = [sent, self._cuda.put(sent)]
            return block_on_device(self._cuda, block), last[1], own

        return on_device
