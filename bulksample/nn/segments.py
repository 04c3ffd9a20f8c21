"""Operations on the edges of each destination of a block: softmax, weighted sums and maxima, with their gradients, without atomics.

The entries of a row are adjacent, so each is an operation on segments of consecutive edges. Sums run in the order of the edges,
so training repeats to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from ..graph.minibatch import Block
from .aggregate import SparseRows, product

_CHUNK_OF_SUMS = 2**22  # held at once while a gradient needs a row of z for every edge
_CHUNK_OF_MAXIMA = 2**23  # of gathered rows held at once


def segment_softmax(pattern: SparseRows, scores: torch.Tensor) -> torch.Tensor:
    """Compute the softmax over the entries of each row from scores of shape (E, heads); those of each row add up to 1."""
    exponential = torch.exp(scores - pattern.row_max(scores.detach())[pattern.row_index()])
    entries = pattern.over_entries()
    return exponential / product(entries.transposed, product(entries, exponential))


class _WeightedSum(torch.autograd.Function):
    """y_v,h = sum over the edges e = (v, u) of alpha_e,h z_u,h."""

    @staticmethod
    def forward(ctx: Any, pattern: SparseRows, alpha: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(alpha, z)
        return torch.stack([_weighted(pattern, alpha, h).times(z[:, h]) for h in range(z.shape[1])], dim=1)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
        g, (alpha, z), pattern = grad[0], ctx.saved_tensors, ctx.pattern
        by_z = torch.stack([_weighted(pattern, alpha, h).transposed.times(g[:, h].contiguous()) for h in range(z.shape[1])], dim=1)
        row, column = pattern.row_index(), pattern.column_index()
        step = max(1, _CHUNK_OF_SUMS // max(1, z[0].numel() if len(z) else 1))
        by_alpha = torch.empty_like(alpha)
        for first in range(0, len(row), step):
            edges = slice(first, first + step)
            by_alpha[edges] = (g[row[edges]] * z[column[edges]]).sum(-1)  # <g_v, z_u> for every edge and head
        return None, by_alpha, by_z


def _weighted(pattern: SparseRows, alpha: torch.Tensor, head: int) -> SparseRows:
    return pattern.with_weights(alpha[:, head].detach().contiguous())


def weighted_sum(pattern: SparseRows, alpha: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Sum z, shape (S, heads, d), over the entries of each row, weighted by alpha, shape (E, heads); differentiable in both."""
    return _WeightedSum.apply(pattern, alpha, z)  # type: ignore[no-any-return, no-untyped-call]


@singledispatch
def attention_pattern(block: Block, own: slice, degrees: torch.Tensor) -> tuple[SparseRows, torch.Tensor]:
    """Put an edge from each destination to itself in front of its edges; `own` has the destinations among the sources.

    Return the pattern of E + D entries, and the log of the number of neighbors that each entry stands for, float32, shape (E + D,): of
    d_v / s_v or d_v w_uv; 0 for an edge to itself.
    """
    destinations = np.arange(own.start, own.stop, dtype=np.int32)
    pattern, in_block = with_self_edges(block.indptr, block.indices, destinations, block.num_sources)
    drawn = np.diff(block.indptr)
    degree = np.repeat(degrees.numpy(), drawn)
    weights = None if block.weights is None else block.weights[int(block.indptr[0]) : int(block.indptr[-1])]
    many = degree / np.repeat(drawn, drawn) if weights is None else degree * weights
    log_multiplicity = np.zeros(len(in_block), np.float32)
    log_multiplicity[in_block] = np.log(np.maximum(many, 1e-30))
    return pattern, torch.from_numpy(log_multiplicity)


def with_self_edges(indptr: np.ndarray, indices: np.ndarray, destinations: np.ndarray, columns: int) -> tuple[SparseRows, np.ndarray]:
    """Insert an edge to its column in `destinations` in front of each row; also return True for entries that were there before."""
    first = int(indptr[0])
    grown = indptr - first + np.arange(len(indptr))
    in_block = np.ones(int(grown[-1]), bool)
    in_block[grown[:-1]] = False
    entries = np.empty(len(in_block), np.int32)
    entries[grown[:-1]] = destinations
    entries[in_block] = indices[first : int(indptr[-1])]
    return SparseRows(grown, entries, None, columns), in_block


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
    limit, a = max(1, _CHUNK_OF_MAXIMA // max(1, width)), 0
    while a < len(some):
        b = max(a + 1, int(np.searchsorted(indptr[some + 1], indptr[some[a]] + limit, side="right")))
        first = int(indptr[some[a]])
        yield some[a:b], indptr[some[a:b]] - first, slice(first, int(indptr[some[b - 1] + 1]))
        a = b
