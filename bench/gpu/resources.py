"""Read the registers, shared memory and spilled bytes of every CUDA kernel from what NVRTC's compiler reports; no GPU is needed.

Needs the wheels nvidia-cuda-nvrtc and cuda-bindings.
"""

from __future__ import annotations

import re
from pathlib import Path

from cuda.bindings import nvrtc
from harness import Numbers

from bulksample.backends.sources import kernel_directory

REPORT = re.compile(r"entry function '(\w+)' for 'sm_(\d+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers([^\n]*)", re.DOTALL)


def compiled_log(file: Path, arch: int) -> str:
    """Return what the compiler says about the kernels of a file."""
    headers = [path for path in sorted(kernel_directory().glob("*.h")) if not path.name.startswith("native")]
    code, names = [path.read_bytes() for path in headers], [path.name.encode() for path in headers]
    _, program = nvrtc.nvrtcCreateProgram(file.read_bytes(), file.name.encode(), len(code), code, names)
    options = [b"-std=c++17", f"--gpu-architecture=sm_{arch}".encode(), b"--ptxas-options=-v"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1] + 16)
    nvrtc.nvrtcGetProgramLog(program, log)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise SystemExit(f"{file.name} does not compile for sm_{arch}: {log.decode()}")
    return log.decode()


def resources(log: str) -> dict[str, dict[str, int]]:
    """Read registers, bytes of shared memory and spilled bytes of each kernel from the compiler's report."""
    found = {}
    for name, _, spilled, registers, rest in REPORT.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = {"registers": int(registers), "shared_bytes": int(shared[1]) if shared else 0, "spilled_bytes": int(spilled)}
    return found


def gpu_resources(arch: Numbers = (80, 90, 100)) -> dict[str, dict[str, dict[str, int]]]:
    """Return them by kernel and architecture, such as ``{"draw_16": {"sm_90": {"registers": 48, ...}}}``."""
    made: dict[str, dict[str, dict[str, int]]] = {}
    for file in sorted(kernel_directory().glob("*.cu")):
        for one in arch:
            for name, own in resources(compiled_log(file, one)).items():
                made.setdefault(name, {})[f"sm_{one}"] = own
    return made
