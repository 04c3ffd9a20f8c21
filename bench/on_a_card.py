"""Checks on a GPU of what emulation cannot show, one line each; a failure does not stop the others.

    python bench/on_a_card.py [--samplers sage,labor,ladies,fastgcn] [--json FILE]
    python bench/on_a_card.py --find            name the device, or say why there is none; exits 2 then

`bench/on_a_card.sh` runs it beside the tests and the benchmark. Digests are compared with those of the reference.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bulksample import backends
from bulksample.adjacency import LocalAdjacency
from bulksample.backends.base import Backend
from bulksample.backends.cuda import cubins, nvrtc
from bulksample.backends.cuda.kernels import kernels
from bulksample.backends.cuda.tables import STRUCTURES
from bulksample.rng import Stream
from bulksample.selection import Selection
from bulksample.sparse import CSR

FANOUTS = (15, 40, 5)  # in registers, by blocks, in registers


class Checks:
    """The checks, each a method that returns what it found and raises where that is wrong.

    Parameters
    ----------
    samplers : list of str
        Samplers whose digests are compared.
    """

    def __init__(self, samplers: list[str]) -> None:
        rng, n = np.random.default_rng(0), 5000
        degrees = rng.integers(0, 90, n)
        degrees[7] = 4000
        columns = np.concatenate([np.sort(rng.choice(n, degree, replace=False)) for degree in degrees]).astype(np.int32)
        self.matrix = CSR(np.concatenate([[0], np.cumsum(degrees)]), columns, None, (n, n))
        self.seeds = Selection.of([rng.permutation(n)[:64] for _ in range(6)], n)
        self.samplers, self.expected = samplers, cache(lambda name: self._digests(backends.make("reference"), name))

    def compile_all(self) -> dict[str, int]:
        """Bytes of the machine code of every .cu file."""
        return {file.stem: self._cubin(file).stat().st_size for file in sorted({kernel.file for kernel in kernels().values()})}

    def elf_is_whole(self) -> str:
        """CuPy's getCUBIN strips the last byte of a cubin; the driver's reaction to such a file is what the next two checks find."""
        code = self._cubin(kernels()["scan_sums"].file).read_bytes()
        program, sections = struct.unpack_from("<QQ", code, 32)
        program_size, programs, section_size, count = struct.unpack_from("<HHHH", code, 54)
        return f"{len(code)} bytes of {max(program + programs * program_size, sections + count * section_size)}"

    def load_from_file_as_cached(self) -> int:
        """Registers of a kernel, its module loaded from a file as it lies in the cache."""
        return self._registers(b"")

    def load_from_file_with_a_nul(self) -> int:
        """The same with the byte that may be missing."""
        return self._registers(b"\0")

    def empty_arrays_by_dlpack(self) -> list[tuple[int, ...]]:
        """Shapes of empty arrays that went from CuPy to torch and back."""
        import cupy
        import torch

        there, back = torch.from_dlpack(cupy.empty(0, np.int32)), cupy.from_dlpack(torch.empty(0, device="cuda"))
        return [tuple(there.shape), back.shape]

    def uint16_by_dlpack(self) -> str:
        """16-bit words of CuPy as bfloat16 of torch."""
        import cupy
        import torch

        return str(torch.from_dlpack(cupy.ones(4, np.uint16)).view(torch.bfloat16).dtype)

    def digests_by_cupy_pool(self) -> dict[str, bool]:
        """Samplers that agree with the reference, memory from CuPy's pool."""
        return self._alike({name: (backends.make("cuda"), name) for name in self.samplers})

    def both_structures(self) -> dict[str, bool]:
        """Structures of numbering that give the digests of the reference."""
        return self._alike({name: (_numbered_by(name), "sage") for name in STRUCTURES})

    def graph_in_pinned_memory(self) -> dict[str, bool]:
        """The same from a graph that kernels read over the bus."""
        engine: Any = backends.make("cuda")
        engine.device.free_bytes = 0
        return self._alike({"sage": (engine, "sage")})

    def digests_by_torch_pool(self) -> dict[str, bool]:
        """Samplers that agree with the reference, memory from torch's pool."""
        import torch

        nvrtc.share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)
        return self.digests_by_cupy_pool()

    def _alike(self, cases: dict[str, tuple[Backend, str]]) -> dict[str, bool]:
        found = {case: self._digests(engine, name) == self.expected(name) for case, (engine, name) in cases.items()}
        if not all(found.values()):
            raise AssertionError(f"digests differ from those of the reference: {found}")
        return found

    def _digests(self, engine: Backend, name: str) -> list[str]:
        from bulksample import samplers

        bulk = samplers.make(name, FANOUTS).sample_bulk(LocalAdjacency(self.matrix, engine), self.seeds, Stream(1))
        return [minibatch.digest() for minibatch in bulk]

    def _cubin(self, file: Path) -> Path:
        import cupy

        return cubins.compiled(file, cupy.cuda.Device().compute_capability)

    def _registers(self, more: bytes) -> int:
        import cupy

        with tempfile.NamedTemporaryFile(suffix=".cubin") as copy:
            copy.write(self._cubin(kernels()["scan_sums"].file).read_bytes() + more)
            copy.flush()
            return int(cupy.RawModule(path=copy.name).get_function("scan_sums").num_regs)


def _numbered_by(structure: str) -> Backend:
    engine: Any = backends.make("cuda")
    engine.device.numbering = structure
    return engine  # type: ignore[no-any-return]


def run(checks: dict[str, Callable[[], Any]]) -> dict[str, dict[str, Any]]:
    """The result and the seconds of each check, or its error."""
    found: dict[str, dict[str, Any]] = {}
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            found[name] = {"found": check()}
        except Exception as error:
            traceback.print_exc(limit=3)
            found[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        found[name]["seconds"] = time.perf_counter() - began
        print(f"{name}: {found[name]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--find", action="store_true", help="Only look for a device.")
    parser.add_argument("--samplers", default="sage,labor,ladies,fastgcn", help="Samplers to compare, with commas.")
    parser.add_argument("--json", type=Path, help="File for what was found.")
    options = parser.parse_args()
    if reason := backends.why_not("cuda"):
        print(f"on_a_card needs a GPU, but {reason}; run it on a machine with a device, PyTorch and CuPy", flush=True)
        sys.exit(2)
    if options.find:
        import cupy
        import torch

        card = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        print(f"{card}; CuPy {cupy.__version__}, torch {torch.__version__}, numpy {np.__version__}")
        return
    checks = Checks(options.samplers.split(","))
    found = run({name: getattr(checks, name) for name in vars(Checks) if not name.startswith("_")})
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    failed = [name for name, result in found.items() if "error" in result]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
