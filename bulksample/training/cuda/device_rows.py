"""Multiply sparse by dense matrices on a device, with the kernels of csrc/spmm.cu.

    Y = A X,    dX = A^T dY        one warp sums a row in the order of its entries, so a product repeats to the bit

Without weights, a sum has the bits of the native back end on the host. Attention and pooling over the edges of a block are here as well,
as `nn.segments` defines them, and exact inference (`DeviceShare`), in which rows still travel between ranks over the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...backends.cuda import products as kernels
from ...graph.minibatch import Block
from ...nn.aggregate import SparseRows, matrix_of
from ...nn.layers import Input, Layer
from ...nn.segments import attention_pattern, segment_max
from ...views.inference_share import InferenceShare, Neighborhood
from .cuda_context import CudaContext

_CHUNK_NUMBERS = 2**28  # of gathered rows held at once by pooling


class DeviceRows(SparseRows):
    """A sparse matrix of D rows and S columns on a device: a `SparseRows` with tensors as arrays. Row pointers start at 0."""

    indptr: torch.Tensor  # type: ignore[assignment]
    indices: torch.Tensor  # type: ignore[assignment]
    weights: torch.Tensor | None  # type: ignore[assignment]

    def __init__(self, cuda: CudaContext, indptr: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor | None, columns: int) -> None:
        super().__init__(indptr, indices, weights, columns)  # type: ignore[arg-type]
        self.cuda = cuda

    def __getitem__(self, rows: slice) -> DeviceRows:
        first, last, _ = rows.indices(len(self.indptr) - 1)
        begin, end = torch.stack([self.indptr[first], self.indptr[last]]).tolist()
        weights = None if self.weights is None else self.weights[begin:end]
        return DeviceRows(self.cuda, self.indptr[first : last + 1] - begin, self.indices[begin:end], weights, self.columns)

    @cached_property
    def degrees(self) -> torch.Tensor:  # type: ignore[override]
        return self.indptr.diff()

    def inverse_degrees(self, dtype: torch.dtype) -> torch.Tensor:
        return (1.0 / self.degrees.clamp(min=1).double()).to(dtype)

    def row_index(self) -> torch.Tensor:
        return torch.repeat_interleave(torch.arange(self.shape[0], device=self.cuda.where), self.degrees, output_size=len(self.indices))

    @cached_property
    def transposed(self) -> DeviceRows:
        with self.cuda.streams.train.on("transpose"):
            made = kernels.transposed(self.cuda.kernels, self.csr, mean=False)
            indptr, indices, weights = (self.cuda.tensor(part) for part in made[:3])
            return DeviceRows(self.cuda, indptr, indices, None if self.weights is None else weights, self.shape[0])

    def times(self, x: torch.Tensor, mean: bool = False) -> torch.Tensor:
        """Compute A X, not recorded by autograd: float32, shape (D, f) from (S, f); see `SparseRows.times`."""
        with self.cuda.streams.train.on("aggregate"):
            flat = self.cuda.array(x.float().reshape(-1))
            summed = kernels.aggregate(self.cuda.kernels, self.csr, flat, x.shape[1], mean)
            made: torch.Tensor = self.cuda.tensor(summed.reshape(self.shape[0], x.shape[1]))  # no view, so that sums may be added to it
            return made

    def column_index(self) -> torch.Tensor:
        return self.indices.long()

    def row_max(self, values: torch.Tensor) -> torch.Tensor:
        top = values.new_full((self.shape[0], values.shape[1]), -torch.inf)
        top.scatter_reduce_(0, self.row_index()[:, None].expand_as(values), values, "amax")
        return top.masked_fill_((self.degrees == 0)[:, None], 0.0)

    def over_entries(self) -> DeviceRows:
        every = torch.arange(len(self.indices), dtype=torch.int32, device=self.cuda.where)
        return DeviceRows(self.cuda, self.indptr, every, None, len(every))

    def packed(self) -> DeviceRows:
        return self

    def with_weights(self, weights: torch.Tensor) -> DeviceRows:
        return DeviceRows(self.cuda, self.indptr, self.indices, weights.detach(), self.columns)

    def weights_or_ones(self) -> torch.Tensor:
        return torch.ones(len(self.indices), device=self.cuda.where) if self.weights is None else self.weights

    @cached_property
    def csr(self) -> kernels.FloatCSR:
        """The same arrays for kernels."""
        weights = None if self.weights is None else self.cuda.array(self.weights)
        return kernels.FloatCSR(self.cuda.array(self.indptr), self.cuda.array(self.indices), weights, *self.shape)


@dataclass(frozen=True, eq=False)
class DeviceBlock(Block):
    """A `Block` whose arrays are tensors on a device."""

    cuda: CudaContext = field(kw_only=True)


@matrix_of.register
def _(block: DeviceBlock) -> SparseRows:
    return DeviceRows(block.cuda, block.indptr, block.indices, block.weights, block.num_sources)  # type: ignore[arg-type]


def block_on_device(cuda: CudaContext, block: Block) -> DeviceBlock:
    """Copy a block to a device; arrays that are already there are not copied."""
    first, last = (int(block.indptr[0]), int(block.indptr[-1])) if isinstance(block.indptr, np.ndarray) else (0, len(block.indices))
    weights = None if block.weights is None else cuda.put(block.weights[first:last])
    pointers = cuda.put(block.indptr - first if first else block.indptr)
    return DeviceBlock(pointers, cuda.put(block.indices[first:last]), weights, block.num_sources, cuda=cuda)


def rows_on_device(cuda: CudaContext, rows: SparseRows | torch.Tensor) -> SparseRows | torch.Tensor:
    """Copy dense or sparse rows to a device; rows that are already there are returned as they are."""
    if isinstance(rows, torch.Tensor):
        moved: torch.Tensor = cuda.put(rows)
        return moved
    if isinstance(rows, DeviceRows):
        return rows
    packed = rows.packed()
    weights = None if packed.weights is None else cuda.put(packed.weights)
    return DeviceRows(cuda, cuda.put(packed.indptr), cuda.put(packed.indices), weights, packed.columns)


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


class DeviceShare(InferenceShare):
    """A share that copies each range of rows to the device when it is computed."""

    def __init__(self, cuda: CudaContext, share: InferenceShare) -> None:
        self._cuda, self._share, self.chunk_numbers = cuda, share, share.chunk_numbers
        self.n, self.edges, self.rows, self.indptr, self.sparse = share.n, share.edges, share.rows, share.indptr, share.sparse
        self.vertices, self.comm, self.first, self.holds_features, self.gathered = (
            share.vertices, share.comm, share.first, share.holds_features, share.gathered,
        )  # fmt: skip
        self.degrees, self.labels, self.masks = cuda.put(share.degrees), share.labels, share.masks

    def places(self, vertices: np.ndarray) -> np.ndarray:
        return self._share.places(vertices)

    def entries(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        return self._share.entries(at)

    def put(self, rows: torch.Tensor) -> torch.Tensor:
        placed: torch.Tensor = self._cuda.put(rows)
        return placed

    def block_of(self, rows: np.ndarray) -> tuple[Block, np.ndarray]:
        block, places = super().block_of(rows)
        return block_on_device(self._cuda, block), places

    def features(self, first: int, last: int) -> Input:
        return rows_on_device(self._cuda, self._share.features(first, last))

    def distribute(self, sent: torch.Tensor) -> Neighborhood:
        return self._copied(self._share.distribute(sent))

    def distribute_features(self, layer: Layer) -> Neighborhood:
        return self._copied(self._share.distribute_features(layer))

    def steps(self, width: int) -> list[tuple[int, int]]:
        return self._share.steps(width)

    def _copied(self, neighborhood: Neighborhood) -> Neighborhood:
        last: list[torch.Tensor] = []  # the last rows on the host and on the device: ranges often share one tensor, copied once

        def on_device(a: int, b: int) -> tuple[Block, torch.Tensor, slice]:
            block, sent, self_rows = neighborhood(a, b)
            if not last or last[0] is not sent:
                last[:] = [sent, self._cuda.put(sent)]
            return block_on_device(self._cuda, block), last[1], self_rows

        return on_device
