"""Launch kernels on a device, and share its memory. NVRTC compiles csrc/*.cu at first use (`cubins`), so no toolkit is needed."""

from __future__ import annotations

import importlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import native
from .backend import Cuda
from .cubins import compiled
from .device import Processor, kernels

DRIVER = "libcuda.so.1"
_READABLE, _READ_ONLY = 1 | 2, 8  # flags of cudaHostRegister: by all contexts and by kernels; never written
_L2_FETCH, _SECTOR = 5, 32  # cudaLimitMaxL2FetchGranularity, and the bytes of its least value
_LOCAL_RANKS = (  # where launchers tell the number of a rank on its machine
    "LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK",
    "JSM_NAMESPACE_LOCAL_RANK", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID",
)  # fmt: skip
PROCESSOR = (  # attributes of a device, in the order of `Processor`
    "MaxThreadsPerMultiProcessor", "MaxBlocksPerMultiprocessor", "MaxRegistersPerMultiprocessor", "MaxSharedMemoryPerMultiprocessor",
    "ReservedSharedMemoryPerBlock",
)  # fmt: skip


@cache
def unavailable_because() -> str | None:
    """Say why there is no device to run on; None if there is one."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported ({error}); pip install 'bulksample[cuda]' brings it"
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy sees no device ({error})"
    return None if devices else "CuPy sees no device"


def on_device() -> Cuda:
    """Make the CUDA back end on this rank's device; it plans with the memory that is free now."""
    import cupy

    device = local_rank() % cupy.cuda.runtime.getDeviceCount()
    with cupy.cuda.Device(device):
        return Cuda(device_arrays(), DeviceLauncher(device), cupy.cuda.runtime.memGetInfo()[0])


def local_rank() -> int:
    """Return the number of this process on its machine, as the launcher says it. Ranks take devices in turn, and may share them."""
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def device_arrays() -> SimpleNamespace:
    """Return the parts of CuPy that `device.CudaDevice` uses."""
    import cupy
    import cupyx

    def pinned(array: np.ndarray) -> np.ndarray:
        copy: np.ndarray = cupyx.empty_pinned(array.shape, array.dtype)
        copy[...] = array
        return copy

    def registered(array: np.ndarray) -> np.ndarray:
        if array.ctypes.data % 16:
            raise RuntimeError(f"an array at address {array.ctypes.data:#x} is not aligned to 16 bytes")
        runtime = cupy.cuda.runtime
        try:
            runtime.hostRegister(array.ctypes.data, array.nbytes, _READABLE)
        except runtime.CUDARuntimeError:  # a file that is mapped for reading
            runtime.hostRegister(array.ctypes.data, array.nbytes, _READABLE | _READ_ONLY)
        weakref.finalize(array, runtime.hostUnregister, array.ctypes.data).atexit = False
        return array

    same = {name: getattr(cupy, name) for name in ("empty", "full", "asarray", "argsort", "asnumpy", "from_dlpack")}
    return SimpleNamespace(**same, pinned=pinned, registered=registered)


class DeviceLauncher:
    """A launcher of kernels on one device and a stream of its own; see `kernels.Launcher`.

    The stream does not wait for others, so a bulk is sampled while the default stream trains. Before its arrays are used on another
    stream, that stream must wait for `stream`.
    """

    def __init__(self, device: int = 0) -> None:
        import cupy

        self._cupy, self._device, self.number = cupy, cupy.cuda.Device(device), device
        self._functions: dict[str, Any] = {}
        self._most_blocks: dict[str, int] = {}
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.l2_fetch_bytes = fetch_sectors(cupy.cuda.runtime)
        self._driver = _driver()
        self.can_enqueue = self._driver is not None

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        kernel = kernels()[name]
        self._function(name)((blocks,), (kernel.threads,), tuple(kernel.arguments(values, _pointer)))

    def _function(self, name: str) -> Any:
        """Return a kernel; compile and load its file at first use."""
        if name not in self._functions:
            file = kernels()[name].file
            module = self._cupy.RawModule(path=str(compiled(file, self._device.compute_capability)))
            for sibling in (other for other in kernels().values() if other.file == file):
                self._functions[sibling.name] = module.get_function(sibling.name)
        return self._functions[name]

    def most_blocks(self, name: str) -> int:
        if name not in self._most_blocks:
            function, has, threads = self._function(name), self._device.attributes, kernels()[name].threads
            processor = Processor(*(has[attribute] for attribute in PROCESSOR))
            self._most_blocks[name] = has["MultiProcessorCount"] * processor.blocks(function.num_regs, function.shared_size_bytes, threads)
        return self._most_blocks[name]

    def functions(self, names: Sequence[str | None]) -> np.ndarray:
        return np.array([0 if name is None else self._function(name).kernel.ptr for name in names], np.uint64)

    def address(self, array: Any) -> int:
        if array is None:
            return 0
        return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)

    def enqueue(self, functions: np.ndarray, blocks: np.ndarray, threads: np.ndarray, starts: np.ndarray, words: np.ndarray) -> None:
        self._driver.enqueue(functions, blocks, threads, starts, words, self._cupy.cuda.get_current_stream().ptr)

    def new_stream(self) -> Any:
        """Return another stream of this device, which waits for no other."""
        with self._cupy.cuda.Device(self.number):
            return self._cupy.cuda.Stream(non_blocking=True)

    def external_stream(self, pointer: int) -> Any:
        """Return the stream of another library as one of CuPy."""
        return self._cupy.cuda.ExternalStream(pointer, self.number)

    @contextmanager
    def phase(self, name: str, stream: Any = None) -> Iterator[None]:
        nvtx = self._cupy.cuda.nvtx
        here = self._cupy.cuda.Device(self.number)  # a new object each time: it remembers the device that its thread used before
        with here, self.stream if stream is None else stream:
            nvtx.RangePush(name)
            try:
                yield
            finally:
                nvtx.RangePop()


def fetch_sectors(runtime: Any) -> int:
    """Ask the L2 cache of the current device to fetch 32 bytes at a time, and return what it fetches now; 0 if the driver does not say.

    Neighbors and slots of tables are read at random, in pieces of 4 to 32 bytes; a fetch of 64 or 128 bytes wastes most of what it reads.
    """
    with suppress(runtime.CUDARuntimeError):  # the limit is a hint
        runtime.deviceSetLimit(_L2_FETCH, _SECTOR)
    try:
        return int(runtime.deviceGetLimit(_L2_FETCH))
    except runtime.CUDARuntimeError:
        return 0


@cache
def _driver() -> Any:
    """Load the CUDA driver for `DeviceLauncher.enqueue`; None, and a warning, if it or the native back end is missing."""
    reason = native.unavailable_because()
    if reason is None:
        try:
            return importlib.import_module("bulksample._native").Driver(DRIVER)
        except RuntimeError as error:
            reason = str(error)
    warnings.warn(f"kernels are launched one by one, which takes more of the host's time: {reason}", stacklevel=2)
    return None


def _pointer(array: Any) -> Any:
    """Convert an array to a kernel argument: CuPy's as they are, numpy's in pinned memory by their address, valid on the device too."""
    if array is None:
        return np.uintp(0)
    return np.uintp(array.ctypes.data) if isinstance(array, np.ndarray) else array


def share_pool(take: Callable[[int, int, int], int], give: Callable[[int], None]) -> None:
    """Let CuPy allocate from another library's pool, so that both share the free memory.

    ``take(size, device, stream)`` allocates and returns an address; ``give(address)`` frees it. Torch's are
    ``torch.cuda.caching_allocator_alloc`` and ``torch.cuda.caching_allocator_delete``. If the pool is exhausted, `MemoryError`
    is raised, as by CuPy.
    """
    import cupy

    def taken(size: int, device: int) -> int:
        try:
            return take(size, device, cupy.cuda.get_current_stream().ptr)
        except RuntimeError as error:
            raise MemoryError(str(error)) from error

    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(taken, lambda address, device: give(address)).malloc)
