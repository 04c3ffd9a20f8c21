"""A device as training sees it: torch's tensors, the back end's kernels, and the streams of the stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...backends.cuda.backend import Cuda
from ...backends.cuda.device import Device
from .streams import Stages


class CudaContext:
    """One device of this rank.

    Parameters
    ----------
    engine : Cuda
        Samples, and launches all kernels.
    where : torch.device
        The same device for torch.
    stages : Stages
    """

    def __init__(self, engine: Cuda, where: torch.device, stages: Stages) -> None:
        self.engine, self.where, self.stages = engine, where, stages

    @property
    def kernels(self) -> Device:
        return self.engine.device

    def tensor(self, array: Any) -> Any:
        """An array of the back end as a tensor; the memory is shared (DLPack)."""
        return torch.from_dlpack(array)

    def array(self, tensor: torch.Tensor) -> Any:
        """A tensor as an array of the back end; the memory is shared where the tensor is contiguous."""
        return self.kernels.arrays.from_dlpack(tensor.detach().contiguous())

    def put(self, array: np.ndarray | torch.Tensor) -> Any:
        """A copy on the device; a tensor that is there is not copied."""
        if isinstance(array, torch.Tensor):
            return array.to(self.where)
        return torch.tensor(np.ascontiguousarray(array), device=self.where)
