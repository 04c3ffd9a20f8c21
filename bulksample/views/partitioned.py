"""A graph in block rows over a process grid: no rank holds more of A and of H than c n / p rows.

What is replicated besides: the seeds and their classes (12 bytes each) and, for models that ask for them, the degrees of
all vertices (4 n bytes).
"""

from __future__ import annotations

import numpy as np
import torch

from ..backends.base import Backend
from ..distributed.matrix.feature_exchange import RowExchange
from ..distributed.matrix.grid import ProcessGrid
from ..distributed.matrix.open_graph import OpenBlock
from ..errors import UsageError
from ..evaluation.inference import Around, Share, compact, even_work
from ..minibatch import Block
from ..nn.layers import Input
from ..sparse import CSR
from .features import ExchangedFeatures, as_input, checked_features
from .view import View, mean_weights


class BlockView(View):
    """A graph of which this rank holds a block row.

    Parameters
    ----------
    opened : OpenBlock
        With features and labels, on a grid of its own: sampling communicates over it, on a thread of its own.
    grid : ProcessGrid
        Another one of the same shape, for features and inference.
    split, norm, weighted
        As of `WholeView`.
    codec, cache_bytes, heat
        How features travel, and which are kept on every rank; see `RowExchange`.
    degrees : bool
        Whether the model asks for the degrees of all vertices.

    Attributes
    ----------
    grid, layout, block
        As they were given, or opened.
    weights : float32, shape (entries of the block,), optional
        Of a weighted mean.

    Notes
    -----
    Collective. Bytes to each other member of the process column: 12 per seed, 4 per own row where degrees are asked for
    (kind "topology"); what a cache costs is said by `RowExchange`.
    """

    def __init__(
        self, opened: OpenBlock, grid: ProcessGrid, backend: Backend, fingerprint: str, split: str | None = None, norm: str = "none",
        weighted: bool = False, codec: str = "fp32", cache_bytes: int = 0, access_count: np.ndarray | None = None, degrees: bool = True,
    ) -> None:  # fmt: skip
        block, layout = opened.block, opened.layout
        x = checked_features(block.features, norm, block.name)
        if block.labels is None:
            raise UsageError(f"graph {block.name!r} has no labels to train on")
        self.fingerprint, self.sampling = fingerprint, opened.grid.comm
        self.grid, self.layout, self.block = grid, layout, block
        self.name, self.num_features, self.num_classes = block.name, int(x.shape[1]), block.num_classes
        self.adjacency = opened.adjacency(backend)
        self.seeds, self.classes = opened.seeds(split), opened.classes(split)
        self.features = ExchangedFeatures(grid.column_comm, layout, x, norm, codec, cache_bytes, access_count)
        own_degrees, self.weights = mean_weights(block.adjacency.indptr, block.adjacency.values, block.weight_unit, weighted)
        self.all_degrees = None
        if degrees:
            self.all_degrees = torch.from_numpy(opened.gather(own_degrees)[layout.places(np.arange(block.n, dtype=np.int32))])
        self.share = BlockShare(opened, grid, self.features, own_degrees, self.weights)
        self.memory = {
            "adjacency": block.adjacency.nbytes(),
            "features": self.features.nbytes(),
            "replicated": 12 * len(self.seeds) + (4 * block.n if degrees else 0) + (0 if layout.order is None else 8 * block.n),
        }


class BlockShare(Share):
    """The c members of a process row share the rows of their block; what is sent is fetched by whoever aggregates it."""

    def __init__(
        self, opened: OpenBlock, grid: ProcessGrid, features: ExchangedFeatures, degrees: np.ndarray, weights: np.ndarray | None
    ) -> None:
        block, self._layout, self._grid = opened.block, opened.layout, grid
        self.bounds = even_work(block.adjacency.indptr, grid.replication)
        own = slice(int(self.bounds[grid.column]), int(self.bounds[grid.column + 1]))
        self._own, self._block_features, self._indices, self._weights = own, features.block, block.adjacency.indices, weights
        self.n, self.rows, self.sparse = block.n, own.stop - own.start, features.is_sparse
        self.edges = int(grid.column_comm.allreduce(np.array([block.adjacency.nnz]), "control")[0])
        self.indptr = block.adjacency.indptr[own.start : own.stop + 1]
        self.degrees = torch.from_numpy(degrees[own])
        self.labels = None if block.labels is None else block.labels[own]
        self.masks = {split: mask[own] for split, mask in block.masks.items()}
        self._first = int(self._layout.bounds[grid.row]) + own.start  # the place of the share's first row

    def features(self, first: int, last: int) -> Input:
        return as_input(_consecutive(self._block_features, self._own.start + first, self._own.start + last))

    def spread(self, sent: torch.Tensor) -> Around:
        """The block's rows are gathered in the process row; rows of other blocks are fetched in the process column."""
        grid, rows = self._grid, sent.contiguous().cpu().numpy()
        if grid.replication > 1:
            rows = grid.row_comm.allgather_rows(rows, np.diff(self.bounds), "activations")
        exchange = RowExchange(grid.column_comm, self._layout.bounds, rows, kind="activations")

        def around(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            entries = slice(self.indptr[a], self.indptr[b])
            sources = self._layout.places(self._indices[entries])
            weights = None if self._weights is None else self._weights[entries]
            own = np.arange(self._first + a, self._first + b)
            block, places, where = compact(self.indptr[a : b + 1] - self.indptr[a], sources, weights, own)
            return block, torch.from_numpy(exchange.fetch(places)), where

        return around

    def steps(self, width: int) -> list[tuple[int, int]]:
        """As many on every member of the process column; the last may be of no rows."""
        own = super().steps(width)
        most = max(self._grid.column_comm.gather_control(len(own)))
        return own + [(self.rows, self.rows)] * (most - len(own))


def _consecutive(x: np.ndarray | CSR, first: int, last: int) -> np.ndarray | CSR:
    return x.take(np.arange(first, last)) if isinstance(x, CSR) else x[first:last]
