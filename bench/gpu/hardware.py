"""Name the device on which sections run: a GPU, or in a rehearsal an emulated one, at small sizes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from bulksample import backends
from bulksample.backends.base import Backend
from bulksample.backends.cuda.backend import Cuda

TESTS = str(Path(__file__).parents[2] / "tests")
SPIN = Path(TESTS) / "backends" / "on_card" / "spin.cu"
CLOCK = 2e9  # cycles a second of a multiprocessor, about
Work = Callable[[], Any]


class Gpu:
    """The first GPU of this machine."""

    small = False
    where = "cuda"  # for torch

    @property
    def name(self) -> str:
        """The name that its driver gives it."""
        import cupy

        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())

    def engine(self) -> Cuda:
        """Make the back end of the device, with arrays of its own."""
        return cast(Cuda, backends.make("cuda"))

    def host(self) -> Backend:
        """Make the back end of this machine's processors, to compare with."""
        return backends.make("native")

    def open(self) -> Any:
        """Open the device for torch and for the back end: a `CudaContext`."""
        from bulksample.training.cuda.compute import open_cuda

        return open_cuda()

    def context(self, precision: str = "fp32") -> Any:
        """Return the context to train in; see `bulksample.training.cuda.compute`."""
        from bulksample.training.cuda.compute import CudaComputeContext

        return CudaComputeContext(self.open(), precision)

    def synchronize(self) -> None:
        """Wait for all that the device was given; raises the error of a device whose context is lost."""
        import cupy

        cupy.cuda.Device().synchronize()

    def seconds_of(self, work: Work) -> float:
        """Run some work of the current stream and return its seconds between two events."""
        import cupy

        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) / 1e3

    def waited(self, work: Work) -> float:
        """Run some work of any streams and return the seconds until all of them are done."""
        self.synchronize()
        began = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - began

    @cached_property
    def _spin(self) -> Any:
        import cupy

        from bulksample.backends.cuda import cubins

        return cupy.RawModule(path=str(cubins.compiled(SPIN, cupy.cuda.Device().compute_capability))).get_function("spin")

    def spin(self, seconds: float) -> None:
        """Keep torch's current stream busy; the host goes on."""
        import cupy
        import torch

        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._spin((1,), (1,), (np.uintp(0), np.int64(seconds * CLOCK)))

    def counted(self) -> AbstractContextManager[Any]:
        """Return a context of the driver: ncu with ``--profile-from-start off`` counts nothing outside it."""
        from cupyx.profiler import profile

        return cast(AbstractContextManager[Any], profile())

    def give_back_memory(self) -> None:
        """Give back what torch's pool keeps for streams that are gone."""
        import torch

        torch.cuda.empty_cache()

    def take_memory_of_torch(self) -> None:
        """Let CuPy allocate from torch's pool."""
        import torch

        from bulksample.backends.cuda.nvrtc import share_pool

        share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)


class EmulatedGpu(Gpu):
    """An emulated device: numpy in the place of CuPy, and the kernels compiled by g++ (`tests/emulation`). It does everything at once."""

    small = True
    where = "cpu"

    def __init__(self) -> None:
        if TESTS not in sys.path:
            sys.path.append(TESTS)
        import pytest
        from emulation.fake_cupy import installed

        self._patch = pytest.MonkeyPatch()
        self._fake = installed(self._patch)
        self._fake.__enter__()

    def close(self) -> None:
        """Give CuPy back its place, for tests of other cards in this process."""
        self._fake.__exit__(None, None, None)
        self._patch.undo()

    def host(self) -> Backend:
        return backends.make()

    def open(self) -> Any:
        import torch
        from emulation.card import NotedStage

        from bulksample.training.cuda.cuda_context import CudaContext, DeviceStreams

        notes: list[Any] = []
        return CudaContext(self.engine(), torch.device("cpu"), DeviceStreams(*(NotedStage(name, notes) for name in DeviceStreams._fields)))

    def spin(self, seconds: float) -> None:
        """Do nothing: no work is queued behind it."""

    def take_memory_of_torch(self) -> None:
        """Keep the memory of numpy: torch has none on this device."""


def in_process(module: str, *words: str) -> dict[str, Any]:
    """Return the arguments of `subprocess` for a module of this package in a process of its own."""
    return {"args": [sys.executable, "-m", module, *words], "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}


@cache
def this_gpu() -> Gpu:
    """Return the card of this process; the variable REHEARSE asks for the emulated one."""
    return EmulatedGpu() if os.environ.get("REHEARSE") else Gpu()


if __name__ == "__main__":  # reads what PyTorch and CuPy load from a cold disk
    this_gpu().open()
