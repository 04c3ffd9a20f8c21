"""Kernels on a device: NVRTC compiles csrc/*.cu at first use, through CuPy. No toolkit is needed.

The sources' digest is among the options: CuPy's cache of compiled kernels looks at options and at the .cu file, and would
miss an edited header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from ..cuda import Cuda
from ..sources import kernel_directory
from .kernels import THREADS, kernels

BLOCKS_PER_PROCESSOR = 16  # of 128 threads: as many as a multiprocessor holds at once


@cache
def unavailable_because() -> str | None:
    """Why there is no device to run on, or None where there is one."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported ({error}); pip install 'bulksample[cuda]' brings it"
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy sees no device ({error})"
    return None if devices else "CuPy sees no device"


def options() -> tuple[str, ...]:
    """What NVRTC is told. Products and sums are not contracted, so a device rounds as the host does."""
    sha = hashlib.sha256()
    for path in sorted(kernel_directory().glob("*.h")):
        sha.update(path.read_bytes())
    return "-std=c++17", "--fmad=false", f"-I{kernel_directory()}", f"-DBS_SOURCES=0x{sha.hexdigest()[:15]}"


def on_device() -> Cuda:
    """The CUDA back end on the current device, which plans with the memory that is free now."""
    import cupy

    return Cuda(cupy, DeviceLauncher(), cupy.cuda.runtime.memGetInfo()[0])


class DeviceLauncher:
    """Launches kernels on the current device and CuPy's current stream; see `kernels.Launcher`."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._functions: dict[str, Any] = {}
        self.most_blocks = cupy.cuda.Device().attributes["MultiProcessorCount"] * BLOCKS_PER_PROCESSOR

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        kernel = kernels()[name]
        if name not in self._functions:
            module = self._cupy.RawModule(code=kernel.file.read_text(), options=options(), backend="nvrtc")
            for sibling in (other for other in kernels().values() if other.file == kernel.file):
                self._functions[sibling.name] = module.get_function(sibling.name)
        self._functions[name]((blocks,), (THREADS,), tuple(kernel.arguments(values, _pointer)))

    def phase(self, name: str) -> AbstractContextManager[Any]:
        return _Range(self._cupy.cuda.nvtx, name)


class _Range:
    """A range of the profiler's timeline."""

    def __init__(self, nvtx: Any, name: str) -> None:
        self._nvtx, self._name = nvtx, name

    def __enter__(self) -> None:
        self._nvtx.RangePush(self._name)

    def __exit__(self, *error: object) -> None:
        self._nvtx.RangePop()


def _pointer(array: Any) -> Any:
    return np.uintp(0) if array is None else array


def share_pool(take: Callable[[int, int, int], int], give: Callable[[int], None]) -> None:
    """Let CuPy allocate from another library's pool, so that neither holds memory which the other lacks.

    ``take(size, device, stream)`` gives an address and ``give(address)`` returns it: torch's are
    ``torch.cuda.caching_allocator_alloc`` and ``torch.cuda.caching_allocator_delete``.
    """
    import cupy

    allocator = cupy.cuda.PythonFunctionAllocator(
        lambda size, device: take(size, device, cupy.cuda.get_current_stream().ptr), lambda address, device: give(address)
    )
    cupy.cuda.set_allocator(allocator.malloc)
