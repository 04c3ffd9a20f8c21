"""The elementwise maximum of the rows that a destination gathers, with its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from ..minibatch import Block

_CHUNK_NUMBERS = 2**23  # of gathered rows held at once


@singledispatch
def segment_max(block: Block, sent: torch.Tensor) -> torch.Tensor:
    """Compute y_v = max over the edges v <- u of sent_u: shape (D, f) from (S, f); rows without edges are 0.

    The gradient goes to the source of the first edge that has the maximum.
    """
    return _HostSegmentMax.apply(block, sent)  # type: ignore[no-any-return, no-untyped-call]


class _HostSegmentMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Block, sent: torch.Tensor) -> torch.Tensor:
        rows = sent.detach().numpy()
        shape = block.num_destinations, rows.shape[1]
        top, winner = np.zeros(shape, rows.dtype), np.full(shape, -1, np.int32)
        for some, starts, edges in _chunks(block, rows.shape[1]):
            gathered, sources = rows[block.indices[edges]], block.indices[edges]
            top[some] = np.maximum.reduceat(gathered, starts, axis=0)
            lengths = np.diff(np.append(starts, len(gathered)))
            entry = np.where(gathered == np.repeat(top[some], lengths, axis=0), np.arange(len(gathered))[:, None], len(gathered))
            winner[some] = sources[np.minimum.reduceat(entry, starts, axis=0)]
        ctx.winner, ctx.shape = winner, sent.shape
        return torch.from_numpy(top)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        sources, f = ctx.shape
        index = torch.from_numpy(np.where(ctx.winner < 0, sources, ctx.winner).astype(np.int64))  # empty rows go to an extra row
        out = grad[0].new_zeros(sources + 1, f)
        return None, out.scatter_add_(0, index, grad[0])[:sources]


def _chunks(block: Block, width: int) -> Iterator[tuple[np.ndarray, np.ndarray, slice]]:
    """Yield chunks of rows that have edges: the rows, where the edges of each start within the chunk, and the slice of edges."""
    indptr = block.indptr
    some = np.flatnonzero(indptr[1:] > indptr[:-1])
    limit, a = max(1, _CHUNK_NUMBERS // max(1, width)), 0
    while a < len(some):
        b = max(a + 1, int(np.searchsorted(indptr[some + 1], indptr[some[a]] + limit, side="right")))
        first = int(indptr[some[a]])
        yield some[a:b], indptr[some[a:b]] - first, slice(first, int(indptr[some[b - 1] + 1]))
        a = b
