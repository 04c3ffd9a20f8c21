"""What attention and pooling do with the edges of a block that lies on a device; the definitions are those of `gnn`."""

from __future__ import annotations

from typing import Any

import torch

from ...nn.aggregate import SparseRows, matrix_of
from ...nn.layers import attended
from ...nn.pooling import segment_max
from .rows import DeviceBlock, DeviceRows

_CHUNK = 2**28  # numbers of gathered rows held at once


@attended.register
def _(block: DeviceBlock, own: slice, degrees: torch.Tensor) -> tuple[SparseRows, torch.Tensor]:
    """Entry e of row r moves to e + r + 1, behind the edges to themselves of the rows up to its own."""
    matrix = matrix_of(block)
    there: dict[str, Any] = {"device": block.card.where}
    rows, row = torch.arange(block.num_destinations + 1, **there), matrix.row_index()
    pointers: Any = block.indptr + rows
    place = torch.arange(block.num_edges, **there) + row + 1
    indices = torch.empty(block.num_edges + block.num_destinations, dtype=torch.int32, **there)
    indices[pointers[:-1]] = torch.arange(own.start, own.stop, dtype=torch.int32, **there)
    indices[place] = torch.as_tensor(block.indices)
    degree = degrees[row]
    many = degree.double() / matrix.degrees[row] if block.weights is None else degree * torch.as_tensor(block.weights)
    stands_for = torch.zeros(len(indices), **there)
    stands_for[place] = many.clamp(min=1e-30).log().float()
    return DeviceRows(block.card, pointers, indices, None, block.num_sources), stands_for


@segment_max.register
def _(block: DeviceBlock, sent: torch.Tensor) -> torch.Tensor:
    return _SegmentMax.apply(block, sent.float())


class _SegmentMax(torch.autograd.Function):
    """Some columns at a time. The gradient is added by atomics: its last bit may change from run to run."""

    @staticmethod
    def forward(ctx: Any, block: DeviceBlock, sent: torch.Tensor) -> torch.Tensor:
        matrix, step = matrix_of(block), max(1, _CHUNK // max(1, block.num_edges))
        parts = [_largest(matrix, sent.detach()[:, first : first + step]) for first in range(0, sent.shape[1], step)]
        ctx.winner, ctx.shape = torch.cat([winner for _, winner in parts], dim=1), sent.shape
        return torch.cat([top for top, _ in parts], dim=1)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        sources, f = ctx.shape
        return None, grad[0].new_zeros(sources + 1, f).scatter_add_(0, ctx.winner, grad[0])[:sources]


def _largest(matrix: SparseRows, sent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of the rows that each row names, and which source has it first; one beyond the last for rows without entries."""
    row, column = matrix.row_index(), matrix.column_index()
    gathered, entries, nobody = sent[column], len(column), sent.shape[0]
    top = matrix.row_max(gathered)
    place = torch.arange(entries, device=sent.device)[:, None].expand_as(gathered).masked_fill(gathered != top[row], entries)
    first = torch.full_like(top, entries, dtype=torch.int64).scatter_reduce_(0, row[:, None].expand_as(place), place, "amin")
    return top, torch.cat([column, column.new_full((1,), nobody)])[first]
