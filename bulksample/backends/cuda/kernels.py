"""Read the names and argument types of the CUDA kernels off csrc/*.cu.

Every launcher, NVRTC on a device or a host library in tests, takes the same names and the same Python values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..sources import kernel_directory

THREADS, WIDE = 128, 1024  # of a block, and of one of a kernel that says so: BS_BLOCK and BS_WIDE of csrc/device.h
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\w+)\) )?(\w+)\(([^)]*)\)')
_SCALARS = {"bs_i32": np.int32, "bs_u32": np.uint32, "bs_i64": np.int64, "bs_u64": np.uint64}


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

        Parameters
        ----------
        functions : uint64, shape (count,)
        blocks, threads : uint32, shape (count,)
            Threads are those of a block.
        starts : int64, shape (count + 1,)
        words : uint64
            Launch i has the arguments ``words[starts[i]:starts[i + 1]]``, a word each. Those of a fill are an address, 32 bits, and how
            often they are repeated there.
        """

    def phase(self, name: str, stream: Any = None) -> AbstractContextManager[Any]:
        """Open a range in the profiler's timeline; launches inside run on `stream`, by default the launcher's."""


@cache
def kernels(directory: Path | None = None) -> dict[str, Kernel]:
    """List all kernels by name: ours, or those of another folder."""
    found = {}
    for file in sorted((directory or kernel_directory()).glob("*.cu")):
        for bound, name, parameters in _SIGNATURE.findall(file.read_text(encoding="utf-8")):
            found[name] = Kernel(file, name, tuple(map(_scalar, parameters.split(","))), WIDE if bound == "BS_WIDE" else THREADS)
    return found


def _scalar(parameter: str) -> type | None:
    return None if "*" in parameter else _SCALARS[parameter.replace("const ", "").split()[0]]
