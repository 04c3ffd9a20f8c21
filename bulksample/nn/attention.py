"""Attention over the edges of a block: softmax per destination and weighted sums, without atomics.

Entries of a row stand together, so a softmax is a segment operation on consecutive edges; sums run in the order
of the edges, and training repeats to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .aggregate import SparseRows, product

_CHUNK = 2**22  # numbers held at once where a gradient needs a row of z for every edge


def segment_softmax(pattern: SparseRows, scores: torch.Tensor) -> torch.Tensor:
    """Softmax over the entries of each row.

    Parameters
    ----------
    pattern : SparseRows of E entries
    scores : shape (E, heads)

    Returns
    -------
    Shape (E, heads); positive, and the entries of each row add up to 1.
    """
    exponential = torch.exp(scores - pattern.row_max(scores.detach())[pattern.row_index()])
    entries = pattern.over_entries()
    return exponential / _spread(entries, product(entries, exponential))


def _spread(entries: SparseRows, per_row: torch.Tensor) -> torch.Tensor:
    """The value of its row, for every entry."""
    return product(entries.transposed, per_row)


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
        step = max(1, _CHUNK // max(1, z[0].numel() if len(z) else 1))
        by_alpha = torch.empty_like(alpha)
        for first in range(0, len(row), step):
            edges = slice(first, first + step)
            by_alpha[edges] = (g[row[edges]] * z[column[edges]]).sum(-1)  # <g_v, z_u> for every edge and head
        return None, by_alpha, by_z


def _weighted(pattern: SparseRows, alpha: torch.Tensor, head: int) -> SparseRows:
    return pattern.with_weights(alpha[:, head].detach().contiguous())


def weighted_sum(pattern: SparseRows, alpha: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Shape (D, heads, d) from alpha of shape (E, heads) and z of shape (S, heads, d); differentiable in both."""
    return _WeightedSum.apply(pattern, alpha, z)


def with_self_edges(indptr: np.ndarray, indices: np.ndarray, own: np.ndarray, columns: int) -> tuple[SparseRows, np.ndarray]:
    """A block's pattern with an edge from each destination to itself in front of its row.

    Parameters
    ----------
    indptr, indices : int64 (D + 1,), int32 (E,)
    own : int, shape (D,)
        Where each destination stands among the sources.
    columns : int

    Returns
    -------
    pattern : SparseRows of E + D entries
    given : bool, shape (E + D,)
        Which entries are those of the block, in their order.
    """
    first = int(indptr[0])
    grown = indptr - first + np.arange(len(indptr))
    given = np.ones(int(grown[-1]), bool)
    given[grown[:-1]] = False
    entries = np.empty(len(given), np.int32)
    entries[grown[:-1]] = own
    entries[given] = indices[first : int(indptr[-1])]
    return SparseRows(grown, entries, None, columns), given
