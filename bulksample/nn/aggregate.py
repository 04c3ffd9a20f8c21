"""Sparse times dense, with its gradient: the operation that all layers and sparse features share.

    Y = A X,    dX = A^T dY

A is a block, the whole adjacency, or a batch of sparse features. One thread sums each row in the order of its entries, so a
product repeats to the bit. `Backend.spmm` and `Backend.transpose` do the work.
"""

from __future__ import annotations

from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import torch

from ..backends import on_host
from ..backends.base import Backend
from ..backends.reference import Reference
from ..graph.minibatch import Block
from .gather import OwnAndMean


class SparseRows:
    """A sparse matrix of D rows and S columns for products with dense ones; without weights its entries are ones.

    Row pointers are int64, shape (D + 1,); they may start above 0, so that a slice of rows shares the entries. Indices are int32 and
    weights float32, shape (E,).
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, columns: int) -> None:
        self.indptr, self.indices, self.weights, self.columns = indptr, indices, weights, columns
        self._transposed: SparseRows | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.columns

    def __getitem__(self, rows: slice) -> SparseRows:
        """Return consecutive rows as a view; all rows are this object itself, which keeps its transpose."""
        first, last, _ = rows.indices(len(self.indptr) - 1)
        if (first, last) == (0, len(self.indptr) - 1):
            return self
        return SparseRows(self.indptr[first : last + 1], self.indices, self.weights, self.columns)

    @cached_property
    def degrees(self) -> np.ndarray:
        """The number of entries of each row: int64, shape (D,)."""
        return np.diff(self.indptr)

    def inverse_degrees(self, dtype: torch.dtype) -> torch.Tensor:
        """Return one over the number of entries of each row, 1 for an empty row: shape (D,)."""
        return torch.from_numpy(1.0 / np.maximum(self.degrees, 1)).to(dtype)

    def row_index(self) -> torch.Tensor:
        """Return the row of each entry: int64, shape (E,)."""
        return torch.from_numpy(np.repeat(np.arange(len(self.degrees)), self.degrees))

    def column_index(self) -> torch.Tensor:
        """Return the column of each entry: int64, shape (E,)."""
        return torch.from_numpy(self.indices.astype(np.int64))

    def row_max(self, values: torch.Tensor) -> torch.Tensor:
        """Return for each row the largest of its entries' values, 0 for an empty row: shape (D, h) from `values` of shape (E, h)."""
        top = torch.zeros(self.shape[0], values.shape[1], dtype=values.dtype)
        some = self.degrees > 0
        if some.any():
            top[torch.from_numpy(some)] = torch.from_numpy(np.maximum.reduceat(values.numpy(), self.indptr[:-1][some], axis=0))
        return top

    def over_entries(self) -> SparseRows:
        """Return the D x E matrix of ones that sums values of entries over each row."""
        return SparseRows(self.indptr, np.arange(len(self.indices), dtype=np.int32), None, len(self.indices))

    @property
    def transposed(self) -> SparseRows:
        """The transpose, S x D, made once; the columns of a row ascend."""
        if self._transposed is None:  # a cached_property of Python 3.11 locks all matrices, so ranks that are threads would wait in turn
            packed = self.packed()
            made = _backend(packed.weights).transpose(packed.indptr, packed.indices, packed.weights, self.columns)
            self._transposed = SparseRows(*made, self.shape[0])
        return self._transposed

    def times(self, x: torch.Tensor, mean: bool = False) -> torch.Tensor:
        """Compute A X, A this matrix, not recorded by autograd: shape (D, f) from x of shape (S, f). `product` is differentiable.

        With `mean`, each row is divided by the number of its entries.
        """
        array = x.detach().contiguous().numpy()
        made = _backend(array, self.weights).spmm(self.indptr, self.indices, self.weights, array, mean=mean)
        return torch.from_numpy(made)

    def weights_or_ones(self) -> torch.Tensor:
        """Return the value of each entry: float32, shape (E,)."""
        return torch.ones(len(self.indices)) if self.weights is None else torch.tensor(self.weights)

    def dense(self) -> torch.Tensor:
        """Return the rows as a dense tensor: shape (D, S)."""
        at = (self.row_index(), self.column_index())
        weights = self.weights_or_ones()
        return weights.new_zeros(self.shape).index_put_(at, weights, accumulate=True)

    def with_weights(self, weights: torch.Tensor) -> SparseRows:
        """Return the same pattern with other values."""
        return SparseRows(self.indptr, self.indices, weights.numpy(), self.columns)

    def packed(self) -> SparseRows:
        """Return the same matrix with row pointers that start at 0 and entries of these rows alone."""
        first, last = int(self.indptr[0]), int(self.indptr[-1])
        if first == 0 and last == len(self.indices):
            return self
        weights = None if self.weights is None else self.weights[first:last]
        return SparseRows(self.indptr - first, self.indices[first:last], weights, self.columns)


def _backend(*arrays: np.ndarray | None) -> Backend:
    """Return the fastest back end of the host if all arrays are float32, else the reference."""
    single = all(array is None or array.dtype == np.float32 for array in arrays)
    return on_host(torch.get_num_threads()) if single else Reference()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseRows, mean: bool, x: torch.Tensor) -> torch.Tensor:
        ctx.matrix, ctx.mean = matrix, mean
        return matrix.times(x, mean)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, None, torch.Tensor | None]:
        return None, None, gradient(ctx.matrix, ctx.mean, grad[0]) if ctx.needs_input_grad[2] else None


def gradient(matrix: SparseRows, mean: bool, grad: torch.Tensor) -> torch.Tensor:
    """Return the gradient of X from that of A X, or of the means."""
    return matrix.transposed.times(grad * matrix.inverse_degrees(grad.dtype)[:, None] if mean else grad)


def product(matrix: SparseRows, x: torch.Tensor, mean: bool = False) -> torch.Tensor:
    """Compute A X, shape (D, f), differentiable in X; with `mean`, each row is divided by the number of its entries.

    Half precision is summed and returned in float32.
    """
    return _Product.apply(matrix, mean, _at_least_single(x))  # type: ignore[no-any-return, no-untyped-call]


def _at_least_single(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@singledispatch
def matrix_of(block: Block) -> SparseRows:
    """Return a block as a matrix for products, on the device of its arrays."""
    return SparseRows(block.indptr, block.indices, block.weights, block.num_sources)


def aggregate(block: Block, x: torch.Tensor, mean: bool = True) -> torch.Tensor:
    """Average the rows of the sources of each destination: shape (num_destinations, f) from (num_sources, f), zeros without edges.

    A block with weights is summed with these; without `mean`, any block is summed.
    """
    return product(matrix_of(block), x, mean and block.weights is None)


class _OwnAndMeanFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: SparseRows, mean: bool, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.matrix, ctx.mean = matrix, mean
        return x[: matrix.shape[0]], matrix.times(x, mean)

    @staticmethod
    def backward(ctx: Any, *grad: torch.Tensor) -> tuple[None, None, torch.Tensor | None]:
        if not ctx.needs_input_grad[2]:
            return None, None, None
        direct, gathered = grad
        dx = gradient(ctx.matrix, ctx.mean, gathered)
        dx[: len(direct)] += direct
        return None, None, dx


def own_and_mean(block: Block, x: torch.Tensor) -> OwnAndMean:
    """Return the leading rows of x, which belong to the destinations, and `aggregate(block, x)`.

    One autograd function computes both, so the backward pass needs a single gradient array. With two, autograd would pad the gradient
    of the destinations with zeros to the size of x and add.
    """
    made = _OwnAndMeanFunction.apply(matrix_of(block), block.weights is None, _at_least_single(x))  # type: ignore[no-untyped-call]
    return OwnAndMean(*made)


def multiply(x: torch.Tensor | SparseRows, weight: torch.Tensor) -> torch.Tensor:
    """Compute X W for dense or sparse X: shape (N, out) from (N, in) and (in, out). Sparse rows stay sparse."""
    return product(x, weight) if isinstance(x, SparseRows) else x @ weight
