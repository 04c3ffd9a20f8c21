"""Check arrays of both libraries, both pools, both structures of numbering, and a graph in pinned memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bulksample.backends.cuda.tables import STRUCTURES

from .checks import Checks
from .hardware import this_gpu
from .samples import FANOUTS, Samples


def memory() -> Checks:
    """Draw in each of these settings, as the reference does."""
    gpu = this_gpu()
    held, fanouts = Samples(400 if gpu.small else 5000), FANOUTS[:1] if gpu.small else FANOUTS

    def empty_by_dlpack() -> list[Any]:
        import cupy
        import torch

        there, back = torch.from_dlpack(cupy.empty(0, np.int32)), cupy.from_dlpack(torch.empty(0, device=gpu.where))
        return [tuple(there.shape), back.shape]

    def sixteen_bits_by_dlpack() -> str:
        import cupy
        import torch

        return str(torch.from_dlpack(cupy.full(4, 1, np.uint16)).view(torch.bfloat16).dtype)

    def numbered_by(structure: str) -> str:
        engine: Any = gpu.engine()
        engine.device.numbering = structure
        return held.compare("sage", engine, fanouts)

    def launched(prepares: bool) -> str:
        engine: Any = gpu.engine()
        if prepares and not engine.device.prepares:
            raise RuntimeError("the CUDA driver or the native back end is missing: launches cannot be enqueued in one call")
        engine.device.prepares = prepares
        return held.compare("sage", engine, fanouts) + f"; {len(engine.device.recordings)} shapes recorded"

    def pinned() -> str:
        engine: Any = gpu.engine()
        engine.device.free_bytes = 0
        return held.compare("sage", engine, fanouts)

    def pool_of_torch() -> str:
        gpu.take_memory_of_torch()
        return held.compare("sage", gpu.engine(), fanouts)

    structures = {f"numbering by {name}": partial(numbered_by, name) for name in STRUCTURES}
    dlpack = {"empty arrays by DLPack": empty_by_dlpack, "16 bits by DLPack": sixteen_bits_by_dlpack}
    structures |= {"enqueued in one call": partial(launched, True), "launched one by one": partial(launched, False)}
    return {**dlpack, **structures, "graph in pinned memory": pinned, "memory of torch": pool_of_torch}
