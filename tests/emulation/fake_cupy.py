"""A fake CuPy, as much as the CUDA back end uses; the host library runs its kernels, so code around a device needs none."""

import struct
import sys
import tempfile
import time
import types
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import scipy.sparse

from bulksample.backends.cuda.device import kernels
from bulksample.backends.cuda.nvrtc import PROCESSOR

from .host import HostLauncher, arrays, driver

OF_NUMPY = ("arange", "concatenate", "cumsum", "float32", "float64", "int32", "ones", "random", "searchsorted", "unique", "zeros")


class Event:
    """An event on a device that does everything at once."""

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass


class FakeCupy(types.ModuleType):
    """A module to put into ``sys.modules["cupy"]``; what was asked of it is in `seen`."""

    def __init__(self, devices=2, free_bytes=8 << 30):
        super().__init__("cupy")
        self.seen = []
        same = ("empty", "full", "asarray", "argsort", "asnumpy", "from_dlpack")
        self.__dict__.update({name: getattr(arrays, name) for name in same} | {name: getattr(np, name) for name in OF_NUMPY})
        self.RawModule = self._module
        self.limits = {5: 64}  # cudaLimitMaxL2FetchGranularity of a new context
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(
                getDeviceCount=lambda: devices, memGetInfo=lambda: (free_bytes, free_bytes), CUDARuntimeError=RuntimeError,
                getDeviceProperties=lambda number: {"name": b"none: emulated", "major": 9, "multiProcessorCount": 1, "uuid": b"?"},
                deviceSetLimit=self.limits.__setitem__, deviceGetLimit=self.limits.__getitem__,
            ),
            nvrtc=types.SimpleNamespace(
                createProgram=lambda source, name, headers, names: {"source": source}, compileProgram=self._compile,
                getVersion=lambda: (13, 5), getCUBIN=lambda program: elf(program["source"].encode())[:-1],  # as CuPy does
                getProgramLog=lambda program: "the log", destroyProgram=dict.clear,
            ),
            nvtx=types.SimpleNamespace(RangePush=lambda name: self.seen.append(name), RangePop=lambda: self.seen.append("pop")),
            Event=Event, get_elapsed_time=lambda start, stop: 1e3 * (stop.at - start.at),
            Device=self._device, Stream=lambda non_blocking: self._entered("stream"), ExternalStream=self._external,
            PythonFunctionAllocator=lambda take, give: types.SimpleNamespace(malloc=(take, give)),
            set_allocator=lambda malloc: setattr(self, "allocator", malloc), get_current_stream=lambda: types.SimpleNamespace(ptr=77),
        )  # fmt: skip

    def _device(self, number=0):
        entered = self._entered(f"device {number}")
        entered.attributes = dict(zip(("MultiProcessorCount", *PROCESSOR), (1, 2048, 32, 65536, 233472, 1024), strict=True))  # of an H100
        entered.compute_capability = "90"
        entered.synchronize = lambda: None
        return entered

    def _entered(self, name):
        return _Entered(self, name)

    def _external(self, address, device):
        return self._entered(f"stream at {address} of device {device}")

    def _compile(self, program, options):
        if "broken" in program["source"]:
            raise RuntimeError("NVRTC_ERROR_COMPILATION")
        self.seen.append(tuple(options))

    def _module(self, path):
        data = Path(path).read_bytes()
        code = data[64:-64].decode()
        assert data == elf(code.encode()), f"{path} is not a whole file"
        return types.SimpleNamespace(get_function=lambda name: self._function(name, code))

    def _function(self, name, code):
        assert f" {name}(" in code

        def run(grid, block, values):
            assert block == (kernels()[name].threads,)
            for value, scalar in zip(values, kernels()[name].parameters, strict=True):
                assert isinstance(value, scalar or np.uintp), f"{name} was given {type(value)}"
            HostLauncher()(name, *grid, *values)

        run.num_regs, run.shared_size_bytes = 40, 1056
        run.kernel = types.SimpleNamespace(ptr=int(HostLauncher().functions([name])[0]))
        return run


def elf(content):
    """An ELF file of 64 bits with some content and a table of one empty section at its end."""
    table = struct.pack("<16s2HI3QI6H", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64 + len(content), 0, 64, 0, 0, 64, 1, 0)
    return table + content + bytes(64)


class _Entered:
    """A device or a stream: who is inside is noted."""

    ptr = 55  # of a stream

    def __init__(self, cupy, name):
        self._cupy, self._name = cupy, name

    def __enter__(self):
        self._cupy.seen.append(self._name)

    def __exit__(self, *error):
        self._cupy.seen.append(f"left {self._name}")


def cupyx():
    """The module beside it."""
    module = types.ModuleType("cupyx")
    module.empty_pinned, module.zeros_pinned = np.empty, np.zeros
    return module


def profiler():
    """Its context for profilers that wait for one."""
    module = types.ModuleType("cupyx.profiler")
    module.profile = nullcontext
    return module


@contextmanager
def installed(monkeypatch, **options):
    """The fake in the place of CuPy."""
    from bulksample.backends.cuda import nvrtc

    fake = FakeCupy(**options)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", fake.cuda)
    monkeypatch.setitem(sys.modules, "cupyx", cupyx())
    monkeypatch.setitem(sys.modules, "cupyx.profiler", profiler())
    monkeypatch.setitem(sys.modules, "cupyx.scipy", scipy)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", scipy.sparse)
    monkeypatch.setattr(nvrtc, "DRIVER", str(driver()))
    nvrtc._driver.cache_clear()
    cache = tempfile.TemporaryDirectory()
    monkeypatch.setenv("XDG_CACHE_HOME", cache.name)
    nvrtc.unavailable_because.cache_clear()
    try:
        yield fake
    finally:
        cache.cleanup()
        nvrtc._driver.cache_clear()
        nvrtc.unavailable_because.cache_clear()
