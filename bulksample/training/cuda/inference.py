"""Exact inference with the rows on a device; what travels between ranks does so over the host."""

from __future__ import annotations

import torch

from ...evaluation.inference import Around, Share
from ...minibatch import Block
from ...nn.layers import Input, Layer
from .cuda_context import CudaContext
from .rows import placed_block, placed_rows


class DeviceShare(Share):
    """A share of the rows of a graph, each chunk of which is brought to the device as it is computed."""

    def __init__(self, card: CudaContext, share: Share) -> None:
        self._card, self._share, self.chunk = card, share, share.chunk
        self.n, self.edges, self.rows, self.indptr, self.sparse = share.n, share.edges, share.rows, share.indptr, share.sparse
        self.degrees, self.labels, self.masks = card.put(share.degrees), share.labels, share.masks

    def features(self, first: int, last: int) -> Input:
        return placed_rows(self._card, self._share.features(first, last))

    def spread(self, sent: torch.Tensor) -> Around:
        return self._brought(self._share.spread(sent))

    def spread_features(self, layer: Layer) -> Around:
        return self._brought(self._share.spread_features(layer))

    def steps(self, width: int) -> list[tuple[int, int]]:
        return self._share.steps(width)

    def _brought(self, around: Around) -> Around:
        held: list[torch.Tensor] = []  # rows of all chunks may be one tensor, which is then copied once

        def there(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            block, sent, own = around(a, b)
            if not held or held[0] is not sent:
                held[:] = [sent, self._card.put(sent)]
            return placed_block(self._card, block), held[1], own

        return there
