"""Checks on a GPU of what emulation cannot show, one line each; a failure does not stop the others.

    python bench/on_a_card.py tools|compile|device|launch|samples|memory|models [--small] [--no-pool] [--json FILE]

`bench/on_a_card.sh` runs them all. Results are written to FILE (by default the one that the variable FOUND names) after every check.
Digests are compared with those of the reference back end.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

FANOUTS = ((15, 40, 5), (25, -1))  # in registers, by blocks, all neighbors
PROGRAMS = ("g++", "nvcc", "nvidia-smi", "compute-sanitizer", "ncu", "mpirun")
PACKAGES = (
    "numpy", "scipy", "pydantic", "typer", "rich", "pyyaml", "torch", "safetensors", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc",
    "pip", "pybind11", "setuptools", "mpi4py", "mpich", "pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "scikit-learn",
    "torch_geometric", "torch-quiver", "cugraph", "dgl",
)  # fmt: skip
Checks = dict[str, Callable[[], Any]]


def tools() -> Checks:
    """Name the card, the programs and the packages, and those that are missing."""
    return {"machine": _machine, "card": _card, "programs": _programs, "packages": _packages}


def _machine() -> dict[str, Any]:
    return {"kernel": platform.release(), "python": platform.python_version(), "processors": os.cpu_count()}


def _card() -> str:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.mem,mig.mode.current", "--format=csv"]
    if shutil.which("nvidia-smi") is None:
        return "none is known: nvidia-smi is not on the path"
    return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()


def _programs() -> dict[str, str]:
    return {name: shutil.which(name) or "missing" for name in PROGRAMS}


def _packages() -> dict[str, str]:
    def version(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "missing"

    return {name: version(name) for name in PACKAGES}


def compile_all() -> Checks:
    """Compile every .cu file for the card, or for sm_90 where there is none."""
    from bulksample.backends.cuda import cubins
    from bulksample.backends.cuda.kernels import kernels

    def size(file: Path) -> dict[str, Any]:
        architecture = _architecture()
        return {"sm": architecture, "bytes": cubins.compiled(file, architecture).stat().st_size}

    return {file.name: partial(size, file) for file in sorted({kernel.file for kernel in kernels().values()})}


@cache
def _architecture() -> str:
    import cupy

    try:
        return str(cupy.cuda.Device().compute_capability)
    except cupy.cuda.runtime.CUDARuntimeError:
        return "90"


def first_launch() -> Checks:
    """Open the device, and launch a first kernel: without either nothing else can run."""
    from bulksample import backends

    def device() -> dict[str, Any]:
        if reason := backends.why_not("cuda"):
            raise RuntimeError(f"on_a_card needs a GPU, but {reason}; run it on a machine with a device, PyTorch and CuPy")
        import cupy

        told, engine = cupy.cuda.runtime.getDeviceProperties(0), cast(Any, backends.make("cuda"))
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
    from bulksample import backends
    from bulksample.backends.cuda.kernels import kernels

    def registers(file: Path) -> dict[str, int]:
        import cupy

        from bulksample.backends.cuda import cubins

        module = cupy.RawModule(path=str(cubins.compiled(file, _architecture())))
        return {kernel.name: module.get_function(kernel.name).num_regs for kernel in kernels().values() if kernel.file == file}

    def prefix_sums() -> str:
        device, counts = cast(Any, backends.make("cuda")).device, np.random.default_rng(0).integers(0, 100, 3_000_000).astype(np.int32)
        with device.phase("prefix sums"):
            got = device.get(device.pointers(device.put(counts)))
        if not np.array_equal(got[1:], np.cumsum(counts, dtype=np.int64)):
            raise AssertionError("prefix sums differ from those of numpy")
        return "as numpy"

    files = sorted({kernel.file for kernel in kernels().values()})
    return {"prefix sums": prefix_sums, **{f"load {file.name}": partial(registers, file) for file in files}}


class Samples:
    """Digests of a graph's samples on the device and by the reference.

    Parameters
    ----------
    n : int
    """

    def __init__(self, n: int = 5000) -> None:
        from bulksample.selection import Selection
        from bulksample.sparse import CSR

        rng = np.random.default_rng(0)
        degrees = rng.integers(0, min(90, n // 4), n)
        degrees[7] = n * 4 // 5  # a hub
        columns = np.concatenate([np.sort(rng.choice(n, degree, replace=False)) for degree in degrees]).astype(np.int32)
        weights = rng.integers(0, 2**30, len(columns))
        self.matrix = CSR(np.concatenate([[0], np.cumsum(degrees)]), columns, None, (n, n))
        self.weighted = self.matrix.with_values(weights)
        self.seeds = Selection.of([rng.permutation(n)[: n // 80] for _ in range(6)], n)
        self._expected = cache(self._by_reference)

    def compare(self, setting: str, engine: Any, fanouts: Iterable[tuple[int, ...]] = FANOUTS) -> str:
        """Raise if a sample of a setting of `battery` differs from the reference; both rules of the frontier are drawn."""
        compared = 0
        for hops in fanouts:
            for rule in ("all", "new"):
                got, expected = self._digests(engine, setting, hops, rule), self._expected(setting, hops, rule)
                wrong = [number for number, (one, other) in enumerate(zip(got, expected, strict=True)) if one != other]
                if wrong:
                    raise AssertionError(f"{setting}, fanouts {hops}, frontier {rule}: mini-batches {wrong} of {len(got)} differ")
                compared += len(got)
        return f"{compared} mini-batches as the reference"

    def _by_reference(self, setting: str, fanouts: tuple[int, ...], rule: str) -> list[str]:
        from bulksample import backends

        return self._digests(backends.make("reference"), setting, fanouts, rule)

    def _digests(self, engine: Any, setting: str, fanouts: tuple[int, ...], rule: str) -> list[str]:
        import battery

        from bulksample import LocalAdjacency, Stream

        matrix = self.weighted if battery.needs_weights(setting) else self.matrix
        bulk = battery.make(setting, fanouts, frontier=rule).sample_bulk(LocalAdjacency(matrix, engine), self.seeds, Stream(1))
        return [minibatch.digest() for minibatch in bulk]


def samples(small: bool) -> Checks:
    """Compare the digests of every sampler, on one relation and on many, with the reference."""
    import battery
    import relation_bulks

    from bulksample import backends

    held, fanouts = Samples(400 if small else 5000), FANOUTS[:1] if small else FANOUTS
    plain = {name: lambda name=name: held.compare(name, backends.make("cuda"), fanouts) for name in battery.SETTINGS}
    cases = relation_bulks.CASES if not small else [("window", "weighted, replace"), ("trees", "sage"), ("static", "weighted")]
    return {**plain, **{f"relations, {rule}, {law}": partial(relational, rule, law) for rule, law in cases}}


def relational(rule: str, law: str) -> str:
    """Raise if a sample on the relations of the tests' zoo, by a rule of time and a law, differs from the reference."""
    import relation_bulks
    import relations_zoo

    from bulksample import backends

    kind, compared = relation_bulks.kind_of_times(rule), 0
    graph = relations_zoo.library(kind, weighted="weighted" in law, parallel=law != "labor")
    seeds = relation_bulks.bulk(graph, kind is not None)
    for frontier in ("all", "new"):
        for fanouts in ((15, 10, 5), (40, -1)):
            sampler = relation_bulks.sampler_of(rule, law, fanouts, None, frontier)
            got, expected = (relation_bulks.drawn(graph, sampler, seeds, backends.make(name)) for name in ("cuda", "reference"))
            if got != expected:
                raise AssertionError(f"relations by {rule} and {law}, fanouts {fanouts}, frontier {frontier} differ from the reference")
            compared += len(got)
    return f"{compared} mini-batches as the reference"


def memory() -> Checks:
    """Check arrays of both libraries, both pools, both structures of numbering, and a graph in pinned memory."""
    from bulksample import backends
    from bulksample.backends.cuda.tables import STRUCTURES

    held = Samples()

    def empty_by_dlpack() -> list[Any]:
        import cupy
        import torch

        there, back = torch.from_dlpack(cupy.empty(0, np.int32)), cupy.from_dlpack(torch.empty(0, device="cuda"))
        return [tuple(there.shape), back.shape]

    def sixteen_bits_by_dlpack() -> str:
        import cupy
        import torch

        return str(torch.from_dlpack(cupy.ones(4, np.uint16)).view(torch.bfloat16).dtype)

    def numbered_by(structure: str) -> str:
        engine: Any = backends.make("cuda")
        engine.device.numbering = structure
        return held.compare("sage", engine)

    def launched(prepares: bool) -> str:
        engine: Any = backends.make("cuda")
        if prepares and not engine.device.prepares:
            raise RuntimeError("the CUDA driver or the native back end is missing: launches cannot be enqueued in one call")
        engine.device.prepares = prepares
        return held.compare("sage", engine) + f"; {len(engine.device.recordings)} shapes recorded"

    def pinned() -> str:
        engine: Any = backends.make("cuda")
        engine.device.free_bytes = 0
        return held.compare("sage", engine)

    def torch_pool() -> str:
        import torch

        from bulksample.backends.cuda.nvrtc import share_pool

        share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)
        return held.compare("sage", backends.make("cuda"))

    structures = {f"numbering by {name}": partial(numbered_by, name) for name in STRUCTURES}
    dlpack = {"empty arrays by DLPack": empty_by_dlpack, "16 bits by DLPack": sixteen_bits_by_dlpack}
    structures |= {"enqueued in one call": partial(launched, True), "launched one by one": partial(launched, False)}
    return {**dlpack, **structures, "graph in pinned memory": pinned, "memory of torch": torch_pool}


def models() -> Checks:
    """Train every model for four epochs on the device and on the CPU; losses agree within rounding, and a run repeats to the bit."""
    from bulksample.config import MODELS, RELATIONAL_MODELS

    def train(model: str, device: str) -> float:
        from communities import community_graph
        from planted_relations import planted

        from bulksample.methods.config import TrainConfig
        from bulksample.methods.run import make_trainer

        options = {
            "fanouts": (4, 3, 2),
            "hidden": 32,
            "batch_size": 64,
            "bulk_size": 2,
            "epochs": 4,
            "dropout": 0.0,
            "seed": 4,
            "quiet": True,
        }
        config = TrainConfig.of(**options, model=model, device=device, backend="cuda" if device == "cuda" else "native")
        graph = planted(times=True) if model in RELATIONAL_MODELS else community_graph(2000)
        return float(make_trainer(config, graph).run()["train_loss"])

    def compare(model: str) -> dict[str, float]:
        found = {"cuda": train(model, "cuda"), "again": train(model, "cuda"), "cpu": train(model, "cpu")}
        repeats = model == "sage-pool" or found["cuda"] == found["again"]  # its gradient is summed by atomics
        if abs(found["cuda"] - found["cpu"]) > 2e-4 * (1 + abs(found["cpu"])) or not repeats:
            raise AssertionError(f"losses differ: {found}")
        return found

    return {model: partial(compare, model) for model in (*MODELS, *RELATIONAL_MODELS)}


def run(checks: Checks, tell: Callable[[dict[str, Any]], None] = lambda found: None) -> dict[str, dict[str, Any]]:
    """Return the result and the seconds of each check, or its error; `tell` is called with the results so far after each."""
    found: dict[str, dict[str, Any]] = {}
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            found[name] = {"found": check()}
        except Exception as error:
            traceback.print_exc(limit=-3)
            found[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        found[name]["seconds"] = round(time.perf_counter() - began, 3)
        print(f"{name}: {found[name]}", flush=True)
        tell(found)
    return found


def without_pool() -> None:
    """Make every array of CuPy an allocation of its own, so that an access past its end is one outside all memory.

    Launches are then not prepared: the arrays of a bulk whose launches were recorded lie side by side in two allocations.
    """
    import cupy

    from bulksample.backends.cuda import nvrtc

    cupy.cuda.set_allocator(None)
    nvrtc._driver = lambda: None


SECTIONS: dict[str, Callable[[bool], Checks]] = {
    "tools": lambda small: tools(), "compile": lambda small: compile_all(), "device": lambda small: first_launch(),
    "launch": lambda small: launch(), "samples": samples, "memory": lambda small: memory(), "models": lambda small: models(),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--small", action="store_true", help="A graph of 400 vertices, for compute-sanitizer.")
    parser.add_argument(
        "--no-pool", action="store_true", help="Every array is an allocation of its own, so that an access past its end shows."
    )
    parser.add_argument("--json", type=Path, default=os.environ.get("FOUND"), help="File for what was found.")
    options = parser.parse_args()

    def tell(found: dict[str, Any]) -> None:
        if options.json:
            Path(options.json).write_text(json.dumps(found, indent=1, default=str))

    try:
        checks = SECTIONS[options.section](options.small)
    except Exception as error:  # of an import, most likely
        tell({options.section: {"error": f"{type(error).__name__}: {error}"}})
        raise
    found = run({"no pool": without_pool, **checks} if options.no_pool else checks, tell)
    failed = [name for name, result in found.items() if "error" in result]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
