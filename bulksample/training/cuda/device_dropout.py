"""Bias, relu and dropout of a model on a device, with the kernels of csrc/epilogue.cu on the stream that trains.

The names of the rows are those of the mini-batch on the device, where it was sampled there; else they are sent once a pass. The host waits
for neither.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from ...backends.cuda import epilogue as kernels
from ...backends.dropout import Mask
from ...nn.aggregate import SparseRows
from ...nn.dropout import Kernels, RowNames
from .cuda_context import CudaContext


class DeviceKernels(Kernels):
    """The primitives of a device for float32; tensors of other types take torch's operations there."""

    def __init__(self, cuda: CudaContext) -> None:
        self.cuda = cuda

    def place(self, names: RowNames) -> RowNames:
        """Send the names of rows to the device; those that are there are returned as they are."""
        with self.cuda.streams.train.on("dropout"):
            return RowNames(self._sent(names.vertices), None if names.trees is None else self._sent(names.trees))

    def take(self, names: np.ndarray, at: Any) -> Any:
        """Return the names at some places; all of them are copied to the device once, if the places are there."""
        if not isinstance(at, torch.Tensor):
            return names[at]
        with self.cuda.streams.train.on("dropout"):
            return self.cuda.tensor(self.cuda.kernels.constant(names))[at.long()]

    def epilogue(self, z: torch.Tensor, bias: torch.Tensor | None, relu: bool, mask: Mask | None, out: torch.Tensor) -> None:
        if z.dtype != torch.float32:
            super().epilogue(z, bias, relu, mask, out)
            return
        with self.cuda.streams.train.on("dropout"):
            arrays = self._flat(z), z.shape[1], None if bias is None else self.cuda.array(bias)
            kernels.epilogue(self.cuda.kernels, *arrays, relu, self._named(mask), self._flat(out))

    def gradient(self, grad: torch.Tensor, y: torch.Tensor | None, mask: Mask | None, bias: bool, out: torch.Tensor) -> torch.Tensor | None:
        if grad.dtype != torch.float32:
            return super().gradient(grad, y, mask, bias, out)
        with self.cuda.streams.train.on("dropout gradient"):
            arrays = self._flat(grad), None if y is None else self._flat(y), grad.shape[1]
            total = kernels.epilogue_gradient(self.cuda.kernels, *arrays, self._named(mask), bias, self._flat(out))
            return None if total is None else self.cuda.tensor(total)

    def drop_entries(self, rows: SparseRows, mask: Mask) -> SparseRows:
        with self.cuda.streams.train.on("dropout"):
            there: tuple[Any, ...] = rows.indptr, rows.indices, rows.weights_or_ones()
            indptr, indices, values = (self.cuda.array(part) for part in there)
            made = kernels.drop_entries(self.cuda.kernels, indptr, indices, values, self._named(mask))
            return rows.with_weights(self.cuda.tensor(made))

    def _flat(self, tensor: torch.Tensor) -> Any:
        return self.cuda.array(tensor.reshape(-1))

    def _named(self, mask: Mask | None) -> Any:
        if mask is None:
            return None
        vertices, trees = cast(Any, mask.vertices), cast(Any, mask.trees)
        return mask._replace(vertices=self.cuda.array(vertices), trees=None if trees is None else self.cuda.array(trees))

    def _sent(self, names: Any) -> torch.Tensor:
        return names.int() if isinstance(names, torch.Tensor) else self.cuda.send(torch.from_numpy(np.array(names, np.int32)))
