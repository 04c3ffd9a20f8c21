"""Compile and load every kernel, open the device, and launch the first ones."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from bulksample import backends
from bulksample.backends.cuda import cubins
from bulksample.backends.cuda.device import kernels

from .checks import Checks
from .hardware import in_process, this_gpu


def compile_all() -> Checks:
    """Compile every .cu file for the card, or for sm_90 where there is none; several processes at once, as NVRTC compiles one by one."""
    gpu = this_gpu()

    def size(file: Path) -> dict[str, Any]:
        architecture = _architecture()
        return {"sm": architecture, "bytes": cubins.compiled(file, architecture).stat().st_size}

    if not gpu.small:
        count = min(8, os.cpu_count() or 1)
        shares = [names for start in range(count) if (names := [file.name for file in _files()[start::count]])]
        for process in [subprocess.Popen(**in_process("gpu.kernels", *names)) for names in shares]:
            process.wait()  # what fails here fails in the check of its file as well
    return {file.name: partial(size, file) for file in _files()}


def first_launch() -> Checks:
    """Open the device, and launch a first kernel: without either nothing else can run."""
    gpu = this_gpu()

    def device() -> dict[str, Any]:
        if reason := backends.why_not("cuda"):
            raise RuntimeError(f"on_a_card needs a GPU, but {reason}; run it on a machine with a device, PyTorch and CuPy")
        import cupy

        told, engine = cupy.cuda.runtime.getDeviceProperties(0), cast(Any, gpu.engine())
        return {"free_bytes": engine.device.free_bytes, "l2_fetch_bytes": engine.device.launch.l2_fetch_bytes} | {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in told.items()
            if name in ("name", "major", "minor", "multiProcessorCount", "l2CacheSize", "sharedMemPerMultiprocessor", "memoryBusWidth")
        }

    def words() -> str:
        got, expected = (backends.make(name).random_words(1, 2, 3, 1000) for name in ("cuda", "reference"))
        if not np.array_equal(got, expected):
            raise AssertionError(f"random words differ from those of the reference: {got[0]}, and not {expected[0]}")
        return "as the reference"

    return {"device": device, "random words": words}


def launch() -> Checks:
    """Load every cubin, and launch the first kernel whose blocks wait for others."""
    gpu = this_gpu()

    def registers(file: Path) -> dict[str, int]:
        import cupy

        module = cupy.RawModule(path=str(cubins.compiled(file, _architecture())))
        return {kernel.name: module.get_function(kernel.name).num_regs for kernel in kernels().values() if kernel.file == file}

    def prefix_sums() -> str:
        size = 3_000 if gpu.small else 3_000_000
        device, counts = cast(Any, gpu.engine()).device, np.random.default_rng(0).integers(0, 100, size).astype(np.int32)
        with device.phase("prefix sums"):
            got = device.get(device.pointers(device.put(counts)))
        if not np.array_equal(got[1:], np.cumsum(counts, dtype=np.int64)):
            raise AssertionError("prefix sums differ from those of numpy")
        return "as numpy"

    return {"prefix sums": prefix_sums, **{f"load {file.name}": partial(registers, file) for file in _files()}}


def _files() -> list[Path]:
    return sorted({kernel.file for kernel in kernels().values()})


@cache
def _architecture() -> str:
    import cupy

    try:
        return str(cupy.cuda.Device().compute_capability)
    except cupy.cuda.runtime.CUDARuntimeError:
        return "90"


def main() -> None:
    """Compile the files that are named into the cache."""
    for file in _files():
        if file.name in sys.argv[1:]:
            cubins.compiled(file, _architecture())


if __name__ == "__main__":
    main()
