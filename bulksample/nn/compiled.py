"""The sum over a block as an operator of torch, which `torch.compile` keeps whole: it can trace neither arrays of numpy nor our kernels.

    Y = A X,    dX = A^T dY

The numbers are those of `aggregate.aggregate`. The transpose of A is made anew in each backward pass.
"""

from __future__ import annotations

from typing import Any

import torch

from ..graph.minibatch import Block
from .aggregate import SparseRows, gradient


def aggregate_compiled(block: Block, h: torch.Tensor) -> torch.Tensor:
    """Return `aggregate.aggregate` of a block on the host, within `torch.compile`: float32 or wider, shape (num_destinations, f)."""
    weights = None if block.weights is None else torch.from_numpy(block.weights)
    single = h.float() if h.dtype in (torch.float16, torch.bfloat16) else h
    edges = torch.from_numpy(block.indptr), torch.from_numpy(block.indices), weights
    summed: torch.Tensor = _aggregate(*edges, single[: block.num_sources])
    return summed


@torch.library.custom_op("bulksample::aggregate", mutates_args=())
def _aggregate(indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, h: torch.Tensor) -> torch.Tensor:
    return _matrix(indptr, indices, weights, len(h)).times(h, weights is None)


@_aggregate.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, h: torch.Tensor) -> torch.Tensor:
    return h.new_empty(indptr.shape[0] - 1, h.shape[1])


@torch.library.custom_op("bulksample::aggregate_gradient", mutates_args=())
def _aggregate_gradient(
    indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, grad: torch.Tensor, sources: int
) -> torch.Tensor:
    return gradient(_matrix(indptr, indices, weights, sources), weights is None, grad)


@_aggregate_gradient.register_fake
def _(indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, grad: torch.Tensor, sources: int) -> torch.Tensor:
    return grad.new_empty(sources, grad.shape[1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    indptr, indices, weights, h = inputs
    ctx.save_for_backward(indptr, indices, weights)
    ctx.sources = h.shape[0]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[None, None, None, torch.Tensor]:
    return None, None, None, _aggregate_gradient(*ctx.saved_tensors, grad, ctx.sources)


_aggregate.register_autograd(_backward, setup_context=_keep)


def _matrix(indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, columns: int) -> SparseRows:
    return SparseRows(indptr.numpy(), indices.numpy(), None if weights is None else weights.numpy(), columns)
