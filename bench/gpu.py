"""Check the samples of a GPU against those of the reference, then measure how fast it makes them.

    python bench/gpu.py [--seconds 400] [--json FILE]
    python bench/gpu.py --only SECTION [--graphs DIR] [--json FILE]     one section, added to FILE; the graphs are kept in DIR
    python bench/gpu.py --check-only                                    everything at tiny sizes on an emulated device, times meaningless

Needs a device and CuPy. Training and the baselines also need torch built for CUDA, and one baseline torch-quiver. Sections run in order
of importance until the time is up. A section that fails is reported, and the others go on; results are written after each.
Times are medians after a warm-up, measured by device events where all work is our own. Arrays stay on the device, except for LADIES,
which is timed until its minibatches are on the host. The script has been rehearsed on an emulated device (tests/bench/test_gpu.py) and
has not run on a real one yet; `bench/on_a_card.sh` runs it there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gpu_baselines import by_products, by_sorting, quiver
from gpu_goals import against
from gpu_peers import cugraph, dgl, sampled, sums, torch_geometric
from gpu_relations import relations
from harness import machine, report

from bulksample import CSR, Graph, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.backends.base import Backend
from bulksample.backends.cuda.backend import Cuda
from bulksample.backends.cuda.draws import FrontierRows, copied
from bulksample.backends.cuda.features import gather
from bulksample.backends.cuda.node_wise import expand
from bulksample.backends.cuda.predicted import most_found
from bulksample.backends.cuda.tables import STRUCTURES, chosen
from bulksample.data.generate import rmat
from bulksample.report.launch import starter
from bulksample.rng import Law

FANOUTS = (15, 10, 5)
SETTINGS = {
    "sage": {}, "sage replace": {"replace": True}, "labor": {}, "ladies": {}, "fastgcn": {}, "full": {}, "shadow": {"layers": 4},
    "saint": {"walk_length": 3},
}  # fmt: skip


PEERS = {"torch_geometric": torch_geometric, "dgl": dgl, "pylibcugraph": cugraph}  # by the module that each needs


class Sizes(NamedTuple):
    """Sizes of the graphs and of the models; `TINY` is for checking the script."""

    vertices: int = 2_449_029
    entries: int = 123_718_280
    batch: int = 1024
    ladies: tuple[int, ...] = (512, 512, 512)
    features: int = 100
    hidden: int = 256
    minibatches: int = 192  # of an epoch of training
    skewed: tuple[int, int] = (20, 15_000_000)  # scale and edges of an R-MAT graph
    shared_scale: int = 14  # of the graph that ranks share
    papers: float = 0.25  # millions, of the graph of relations: 7 M edges


TINY = Sizes(500, 8000, 16, (12, 12, 12), 12, 16, 5, (8, 1500), 9, 0.0004)
Clock = Callable[[Callable[[], Any]], float]


class Bench:
    """A back end, the graphs, and a clock.

    Parameters
    ----------
    engine : Cuda
    seconds_of, waited : callable
        Run a function and return seconds. The first measures between two events on the engine's stream; the second, for libraries
        with streams of their own, until all streams are done.
    large, skewed : CSR
        A graph like ogbn-products, and an R-MAT graph.
    place : callable
        Returns the context to train in at a precision; see `bulksample.training.cuda.compute`.
    host : Backend
        The back end of this machine's processors, to compare with.
    ranks_draw_on : str
        The back end of ranks that are processes.
    rounds : int
    sizes : Sizes
    """

    def __init__(
        self, engine: Cuda, seconds_of: Clock, waited: Clock, large: CSR, skewed: CSR, place: Callable[[str], Any],
        host: Backend, ranks_draw_on: str = "cuda", rounds: int = 7, sizes: Sizes = Sizes(),
    ) -> None:  # fmt: skip
        self.host = host
        self.engine, self.device, self.large, self.skewed, self.rounds = engine, engine.device, large, skewed, rounds
        self.seconds_of, self.waited, self.place, self.ranks_draw_on, self.sizes = seconds_of, waited, place, ranks_draw_on, sizes

    def median(self, work: Callable[[], Any], clock: Clock | None = None) -> dict[str, float]:
        """Measure the seconds of `work` after a warm-up: median, minimum and maximum."""
        work()
        figures = [(clock or self.seconds_of)(work) for _ in range(self.rounds)]
        return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}

    def host_seconds(self, work: Callable[[], Any]) -> dict[str, float]:
        """Measure the seconds of `work` in which the host does not wait for the device: Python, and the driver's part of launches."""
        get, waited = self.device.get, []

        def timed(array: Any) -> np.ndarray:
            began = time.perf_counter()
            try:
                return get(array)
            finally:
                waited.append(time.perf_counter() - began)

        def clock(work: Callable[[], Any]) -> float:
            waited.clear()
            began = time.perf_counter()
            work()
            return time.perf_counter() - began - sum(waited)

        self.device.get = timed  # type: ignore[method-assign]
        try:
            return self.median(work, clock)
        finally:
            del self.device.get

    def seeds(self, minibatches: int, matrix: CSR) -> Selection:
        """Select seeds for minibatches among the vertices that have neighbours."""
        candidates = np.flatnonzero(matrix.degrees > 0)
        order = candidates[np.random.default_rng(0).permutation(len(candidates))]
        b = self.sizes.batch
        parts = [order[j * b : (j + 1) * b] for j in range(minibatches)]
        return Selection.of([part for part in parts if len(part)], matrix.shape[0])


def digests(bench: Bench) -> dict[str, Any]:
    """Compare every sampler with the reference on small graphs and with native on the large one; name those that differ."""
    small = rmat(8, edges=2000, seed=2).adjacency
    weighted = small.with_values(np.random.default_rng(1).integers(0, 2**30, small.nnz))
    few = Selection.of([np.arange(j, 250, 17) for j in range(9)], 256)
    compared, differ = 0, []
    checks = [("small", graph, few, backends.make("reference")) for graph in (small, weighted)]
    checks.append(("large", bench.large, bench.seeds(4, bench.large), bench.host))
    for where, graph, seeds, truth in checks:
        settings = SETTINGS | ({"sage weighted": {"weighted": True}} if graph.values is not None else {})
        for setting, options in settings.items():
            if where == "large" and setting in ("full", "shadow"):
                continue  # whole neighbourhoods of a large graph are most of it
            sampler = samplers.make(setting.split()[0], (40, 3) if where == "small" else FANOUTS, **options)
            bulks = [sampler.sample_bulk(LocalAdjacency(graph, engine), seeds, Stream(1)) for engine in (bench.engine, truth)]
            got, expected = ([minibatch.digest() for minibatch in bulk] for bulk in bulks)
            compared += len(got)
            differ += [] if got == expected else [f"{setting}, {where}"]
    return {"minibatches_compared": compared, "differ": differ, "alike": not differ}


def sampling(bench: Bench) -> dict[str, Any]:
    """Measure edges a second of fanouts 15,10,5 with relabelling, and the host's share, by minibatches in a bulk.

    The last bulk holds a tenth of the vertices.
    """
    a, found = bench.device.matrix(bench.large), {}
    draws = [Stream(1).draw(Law.UNIFORM, layer=hop) for hop in range(len(FANOUTS))]
    for k in (1, 8, 16, 32, 64, max(1, bench.large.shape[0] // (10 * bench.sizes.batch))):
        seeds = bench.seeds(k, bench.large)
        bulk = expand(bench.device, a, seeds, FANOUTS, draws, False)
        edges = sum(len(hop.columns) for hop in bulk.hops)
        seconds = bench.median(lambda seeds=seeds: expand(bench.device, a, seeds, FANOUTS, draws, False))
        found[f"k = {len(seeds)}"] = {
            "edges": edges, "seconds": seconds, "edges_per_second": edges / seconds["median"],
            "host_seconds": bench.host_seconds(lambda seeds=seeds: expand(bench.device, a, seeds, FANOUTS, draws, False)),
        }  # fmt: skip
        print(f"k = {len(seeds)}: {found[f'k = {len(seeds)}']}", flush=True)
    return found


def numbering(bench: Bench) -> dict[str, Any]:
    """Measure edges a second with each structure that numbers vertices, by minibatches in a bulk; name the one chosen by size."""
    found, device = {}, bench.device
    for k in (1, 8, 32):
        seeds = bench.seeds(k, bench.large)
        met = most_found(len(seeds.vertices), FANOUTS, bench.large.nnz, len(seeds))
        own: dict[str, Any] = {"chosen": chosen(bench.large.shape[0], len(seeds), met, device.free_bytes)}
        for name in STRUCTURES:
            own[name] = _numbered_by(bench, name, seeds)
        found[f"k = {len(seeds)}"] = own
    return found


def _numbered_by(bench: Bench, structure: Any, seeds: Selection) -> dict[str, Any] | str:
    """Measure the hops of a bulk with one structure, or say why it was left out."""
    device, a = bench.device, bench.device.matrix(bench.large)
    draws = [Stream(1).draw(Law.UNIFORM, layer=hop) for hop in range(len(FANOUTS))]
    try:
        device.numbering = structure
        edges = sum(len(hop.columns) for hop in expand(device, a, seeds, FANOUTS, draws, False).hops)
        seconds = bench.median(lambda: expand(device, a, seeds, FANOUTS, draws, False))
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


def layers(bench: Bench) -> dict[str, Any]:
    """Time LADIES, three layers of 512, from seeds to minibatches on the host: on the device and on this machine's processors."""
    seeds, sampler = bench.seeds(32, bench.large), samplers.make("ladies", bench.sizes.ladies)
    found: dict[str, Any] = {}
    for name, engine in (("cuda", bench.engine), ("native", bench.host)):
        adjacency, figures = LocalAdjacency(bench.large, engine), []
        for _ in range(4):
            began = time.perf_counter()
            sampler.sample_bulk(adjacency, seeds, Stream(1))
            figures.append(time.perf_counter() - began)
        found[name] = {"seconds": {"median": statistics.median(figures[1:]), "min": min(figures[1:]), "max": max(figures[1:])}}
    return {**found, "times_faster": found["native"]["seconds"]["median"] / found["cuda"]["seconds"]["median"]}


def baselines(bench: Bench) -> dict[str, Any]:
    """Measure edges a second of the same hops by library products, by sorting random keys in torch, and by torch-quiver."""
    found: dict[str, Any] = {}
    seeds = bench.seeds(8, bench.large)
    for name, baseline in (("products, prefix sums, search", by_products), ("torch, sorted keys", by_sorting), ("torch-quiver", quiver)):
        try:
            work = baseline(bench.large, [seeds.part(j) for j in range(len(seeds))], FANOUTS)
            edges, seconds = work(), bench.median(work, bench.waited)
            found[name] = {"edges": edges, "seconds": seconds, "edges_per_second": edges / seconds["median"]}
        except Exception as error:  # of a library that is missing, or was built without CUDA
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
            ask = ["sample", f"{folder}/g", "--minibatches", "8", "--bulk-size", "2", "--backend", bench.ranks_draw_on]
            subprocess.run([*started, *ask, *placed, "--json", str(written)], check=True, timeout=120, stdout=subprocess.DEVNULL)
            found[str(ranks)] = json.loads(written.read_text())["digest"]
    return {"digests": found, "alike": len(set(found.values())) == 1}


def training(bench: Bench) -> dict[str, Any]:
    """Time an epoch of a three-layer GraphSAGE at each precision, with the share spent waiting for samples and for features.

    A settled run waits at the end of each phase, for the seconds of phases. The first epoch is a warm-up; nothing is evaluated.
    """
    from bulksample.methods.config import TrainConfig
    from bulksample.methods.run import make_trainer

    sizes, rng, found = bench.sizes, np.random.default_rng(1), {}
    n, train = bench.large.shape[0], np.zeros(bench.large.shape[0], bool)
    train[rng.permutation(n)[: sizes.minibatches * sizes.batch]] = True
    x, labels = rng.standard_normal((n, sizes.features), np.float32), rng.integers(0, 47, n)
    graph = Graph(bench.large, 1.0, x, labels, 47, {"train": train}, {}, "like products")
    for precision, settled in (("fp32", False), ("tf32", False), ("bf16", False), ("fp32", True)):
        place = bench.place(precision)
        place.synchronous = settled
        config = TrainConfig.of(fanouts=FANOUTS, hidden=sizes.hidden, batch_size=sizes.batch, epochs=3, quiet=True)
        trainer = make_trainer(config, graph, compute=place)
        trainer.method.evaluate = lambda trainer: {}
        report = trainer.run()
        told = {"seconds": trainer.epoch_seconds[1:], "steps": report["steps"] // 3, "loss": report["train_loss"]}
        if settled:
            told["phases_per_epoch"] = {phase: seconds / 3 for phase, seconds in report["phases"].items()}
        else:
            told |= {key: report[key] for key in ("waiting_share", "features_on", "bulk_size")}
        found[f"{precision}, settled" if settled else precision] = told
    return found


SECTIONS = {
    "digests": digests, "sampling": sampling, "numbering": numbering, "copying": copying,
    "training": training, "relations": relations, "baselines": baselines, "layers": layers, "sharing": sharing, "sums": sums,
    **{name: partial(sampled, peer=peer, fanouts=FANOUTS) for name, peer in PEERS.items()},
}  # fmt: skip


def measure(
    bench: Bench, seconds: float, names: tuple[str, ...] = tuple(SECTIONS), tell: Callable[[dict[str, Any]], None] = lambda found: None
) -> dict[str, Any]:
    """Run sections until the time is up; a failure is a result. `tell` is called with the results so far after each."""
    began, found = time.perf_counter(), {}
    for name in names:
        spent = time.perf_counter() - began
        if spent > seconds:
            found[name] = f"left out: {spent:.0f} of {seconds:.0f} seconds were spent"
            continue
        try:
            with bench.device.phase(name):  # one stream for all that a section puts, makes and times
                found[name] = SECTIONS[name](bench)
        except Exception as error:  # of a driver, a library or ours: the other sections still count
            found[name] = f"failed: {type(error).__name__}: {error}"
        print(f"{name}: {found[name]}", flush=True)
        tell(found)
    return found


def like_products(n: int, entries: int, seed: int = 1) -> CSR:
    """Make a directed graph of the size of ogbn-products, with skewed degrees and skewed columns."""
    rng = np.random.default_rng(seed)
    degrees = np.minimum(rng.lognormal(0, 1.1, n), 300)
    degrees = np.maximum(degrees * (entries / degrees.sum()), 1).astype(np.int64)
    keys = np.repeat(np.arange(n), degrees)
    keys *= n
    keys += (n * rng.random(len(keys)) ** 1.5).astype(np.int64)
    keys.sort()
    keys = keys[np.concatenate([[True], np.diff(keys) > 0])]
    rows, columns = np.divmod(keys, n)
    return CSR(np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]), columns.astype(np.int32), None, (n, n))


def kept(folder: Path | None, name: str, make: Callable[[], CSR]) -> CSR:
    """Load a graph from a folder, or make it and keep it there."""
    if folder is None:
        return make()
    file = folder / f"{name}.npz"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        matrix = make()
        np.savez(file.with_suffix(".part.npz"), indptr=matrix.indptr, indices=matrix.indices)
        file.with_suffix(".part.npz").replace(file)
    with np.load(file) as parts:
        n = len(parts["indptr"]) - 1
        return CSR(parts["indptr"], parts["indices"], None, (n, n))


def earlier(file: Path) -> dict[str, Any]:
    """Read the results of earlier runs; none if the file is missing, or damaged, which is said."""
    if not file.exists():
        return {}
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        print(f"{file} cannot be read, and is written anew: {type(error).__name__}: {error}", flush=True)
        return {}


def both_graphs(folder: Path | None, sizes: Sizes = Sizes()) -> tuple[CSR, CSR]:
    """Load or make the graph like ogbn-products and the R-MAT graph."""
    scale, edges = sizes.skewed
    skewed = kept(folder, "rmat", lambda: rmat(scale, edges=edges, seed=1, backend=backends.make("native")).adjacency)
    return kept(folder, "like_products", lambda: like_products(sizes.vertices, sizes.entries)), skewed


def on_card(graphs: Path | None) -> tuple[Bench, str]:
    """Return the bench of this machine's device, and the name of its card."""
    import cupy

    engine = backends.make("cuda")

    def seconds_of(work: Callable[[], Any]) -> float:
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return cupy.cuda.get_elapsed_time(start, stop) / 1e3

    def waited(work: Callable[[], Any]) -> float:
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        return time.perf_counter() - began

    def place(precision: str) -> Any:
        from bulksample.training.cuda.compute import CudaComputeContext, open_cuda

        return CudaComputeContext(open_cuda(), precision)

    large, skewed = both_graphs(graphs)
    card = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return Bench(engine, seconds_of, waited, large, skewed, place, backends.make("native")), card


def rehearsed() -> tuple[Bench, str]:
    """Return the bench of an emulated device, at tiny sizes, for tests of this script."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from emulation.card import emulated_place
    from emulation.host import emulated

    def seconds_of(work: Callable[[], Any]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    scale, edges = TINY.skewed
    large, skewed = like_products(TINY.vertices, TINY.entries), rmat(scale, edges=edges, seed=1).adjacency
    return Bench(emulated(), seconds_of, seconds_of, large, skewed, emulated_place, backends.make(), "auto", 2, TINY), "none: emulated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=400, help="Begin no section after so many seconds.")
    parser.add_argument("--only", choices=SECTIONS, help="Run one section, and add it to what the file of --json holds.")
    parser.add_argument("--graphs", type=Path, help="Folder in which the graphs are kept between runs.")
    parser.add_argument("--check-only", action="store_true", help="Rehearse on an emulated device; fails where a section fails.")
    parser.add_argument("--json", type=Path, help="File for the results.")
    parser.add_argument("--make-graphs", action="store_true", help="Make the graphs of --graphs, and no more; needs no device.")
    options = parser.parse_args()
    if options.make_graphs:
        both_graphs(options.graphs)
        return
    bench, card = rehearsed() if options.check_only else on_card(options.graphs)
    fetched = bench.device.launch.l2_fetch_bytes
    known = {"card": card, "l2_fetch_bytes": fetched, "machine": machine(), "fanouts": FANOUTS, "batch_size": bench.sizes.batch}
    if options.only and options.json:
        known = earlier(options.json) | known

    def tell(found: dict[str, Any]) -> None:
        if options.json:
            part = options.json.with_suffix(".part")
            part.write_text(json.dumps(known | found | {"goals": against(known | found)}, indent=1))
            part.replace(options.json)

    found = measure(bench, options.seconds, (options.only,) if options.only else tuple(SECTIONS), tell)
    report(known | found | {"goals": against(known | found)}, options.json)
    failed = [name for name, result in found.items() if isinstance(result, str)]
    differ = [name for name in ("digests", "relations", "sharing") if isinstance(found.get(name), dict) and not found[name]["alike"]]
    if failed or differ:
        sys.exit(f"failed: {failed}; samples differ in: {differ}")


if __name__ == "__main__":
    main()
