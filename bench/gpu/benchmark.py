"""Check the samples of a GPU against those of other back ends, then measure how fast it makes them.

Sections run in order of importance until the time is up. A section that fails is reported, and the others go on; results are written after
each. Times are medians after a warm-up, measured by device events where all work is our own. Arrays stay on the device.
Training and the baselines also need torch built for CUDA.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import some_of, summary

from bulksample import CSR, Graph, LocalAdjacency, Selection, Stream, samplers
from bulksample.backends.cuda.backend import Cuda
from bulksample.backends.cuda.bulk import DeviceBulk
from bulksample.backends.cuda.draws import FrontierRows, copied
from bulksample.backends.cuda.predicted import most_found
from bulksample.backends.cuda.products import gather
from bulksample.backends.cuda.tables import STRUCTURES, chosen
from bulksample.report.launch import starter

from .baselines import by_products, by_sorting
from .counters import counters
from .goals import against
from .hardware import Gpu, Work, this_gpu
from .input_layer import input_layer
from .inputs import FANOUTS, adjacency_on, drawn, edges_of, products, sampler_of, seeds_of, sizes, skewed
from .libraries import cugraph, dgl, quiver, sampled, sums, torch_geometric
from .relations import relations
from .traced import traced

SETTINGS = {"sage": {}, "sage replace": {"replace": True}, "labor": {}, "ladies": {}, "fastgcn": {}, "saint": {"walk_length": 3}}
LIBRARIES = {"torch_geometric": torch_geometric, "dgl": dgl, "pylibcugraph": cugraph, "quiver": quiver}  # by the module of each
Clock = Callable[[Work], float]


class Bench:
    """A GPU, the graphs, and a clock.

    Attributes
    ----------
    cuda : CudaContext
    engine, host : Backend
        The back ends of the GPU, whose memory is torch's as in training, and of this machine's processors.
    device : CudaDevice
        That of `engine`.
    large : CSR
        A graph like ogbn-products.
    about : dict
        What all figures depend on.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.cuda, self.host, self.sizes = gpu, gpu.open(), gpu.host(), sizes()
        self.engine: Cuda = self.cuda.engine
        self.device, self.rounds = self.engine.device, 2 if gpu.small else 7
        self.seconds_of, self.waited, self.context = gpu.seconds_of, gpu.waited, gpu.context
        self.large = products()
        fetched = self.device.launch.l2_fetch_bytes
        self.about = {"card": gpu.name, "l2_fetch_bytes": fetched, "fanouts": FANOUTS, "batch_size": self.sizes.batch}

    @cached_property
    def skewed(self) -> CSR:
        """An R-MAT graph."""
        return skewed()

    @cached_property
    def graph(self) -> Graph:
        """The large graph with features, 47 classes and seeds for an epoch, to train on."""
        own, rng = self.sizes, np.random.default_rng(1)
        n, train = self.large.shape[0], np.zeros(self.large.shape[0], bool)
        train[rng.permutation(n)[: own.minibatches * own.batch]] = True
        x, labels = rng.standard_normal((n, own.features), np.float32), rng.integers(0, 47, n)
        return Graph(self.large, 1.0, x, labels, 47, {"train": train}, {}, "like products")

    def trainer(self, precision: str) -> Any:
        """Make the trainer of a three-layer GraphSAGE on it; nothing is evaluated."""
        from bulksample.methods.config import TrainConfig
        from bulksample.methods.run import make_trainer

        asked = {"fanouts": FANOUTS, "hidden": self.sizes.hidden, "batch_size": self.sizes.batch, "epochs": 3, "evaluate": "none"}
        return make_trainer(TrainConfig.of(**asked, quiet=True), self.graph, compute=self.context(precision))

    def seeds(self, minibatches: int) -> Selection:
        """Select seeds of the large graph for at most so many mini-batches."""
        return seeds_of(self.large, minibatches, self.sizes.batch)

    def graph_for(self, sampler: str) -> CSR:
        """Return the graph for a sampler: FastGCN on the smaller one, whose probabilities one thread of the host sums up."""
        return self.skewed if sampler == "fastgcn" else self.large

    def draw(self, seeds: Selection) -> DeviceBulk:
        """Draw the hops of a bulk from the large graph and number its vertices; all of it stays on the device."""
        return drawn(self.device, self.large, seeds)

    def median(self, work: Work, clock: Clock | None = None) -> dict[str, float]:
        """Measure the seconds of `work` after a warm-up: median, minimum and maximum."""
        work()
        return summary([(clock or self.seconds_of)(work) for _ in range(self.rounds)])

    def host_seconds(self, work: Work) -> dict[str, float]:
        """Measure the seconds of `work` in which the host does not wait for the device: Python, and the driver's part of launches."""
        get, waited = self.device.get, []

        def timed(array: Any) -> np.ndarray:
            began = time.perf_counter()
            try:
                return get(array)
            finally:
                waited.append(time.perf_counter() - began)

        def clock(work: Work) -> float:
            waited.clear()
            began = time.perf_counter()
            work()
            return time.perf_counter() - began - sum(waited)

        self.device.get = timed  # type: ignore[method-assign]
        try:
            return self.median(work, clock)
        finally:
            del self.device.get


def digests(bench: Bench) -> dict[str, Any]:
    """Compare samplers with this machine's processors on large graphs; name those that differ."""
    compared, differ = 0, []
    for setting, options in SETTINGS.items():
        sampler, matrix = samplers.make(setting.split()[0], FANOUTS, **options), bench.graph_for(setting)
        seeds = seeds_of(matrix, 4, bench.sizes.batch)
        bulks = [sampler.sample_bulk(LocalAdjacency(matrix, engine), seeds, Stream(1)) for engine in (bench.engine, bench.host)]
        got, expected = ([minibatch.digest() for minibatch in bulk] for bulk in bulks)
        compared += len(got)
        differ += [] if got == expected else [setting]
    return {"minibatches_compared": compared, "differ": differ, "alike": not differ}


def sampling(bench: Bench) -> dict[str, Any]:
    """Measure edges a second of fanouts 15,10,5 with relabelling, and the host's share, by minibatches in a bulk.

    The last bulk holds a tenth of the vertices.
    """
    found = {}
    for k in (1, 8, 16, 32, 64, max(1, bench.large.shape[0] // (10 * bench.sizes.batch))):
        seeds = bench.seeds(k)
        edges, draw = edges_of(bench.draw(seeds)), partial(bench.draw, seeds)
        seconds, of_host = bench.median(draw), bench.host_seconds(draw)
        rate = edges / seconds["median"]
        found[f"k = {len(seeds)}"] = {"edges": edges, "seconds": seconds, "edges_per_second": rate, "host_seconds": of_host}
    return found


def numbering(bench: Bench) -> dict[str, Any]:
    """Measure edges a second with each structure that numbers vertices, by minibatches in a bulk; name the one chosen by size."""
    found, device = {}, bench.device
    for k in (1, 8, 32):
        seeds = bench.seeds(k)
        met = most_found(len(seeds.vertices), FANOUTS, bench.large.nnz, len(seeds))
        own: dict[str, Any] = {"chosen": chosen(bench.large.shape[0], len(seeds), met, device.free_bytes)}
        for name in STRUCTURES:
            own[name] = _numbered_by(bench, name, seeds)
        found[f"k = {len(seeds)}"] = own
    return found


def _numbered_by(bench: Bench, structure: Any, seeds: Selection) -> dict[str, Any] | str:
    """Measure the hops of a bulk with one structure, or say why it was left out."""
    device = bench.device
    try:
        device.numbering = structure
        edges, seconds = edges_of(bench.draw(seeds)), bench.median(partial(bench.draw, seeds))
        return {"seconds": seconds, "edges_per_second": edges / seconds["median"]}
    except MemoryError as error:
        return f"left out: {error}"
    finally:
        device.numbering = None


def copying(bench: Bench) -> dict[str, Any]:
    """Measure bytes a second, read and written, of a plain copy, of feature rows by type and place, and of R-MAT rows."""
    device, rng = bench.device, np.random.default_rng(1)
    n, width = bench.large.shape[0], 100
    features = device.full(n * width, 1, np.float32)
    target = device.empty(n * width, np.float32)
    plain = bench.median(lambda: target.__setitem__(slice(None), features))
    rows = device.put(rng.integers(0, n, n).astype(np.int32))
    rows_400 = bench.median(lambda: gather(device, features, width, rows))
    halved = bench.median(lambda: gather(device, features, width, rows, wanted="float16"))
    packed, halves = device.full(n * 128, 1, np.uint16), {}
    for half, kind in ((128, "float16"), (128, "bfloat16"), (100, "float16")):
        seconds = bench.median(partial(gather, device, packed, half, rows, kind, kind))
        halves[f"rows of {2 * half} bytes, {kind}"] = (4 * half * n + 4 * n) / seconds["median"]
    skewed, picked = device.matrix(bench.skewed), rng.integers(0, bench.skewed.shape[0], bench.skewed.shape[0]).astype(np.int32)
    there, entries = device.put(picked), int(bench.skewed.degrees[picked].sum())
    extraction = bench.median(lambda: copied(device, skewed, FrontierRows(there, there, None, None, len(picked), 0)))
    rates = {
        "copy": 8 * n * width / plain["median"], "rows of 400 bytes": (8 * n * width + 4 * n) / rows_400["median"],
        "the same to fp16": (6 * n * width + 4 * n) / halved["median"],
        **halves,
        "R-MAT rows": (8 * entries + 40 * len(picked)) / extraction["median"],
    }  # fmt: skip
    return {"bytes_per_second": rates, "share_of_copy": {name: rate / rates["copy"] for name, rate in rates.items()}}


def on_device(bench: Bench) -> dict[str, Any]:
    """Measure edges a second of bulks of 32 mini-batches that stay on the device, by sampler, beside this machine's processors."""
    found: dict[str, Any] = {}
    for name in ("sage", "labor", "ladies", "fastgcn"):
        sampler, matrix = sampler_of(name), bench.graph_for(name)
        seeds, both = seeds_of(matrix, 32, bench.sizes.batch), (adjacency_on(bench.cuda, matrix), LocalAdjacency(matrix, bench.host))
        there, here = (partial(sampler.sample_bulk, adjacency, seeds, Stream(1)) for adjacency in both)
        edges = sum(len(block.indices) for minibatch in here() for block in minibatch.blocks)
        seconds, native = bench.median(there, bench.waited), min(bench.waited(here) for _ in range(2))
        rates = {"edges_per_second": edges / seconds["median"], "times_native": native / seconds["median"]}
        found[name] = {"edges": edges, "seconds": seconds, "native_seconds": native, **rates}
    return found


def baselines(bench: Bench) -> dict[str, Any]:
    """Measure edges a second of the same hops by library products and by sorting random keys in torch."""
    found: dict[str, Any] = {}
    seeds = bench.seeds(8)
    ways = {"products, prefix sums, search": by_products, "torch, sorted keys": partial(by_sorting, where=bench.gpu.where)}
    for name, baseline in ways.items():
        try:
            work = baseline(bench.large, [seeds.part(j) for j in range(len(seeds))], FANOUTS)
            edges, seconds = work(), bench.median(work, bench.waited)
            found[name] = {"edges": edges, "seconds": seconds, "edges_per_second": edges / seconds["median"]}
        except Exception as error:  # of a library that was built without CUDA
            found[name] = f"left out: {type(error).__name__}: {error}"
    return found


def sharing(bench: Bench) -> dict[str, Any]:
    """Compare digests of 1, 2 and 4 ranks that share the card, the graph in block rows."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bulksample"]
        make = ["data", "make", "rmat", "--scale", str(bench.sizes.shared_scale), "--edge-factor", "16", "-o", f"{folder}/g"]
        subprocess.run([*command, *make], check=True, timeout=120, stdout=subprocess.DEVNULL)
        for ranks in (1, 2, 4):
            started = [*starter(ranks, None), *command]
            placed = ["--graph", "partitioned"] if ranks > 1 else []
            written = Path(folder) / f"{ranks}.json"
            ask = ["sample", f"{folder}/g", "--minibatches", "8", "--bulk-size", "2", "--backend", "auto" if bench.gpu.small else "cuda"]
            subprocess.run([*started, *ask, *placed, "--json", str(written)], check=True, timeout=120, stdout=subprocess.DEVNULL)
            found[str(ranks)] = json.loads(written.read_text())["digest"]
    return {"digests": found, "alike": len(set(found.values())) == 1}


def training(bench: Bench, precisions: tuple[str, ...] = ("fp32", "tf32")) -> dict[str, Any]:
    """Time an epoch at each precision, with the share spent waiting for samples and for features, and the host's seconds of a step.

    A settled run waits at the end of each phase, for the seconds of phases. The first epoch is a warm-up.
    """
    found = {}
    for precision, settled in [*((precision, False) for precision in precisions), (precisions[0], True)]:
        trainer = bench.trainer(precision)
        trainer.context.compute.synchronous = settled
        report = trainer.run()
        told = {"seconds": trainer.epoch_seconds[1:], "steps": report["steps"] // 3, "loss": report["train_loss"]}
        if settled:
            told["phases_per_epoch"] = {phase: seconds / 3 for phase, seconds in report["phases"].items()}
        else:
            told |= {key: report[key] for key in ("waiting_share", "features_on", "bulk_size")}
            told["host_seconds_per_step"] = {phase: seconds / report["steps"] for phase, seconds in report["phases"].items()}
        found[f"{precision}, settled" if settled else precision] = told
    return found


SECTIONS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "digests": digests, "sampling": sampling, "samplers": on_device, "copying": copying, "sums": sums, "input_layer": input_layer,
    "numbering": numbering, "traced": traced, "training": training, "relations": relations, "baselines": baselines, "counters": counters,
    "bf16": partial(training, precisions=("bf16",)), "sharing": sharing,
    **{name: partial(sampled, library=library, fanouts=FANOUTS) for name, library in LIBRARIES.items()},
}  # fmt: skip


def measured(bench: Bench, name: str) -> dict[str, Any] | str:
    """Run a section and return its figures, or how it failed: the others still count."""
    try:
        with bench.device.phase(name):  # one stream for all that a section puts, makes and times
            return SECTIONS[name](bench)
    except ImportError as error:
        return f"left out: {type(error).__name__}: {error}"
    except Exception as error:  # of a driver, a library or ours
        return f"failed: {type(error).__name__}: {error}"
    finally:
        gc.collect()
        with suppress(Exception):  # of a device that can do nothing more; `worker` finds out
            bench.gpu.give_back_memory()


def is_well(result: Any) -> bool:
    """Return True if a section has its figures, and its samples are those of others."""
    return isinstance(result, dict) and result.get("alike", True)


def added(earlier: dict[str, Any], about: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return what was found beside what earlier calls found on the same card, and all of it beside its goals."""
    known = (earlier if earlier.get("card", about["card"]) == about["card"] else {}) | about | found
    return known | {"goals": against(known)}


def gpu(only: some_of(*SECTIONS) = (), seconds: float = 400.0, kept: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:  # type: ignore[valid-type]
    """Measure sections (all by default) on this machine's GPU; none begins after so many seconds. Results are added to those of FILE.

    The graphs are kept in the folder that BULKSAMPLE_BENCH_CACHE names. With REHEARSE=1 all of it runs on an emulated device.
    """
    began, bench, found, failed = time.perf_counter(), Bench(this_gpu()), dict[str, Any](), list[str]()
    for name in only or SECTIONS:
        spent = time.perf_counter() - began
        found[name] = measured(bench, name) if spent <= seconds else f"left out: {spent:.0f} of {seconds:.0f} seconds were spent"
        failed += [name] if not is_well(found[name]) and not str(found[name]).startswith("left out") else []
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
        yield added(kept or {}, bench.about, found)
    if failed:
        print(f"failed, or other samples: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)
