"""Attention and pooling over the edges of a block on a device, as `nn.segments` defines them."""

from __future__ import annotations

from typing import Any

import torch

from ...nn.aggregate import SparseRows, matrix_of
from ...nn.segments import attention_pattern, segment_max
from .device_rows import DeviceBlock, DeviceRows

_CHUNK_NUMBERS = 2**28  # of gathered rows held at once


@attention_pattern.register
def _(block: DeviceBlock, own: slice, degrees: torch.Tensor) -> tuple[SparseRows, torch.Tensor]:
    """Insert an edge from each row to itself: entry e of row r moves to e + r + 1."""
    matrix = matrix_of(block)
    device: dict[str, Any] = {"device": block.cuda.where}
    rows, row = torch.arange(block.num_destinations + 1, **device), matrix.row_index()
    pointers: Any = block.indptr + rows
    moved = torch.arange(block.num_edges, **device) + row + 1
    indices = torch.empty(block.num_edges + block.num_destinations, dtype=torch.int32, **device)
    indices[pointers[:-1]] = torch.arange(own.start, own.stop, dtype=torch.int32, **device)
    indices[moved] = torch.as_tensor(block.indices)
    degree = degrees[row]
    many = degree.double() / matrix.degrees[row] if block.weights is None else degree * torch.as_tensor(block.weights)
    log_multiplicity = torch.zeros(len(indices), **device)
    log_multiplicity[moved] = many.clamp(min=1e-30).log().float()
    return DeviceRows(block.cuda, pointers, indices, None, block.num_sources), log_multiplicity


@segment_max.register
def _(block: DeviceBlock, sent: torch.Tensor) -> torch.Tensor:
    return _DeviceSegmentMax.apply(block, sent.float())  # type: ignore[no-any-return, no-untyped-call]


class _DeviceSegmentMax(torch.autograd.Function):
    """Processes some columns at a time. Atomics add the gradient, so its last bit may change from run to run."""

    @staticmethod
    def forward(ctx: Any, block: DeviceBlock, sent: torch.Tensor) -> torch.Tensor:
        matrix, step = matrix_of(block), max(1, _CHUNK_NUMBERS // max(1, block.num_edges))
        parts = [_largest(matrix, sent.detach()[:, first : first + step]) for first in range(0, sent.shape[1], step)]
        ctx.winner, ctx.shape = torch.cat([winner for _, winner in parts], dim=1), sent.shape
        return torch.cat([top for top, _ in parts], dim=1)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        sources, f = ctx.shape
        return None, grad[0].new_zeros(sources + 1, f).scatter_add_(0, ctx.winner, grad[0])[:sources]


def _largest(matrix: SparseRows, sent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maximum of each row, and the first source that has it; one past the last source for rows without entries."""
    row, column = matrix.row_index(), matrix.column_index()
    gathered, entries, no_source = sent[column], len(column), sent.shape[0]
    top = matrix.row_max(gathered)
    entry = torch.arange(entries, device=sent.device)[:, None].expand_as(gathered).masked_fill(gathered != top[row], entries)
    first = torch.full_like(top, entries, dtype=torch.int64).scatter_reduce_(0, row[:, None].expand_as(entry), entry, "amin")
    return top, torch.cat([column, column.new_full((1,), no_source)])[first]
