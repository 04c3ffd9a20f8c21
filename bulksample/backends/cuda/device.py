"""A device as the CUDA back end uses it: arrays in its memory, copies to and from the host, and kernel launches.

Arrays live where the array module puts them; only `put` and `get` copy between host and device. Launches return at once. Only `get`
waits, so every use of it is deliberate.

The names and argument types of kernels are read off csrc/*.cu, so every launcher, NVRTC on a device or a host library in tests, takes the
same names and the same Python values. A grid of as many blocks as the device holds leaves no tail: every block runs from the start.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, finalize, ref

import numpy as np

from ...sparse import CSR
from ..sources import kernel_directory

THREADS, WIDE = 128, 1024  # of a block, and of one of a kernel that says so: BS_BLOCK and BS_WIDE of csrc/device.h
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\w+)\) )?(\w+)\(([^)]*)\)')
_SCALARS = {"bs_i32": np.int32, "bs_u32": np.uint32, "bs_i64": np.int64, "bs_u64": np.uint64}
_WARP = 32
_REGISTERS = 256  # registers are given to a warp in such units
_SHARED = 128  # bytes: shared memory is given to a block in such units
TILE = 512  # entries that a warp walks over: BS_TILE of csrc/device.h
SCANNED = 16 * THREADS  # entries of a tile of csrc/scan.cu and of `number_found` in csrc/numbers.cu
TABLE_SHARE = 8  # the tables of a bulk take at most one part in so many of the free memory


class Kernel(NamedTuple):
    """One ``extern "C"`` function of a .cu file."""

    file: Path
    name: str
    parameters: tuple[type | None, ...]  # the numpy scalar of each; None is a pointer
    threads: int = THREADS  # of a block

    def arguments(self, values: tuple[Any, ...], pointer: Callable[[Any], Any]) -> list[Any]:
        """Convert Python values to kernel arguments; `pointer` converts an array or None."""
        if len(values) != len(self.parameters):
            raise TypeError(f"kernel {self.name} takes {len(self.parameters)} arguments; got {len(values)}")
        return [pointer(value) if scalar is None else scalar(value) for value, scalar in zip(values, self.parameters, strict=True)]


class Launcher(Protocol):
    """Runs kernels by name."""

    can_enqueue: bool  # True if `enqueue` can be called
    l2_fetch_bytes: int  # what the L2 cache of the device reads from memory at once; 0 if that is not known

    def most_blocks(self, name: str) -> int:
        """Return the blocks of kernel `name` that fill the device; kernels loop over the rest."""

    def __call__(self, name: str, blocks: int, *values: Any) -> None:
        """Start kernel `name` on `blocks` blocks. Arrays belong to the array module; None is a null pointer."""

    def functions(self, names: Sequence[str | None]) -> np.ndarray:
        """Return what `enqueue` calls kernels by: uint64; 0 for None, a fill."""

    def address(self, array: Any) -> int:
        """Return the address of an array for kernels; 0 for None."""

    def enqueue(self, functions: np.ndarray, blocks: np.ndarray, threads: np.ndarray, starts: np.ndarray, words: np.ndarray) -> None:
        """Start many kernels, one after the other, in one call.

        `functions` (uint64), `blocks` and `threads` of a block (uint32) have one element a launch. Launch i has the arguments
        ``words[starts[i]:starts[i + 1]]`` (uint64), a word each; those of a fill are an address, 32 bits, and how often they repeat there.
        """

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        """Open a range in the profiler's timeline; launches inside run on `stream`, by default the launcher's."""


@cache
def kernels(directory: Path | None = None) -> dict[str, Kernel]:
    """List all kernels by name: ours, or those of another folder."""
    by_name = {}
    for file in sorted((directory or kernel_directory()).glob("*.cu")):
        for bound, name, parameters in _SIGNATURE.findall(file.read_text(encoding="utf-8")):
            types = (None if "*" in one else _SCALARS[one.replace("const ", "").split()[0]] for one in parameters.split(","))
            by_name[name] = Kernel(file, name, tuple(types), WIDE if bound == "BS_WIDE" else THREADS)
    return by_name


class Processor(NamedTuple):
    """The resources of a multiprocessor, which all its blocks share."""

    threads: int
    blocks_at_most: int
    registers: int
    shared_bytes: int
    reserved_bytes: int  # of shared memory, which each block takes beside its own

    def blocks(self, registers: int, shared_bytes: int, threads: int = THREADS) -> int:
        """Return the blocks that fit at once, at least 1, by the registers of a thread and the shared memory of a block."""
        of_warp = -(-registers * _WARP // _REGISTERS) * _REGISTERS
        of_block = -(-(shared_bytes + self.reserved_bytes) // _SHARED) * _SHARED
        warps = self.registers // max(1, of_warp)
        return max(1, min(self.threads // threads, self.blocks_at_most, warps * _WARP // threads, self.shared_bytes // max(1, of_block)))


class DeviceCSR(NamedTuple):
    """A sparse integer matrix on the device."""

    indptr: Any  # int64, shape (rows + 1,)
    indices: Any  # int32, shape (nnz,)
    values: Any  # int64, shape (nnz,), or None: ones
    shape: tuple[int, int]
    longest: int = 0  # entries of the longest row; 0 if it is not known


def end_to_end(arrays: Sequence[np.ndarray], aligned: int = 1) -> tuple[np.ndarray, list[int]]:
    """Lay arrays end to end, each from a multiple of `aligned` words of 64 bits on; return the words, and where each array begins."""
    starts = np.cumsum([0, *(-(-array.nbytes // (8 * aligned)) * aligned for array in arrays)]).tolist()
    words = np.zeros(starts[-1], np.int64)
    for start, array in zip(starts, arrays, strict=False):
        words[start:].view(array.dtype)[: len(array)] = array
    return words, starts


class CudaDevice:
    """A device: an array module that holds memory, and a launcher that runs kernels.

    `arrays` has ``empty, full, asarray, argsort, from_dlpack, asnumpy`` as CuPy has them; ``pinned`` copies an array to memory of the host
    that kernels can read, and ``registered`` pins the memory of an array where it lies, or raises `RuntimeError`. `free_bytes` is the
    memory to plan with: half of it for matrices, the rest for samples.
    """

    def __init__(self, arrays: Any, launcher: Launcher, free_bytes: int) -> None:
        self.arrays, self.launch, self.free_bytes = arrays, launcher, free_bytes
        self.prepares = launcher.can_enqueue  # True if launches of bulks are recorded and enqueued together
        self.recordings: dict[Any, Any] = {}  # by the shape of a bulk
        self.recordings_lock = threading.Lock()  # the loaders of several threads may share a device
        self.numbering: Any = None  # a name of `tables.STRUCTURES`; None chooses by size
        self._constants: dict[int, Any] = {}
        self._thread = threading.local()  # of the thread that samples: its zeroed words
        self._placing = threading.Lock()
        self._placed_bytes: dict[object, int] = {}  # of each array of a matrix on the device
        self._matrices: WeakKeyDictionary[CSR, tuple[CSR, DeviceCSR]] = WeakKeyDictionary()

    def put(self, array: np.ndarray) -> Any:
        """Copy an array to the device."""
        return self.arrays.asarray(np.ascontiguousarray(array))

    def get(self, array: Any) -> np.ndarray:
        """Copy an array to the host, and wait for it."""
        copy: np.ndarray = self.arrays.asnumpy(array)
        return copy

    def empty(self, count: int, dtype: Any) -> Any:
        """Allocate memory that a kernel will write."""
        return self.arrays.empty(int(count), dtype)

    def full(self, count: int, value: int, dtype: Any) -> Any:
        """Allocate an array of one value."""
        return self.arrays.full(int(count), np.dtype(dtype).type(value), dtype)

    def start(self, name: str, work: int, *values: Any) -> None:
        """Launch a kernel whose threads share `work` items."""
        self._launch(name, -(-work // THREADS), values)

    def walk(self, name: str, entries: int, *values: Any) -> None:
        """Launch a kernel whose warps walk over at most `entries` entries."""
        self._launch(name, -(-entries // (TILE * THREADS // 32)), values)

    def blocks(self, name: str, count: int, *values: Any) -> None:
        """Launch a kernel whose blocks take `count` rows."""
        self._launch(name, count, values)

    def _launch(self, name: str, blocks: int, values: tuple[Any, ...]) -> None:
        self.launch(name, int(min(max(blocks, 1), self.launch.most_blocks(name))), *values)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Open a range in the profiler's timeline."""
        return self.launch.phase(name)

    def pointers(self, counts: Any) -> Any:
        """Compute the prefix sums of int32 counts: int64, one element more."""
        n, pointers = len(counts), self.empty(len(counts) + 1, np.int64)
        self.scan("scan_counts", n, 0, lambda states: (counts, n, states, pointers))
        return pointers

    @staticmethod
    def state_words(entries: int, words: int) -> int:
        """Return the states of a scan over tiles of `entries` entries: a ticket, `words` words, and one for each tile."""
        return 2 + words + entries // SCANNED

    def scan(self, name: str, entries: int, words: int, values: Callable[[Any], tuple[Any, ...]], more: int = 0) -> None:
        """Launch a kernel that passes once over tiles of `entries` entries (csrc/look_back.h), and then over `more`.

        ``values(states)`` gives its arguments; the states are zeros, as many as `state_words` says.
        """
        self._launch(name, entries // SCANNED + -(-more // SCANNED) + 1, values(self.zeros(self.state_words(entries, words))))

    @contextmanager
    def zeroed_together(self, words: int) -> Iterator[None]:
        """Zero the states of launches of this thread, `words` in all, by one fill."""
        self._thread.zeroed = self.full(words, 0, np.uint64)
        try:
            yield
        finally:
            del self._thread.zeroed

    def zeros(self, words: int) -> Any:
        """Return uint64 zeros that no other launch uses."""
        left = getattr(self._thread, "zeroed", None)
        if left is None or len(left) < words:
            return self.full(words, 0, np.uint64)
        self._thread.zeroed = left[words:]
        return left[:words]

    def put_together(self, *arrays: np.ndarray) -> list[Any]:
        """Copy arrays to the device in one copy."""
        words, starts = end_to_end(arrays)
        there = self.put(words)
        return [there[start:].view(array.dtype)[: len(array)] for start, array in zip(starts, arrays, strict=False)]

    def matrix(self, a: CSR) -> DeviceCSR:
        """Copy a matrix once to where kernels can read it. Matrices that share arrays on the host share them on the device."""
        with self._placing:
            if a not in self._matrices:
                values = None if a.values is None else self._shared(a.values)
                longest = int(np.diff(a.indptr).max(initial=0))
                there = DeviceCSR(self._shared(a.indptr), self._shared(a.indices), values, a.shape, longest)
                self._matrices[a] = a.with_values(a.values), there
            return self._matrices[a][1]

    def constant(self, array: np.ndarray) -> Any:
        """Copy an unchanging array to the device once; the copy lives as long as the array on the host."""
        with self._placing:
            if id(array) not in self._constants:
                self._constants[id(array)] = self._placed(array)
                finalize(array, _forget, ref(self), "_constants", id(array))
            return self._constants[id(array)]

    def _shared(self, array: np.ndarray) -> Any:
        for matrix, there in self._matrices.values():
            for host, copy in ((matrix.indptr, there.indptr), (matrix.indices, there.indices), (matrix.values, there.values)):
                same = host is not None and (host.ctypes.data, host.shape, host.dtype) == (array.ctypes.data, array.shape, array.dtype)
                if same:  # both live, and are the same memory
                    return copy
        return self._placed(array)

    def _placed(self, array: np.ndarray) -> Any:
        """Place an array on the device while matrices fit half of its memory; else in pinned host memory, read over the bus."""
        placed = sum(self._placed_bytes.copy().values())
        if placed + array.nbytes <= self.free_bytes // 2:
            name = object()
            self._placed_bytes[name] = array.nbytes
            finalize(array, _forget, ref(self), "_placed_bytes", name)
            return self.put(array)
        warnings.warn(
            f"{array.nbytes} bytes of a matrix stay in pinned memory of the host: {placed} bytes of matrices are on the "
            f"device, and half of its {self.free_bytes} is for them",
            stacklevel=2,
        )
        return self.arrays.pinned(array)


def _forget(device: ref[CudaDevice], table: str, name: object) -> None:
    """Leave a freed host array out of a table of its device; the weak reference does not keep the device alive."""
    if (used := device()) is not None:
        getattr(used, table).pop(name, None)
