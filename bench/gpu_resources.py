"""Print the registers, shared memory and spilled bytes of every CUDA kernel, as NVRTC's compiler reports them; no GPU is needed.

    python bench/gpu_resources.py [--arch 80,90,100] [--json FILE]

Needs the wheels nvidia-cuda-nvrtc and cuda-bindings.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from cuda.bindings import nvrtc

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="80,90,100", help="architectures, by commas")
    parser.add_argument("--json", help="write the figures to a file as well")
    options = parser.parse_args()
    archs, made = [int(arch) for arch in options.arch.split(",")], {}
    for file in sorted(kernel_directory().glob("*.cu")):
        for arch in archs:
            for name, own in resources(compiled_log(file, arch)).items():
                made.setdefault(name, {})[f"sm_{arch}"] = own
    print(f"{'registers / shared bytes / spilled bytes':40}" + "".join(f"{f'sm_{arch}':>18}" for arch in archs))
    for name, of_arch in sorted(made.items()):
        print(f"{name:40}" + "".join(f"{' / '.join(map(str, of_arch[f'sm_{arch}'].values())):>18}" for arch in archs))
    if options.json:
        Path(options.json).write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
