"""The CUDA back end without a device: numpy for CuPy, and the same .cu files compiled by g++ for NVRTC.

An emulation for correctness. It is never a back end for users, so it lives with the tests.
"""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import types
from contextlib import nullcontext
from functools import cache, partial
from pathlib import Path

import numpy as np
from waiting import PATIENCE

from bulksample.backends.cuda.backend import Cuda
from bulksample.backends.cuda.device import kernels
from bulksample.backends.sources import kernel_directory

from . import races

HERE = Path(__file__).parent
BUILT = HERE.parents[1] / "build" / "emulation"
FLAGS = ["-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1"]
RECORDED = ["-fsanitize=thread", "-DBS_HOST_RECORDED", "-O1"]  # calls the functions of recorder.cpp, and none of the sanitizer's
_BUILDING = threading.Lock()  # in most tests ranks are threads


def compiler():
    """The C++ compiler, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


@cache
def library(sanitized=False, directory=None, recorded=False):
    """The kernels of a folder as one host library, compiled once for each state of the sources."""
    flags = FLAGS + (SANITIZED if sanitized else RECORDED if recorded else [])
    own = kernels(directory).values()
    files = [*sorted(kernel_directory().glob("*.h")), *sorted({kernel.file for kernel in own}), *HERE.glob("*.h"), HERE / "recorder.cpp"]
    text = [path.read_bytes() for path in files]
    folder = BUILT / hashlib.sha256(b"\0".join([*text, " ".join(flags).encode()])).hexdigest()[:16]
    built = folder / "kernels.so"
    folder.mkdir(parents=True, exist_ok=True)
    with _BUILDING, (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one compiles
        if not built.exists():
            unit, made = folder / f"kernels.{os.getpid()}.cpp", folder / f"kernels.{os.getpid()}.so"
            unit.write_text(_unit(own))
            if recorded:
                _compile(*flags, "-c", "-o", made.with_suffix(".o"), unit)
                _compile(*FLAGS, "-o", made, made.with_suffix(".o"), HERE / "recorder.cpp")
            else:
                _compile(*flags, "-o", made, unit)
            made.replace(built)
    return ctypes.CDLL(str(built))


@cache
def driver():
    """The path of a stand-in for the driver's library, whose functions are those of `library`."""
    return compiled(HERE / "driver.cpp", BUILT, FLAGS)


def compiled(source, folder, flags):
    """The path of a library made of one source, compiled once for each state of it."""
    built = folder / f"{source.stem}-{hashlib.sha256(source.read_bytes() + repr(flags).encode()).hexdigest()[:16]}.so"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = built.with_suffix(f".{os.getpid()}")
        _compile("-o", made, source, *flags)
        made.replace(built)
    return built


def _compile(*arguments):
    subprocess.run([compiler(), f"-I{kernel_directory()}", f"-I{HERE}", *arguments], check=True, timeout=PATIENCE)


def _unit(exported):
    """One source that includes every .cu file, each in a namespace of its own, and exports its kernels."""
    lines = ['#include "cuda_on_host.h"', *(f'#include "{path.name}"' for path in sorted(kernel_directory().glob("*.h")) if _plain(path))]
    for file in sorted({kernel.file for kernel in exported}):
        own = [kernel.name for kernel in exported if kernel.file == file]
        lines += [f"namespace {file.stem} {{", f'#include "{file}"', *(f"BS_HOST_EXPORT({name})" for name in own), "}"]
    return "\n".join(lines) + "\n"


def _plain(path):
    return not path.name.startswith("native") and path.name != "uniform_lanes.h"


class HostLauncher:
    """Launches the host library's kernels; see `bulksample.backends.cuda.device.Launcher`. A race is an error if accesses are recorded."""

    FEW_BLOCKS = 7  # so that every kernel has to loop
    l2_fetch_bytes = 0

    def __init__(self, schedule=0, sanitized=False, directory=None, recorded=False):
        self._library, self._kernels, self._schedule = library(sanitized, directory, recorded), kernels(directory), schedule
        self._recorded = recorded
        self.can_enqueue = not recorded  # what is enqueued is given by addresses, and the recorder asks for arrays

    def most_blocks(self, name):
        return self.FEW_BLOCKS

    def functions(self, names):
        found = [0 if name is None else ctypes.cast(getattr(self._library, f"bs_host_{name}"), ctypes.c_void_p).value for name in names]
        return np.array(found, np.uint64)

    def address(self, array):
        return 0 if array is None else array.ctypes.data

    def enqueue(self, functions, blocks, threads, starts, words):
        """Launch the kernels one after another, as `Driver` of csrc/native_launch.cpp does."""
        for i, function in enumerate(functions):
            own = words[starts[i] : starts[i + 1]].copy()
            if not function:
                (ctypes.c_uint32 * int(own[2])).from_address(int(own[0]))[:] = [int(own[1])] * int(own[2])
                continue
            table = (ctypes.c_void_p * len(own))(*(own.ctypes.data + 8 * at for at in range(len(own))))
            self._library.bs_host_schedule(self._schedule)
            run = ctypes.CFUNCTYPE(ctypes.c_longlong, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)(int(function))
            if stuck := run(int(blocks[i]), int(threads[i]), table):
                raise RuntimeError(f"launch {i}, block {stuck - 1}: threads wait for others that never come")

    def __call__(self, name, blocks, *values):
        kernel = self._kernels[name]
        arguments = kernel.arguments(values, pointer)
        slots = [np.array([value]) for value in arguments]
        table = (ctypes.c_void_p * len(slots))(*(slot.ctypes.data for slot in slots))
        run = getattr(self._library, f"bs_host_{name}")
        run.restype = ctypes.c_longlong
        with races.watched(self._library, name, values) if self._recorded else nullcontext():
            self._library.bs_host_schedule(self._schedule)
            stuck = run(ctypes.c_uint(blocks), ctypes.c_uint(kernel.threads), table)
        if stuck:
            raise RuntimeError(f"kernel {name}, block {stuck - 1}: threads wait for others that never come")

    def phase(self, name, stream=None):
        return nullcontext()


def pointer(array):
    """The address of an array's first byte, which must lie as the kernels expect; an address is taken as it is."""
    if array is None or isinstance(array, np.uintp):
        return np.uintp(array or 0)
    assert array.flags.c_contiguous, "kernels take contiguous arrays"
    return np.uintp(array.ctypes.data)


def _poisoned(shape, dtype):
    """Memory as a device gives it: what a kernel does not write shows."""
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0xA5)
    return array


# what `bulksample.backends.cuda` asks of its array module
arrays = types.SimpleNamespace(
    empty=_poisoned,
    full=np.full,
    asarray=np.array,
    argsort=partial(np.argsort, kind="stable"),  # as CuPy's is
    asnumpy=np.array,
    pinned=np.array,
    registered=lambda array: array,
    from_dlpack=np.from_dlpack,
)


def emulated(schedule=0, sanitized=False, free_bytes=8 << 30, recorded=False, arrays=arrays, launcher=HostLauncher):
    """The CUDA back end on the host."""
    return Cuda(arrays, launcher(schedule=schedule, sanitized=sanitized, recorded=recorded), free_bytes)
