"""This rank's rows for full-graph training, and the exchange of their halo in each layer, forward and backward."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from ..distributed.matrix.halo import Halo, HaloExchange, MessageFormat, PlainFormat
from ..errors import UsageError
from ..graph.minibatch import Block
from ..nn.layers import Input, Layer
from .inference_share import InferenceShare
from .view import View


class HaloRows:
    """The rows of this rank's block, on a grid without replication, with their edges, labels and splits.

    Central rows, which have no neighbor on another rank, come first; marginal rows follow. `messages` encode hidden rows on their way, by
    default as float32. With `overlap`, central rows are aggregated while halo rows travel; the results have the same bits. Without `fetch`,
    the features of halo rows stay with their owners.

    Attributes
    ----------
    vertices : int32, shape (m,)
    structure, block : Block, m x (m + h)
        The same edges, on the host and on the compute device.
    halo : Halo
        Numbers this rank's rows in the order of `vertices`.
    degrees, x : shapes (m + h,), (m + h, f)
        Degrees and features (kind "features") of this rank's rows, then of halo rows; without `fetch`, x has m rows.
    """

    has_halo = True

    def __init__(self, view: View, messages: MessageFormat | None = None, overlap: bool = True, fetch: bool = True) -> None:
        grid, layout, block, weights = view.own_rows()
        if grid.replication != 1:
            raise UsageError(f"full-graph training keeps one block row on each rank; got replication {grid.replication}: use 1")
        self.messages, self.overlap = messages or PlainFormat(), overlap
        comm = grid.comm
        remote = layout.blocks_of(block.adjacency.indices) != comm.rank
        has_remote = np.bincount(block.adjacency.row_of_entry(), remote, minlength=len(block.vertices)) > 0
        order = np.argsort(has_remote, kind="stable")
        self.vertices, self.central = block.vertices[order], int(np.count_nonzero(~has_remote))
        matrix = block.adjacency.take(order)
        self.halo = Halo(comm, layout, matrix)
        self._renumber_halo(order)
        self.labels = np.full(len(order), -1, np.int64) if block.labels is None else block.labels[order]
        self.masks = {split: mask[order] for split, mask in block.masks.items()}
        self.edges, self.n = cast(InferenceShare, view.share).edges, block.n
        if weights is not None:
            weights = block.adjacency.with_values(weights).take(order).entries()
        self.structure = Block(matrix.indptr, self.halo.sources, weights, len(order) + len(self.halo.vertices))
        self.block, self._on_device, self._parts = view.on_device(self.structure), view.on_device, dict[tuple[int, int, int], Block]()
        everyone = np.concatenate([self.vertices, self.halo.vertices])
        self.degrees = view.degrees(everyone)
        self.x: Input = view.features.fetch(everyone if fetch else self.vertices)

    @property
    def rows(self) -> int:
        """m, the number of this rank's rows."""
        return len(self.vertices)

    def _renumber_halo(self, order: np.ndarray) -> None:
        """Renumber this rank's rows in the halo from the order of the block to the order of `vertices`."""
        number = np.empty(len(order), np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        own = self.halo.sources < len(order)
        self.halo.sources[own] = number[self.halo.sources[own]]
        self.halo.requested = [number[requested] for requested in self.halo.requested]

    def part(self, first: int, last: int, sources: int) -> Block:
        """Return a range of this rank's rows as a block on the compute device."""
        if (first, last, sources) not in self._parts:
            indptr, weights = self.structure.indptr, self.structure.weights
            entries = slice(int(indptr[first]), int(indptr[last]))
            own = None if weights is None else weights[entries]
            made = Block(indptr[first : last + 1] - indptr[first], self.structure.indices[entries], own, sources)
            self._parts[first, last, sources] = self._on_device(made)
        return self._parts[first, last, sources]

    def exchanged(self, layer: Layer, h: Input, transforms: bool, key: str) -> torch.Tensor:
        """Apply one layer, exchanging halo rows: shape (m, width of the output); collective, forward and backward.

        `transforms` is True if the layer transforms before it aggregates; `key` is the name of the layer, for `messages`.
        """
        m, c = self.rows, self.central
        sent = layer.send(h, self.degrees[:m], transforms)
        exchange = LayerHaloExchange(self, key)
        token: torch.Tensor = _SendHalo.apply(sent, exchange)  # type: ignore[no-untyped-call]
        if not self.overlap:
            exchange.receive()
        central = layer.receive(self.part(0, c, m), sent, h[0:c], slice(0, c), self.degrees[:c], transforms)
        everything = torch.cat([sent, _ReceiveHalo.apply(token, exchange)])  # type: ignore[no-untyped-call]
        marginal = self.part(c, m, len(everything))
        return torch.cat([central, layer.receive(marginal, everything, h[c:m], slice(c, m), self.degrees[c:m], transforms)])

    def with_halo(self, h: torch.Tensor, key: str) -> torch.Tensor:
        """Return this rank's rows, then the halo rows: shape (m + h, f) from (m, f); collective, forward and backward.

        Raises `ValueError` if `h` has not a row for each row of this rank.
        """
        if len(h) != self.rows:
            raise ValueError(f"sources needs the {self.rows} rows of this rank; got {len(h)}")
        exchange, sent = LayerHaloExchange(self, key), h.float()
        token: torch.Tensor = _SendHalo.apply(sent, exchange)  # type: ignore[no-untyped-call]
        return torch.cat([sent, _ReceiveHalo.apply(token, exchange)])  # type: ignore[no-untyped-call]


class LayerHaloExchange:
    """The exchange of halo rows in one layer: rows on the way forward, their gradients on the way back."""

    def __init__(self, rows: HaloRows, key: str) -> None:
        self._halo, self._messages, self._key = rows.halo, rows.messages, key
        self._flight: HaloExchange | None = None
        self._received: np.ndarray | None = None

    def send(self, own: np.ndarray) -> None:
        """Start to send this rank's rows to the ranks that have them in their halo."""
        self._flight = self._halo.start(own, self._messages, f"{self._key} forward")

    def receive(self) -> np.ndarray:
        """Wait for the halo rows; may be called again."""
        if self._received is None:
            assert self._flight is not None
            self._received, self._flight = self._flight.wait(), None
        return self._received

    def send_back(self, halo: np.ndarray) -> None:
        """Start to return the gradients of halo rows to their owners."""
        self._flight, self._received = self._halo.start_back(halo, self._messages, f"{self._key} backward"), None

    def receive_back(self) -> np.ndarray:
        """Wait for the gradients of this rank's rows, summed over the ranks that return some."""
        assert self._flight is not None
        return self._flight.wait_sum()


class _SendHalo(torch.autograd.Function):
    """Forward: send this rank's rows. Backward, which runs after that of all central rows: receive their gradients."""

    @staticmethod
    def forward(ctx: Any, sent: torch.Tensor, exchange: LayerHaloExchange) -> torch.Tensor:
        ctx.exchange = exchange
        exchange.send(sent.detach().cpu().numpy())
        return sent.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.from_numpy(ctx.exchange.receive_back()).to(gradients[0].device), None


class _ReceiveHalo(torch.autograd.Function):
    """Forward: receive halo rows. Backward, which runs before that of central rows: return their gradients."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, exchange: LayerHaloExchange) -> torch.Tensor:
        ctx.exchange = exchange
        return torch.from_numpy(exchange.receive()).to(token.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.exchange.send_back(gradients[0].contiguous().cpu().numpy())
        return gradients[0].new_zeros(()), None
