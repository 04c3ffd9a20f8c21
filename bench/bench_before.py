"""Measure sampling beside another checkout of this repository, such as the commit before a change: plain graphs, and relations.

    git worktree add ../before COMMIT; (cd ../before; python setup.py build_ext --inplace)
    python bench/run.py before ../before

Each checkout samples the same epochs in a process of its own, in turn. Their digests must be equal. A pair of
processes varies by up to 5 %, whatever the rounds, since memory lies elsewhere in each: run it several times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from harness import Numbers, compare

ROOT = Path(__file__).resolve().parent.parent
GRAPHS = ("dcsbm", "rmat", "reddit", "one relation", "relations")
_WORKER = """
import inspect, sys, time
import numpy as np
import bulksample as bs
from bulksample.data.dcsbm import dcsbm
from bulksample.data.rmat import rmat

print(bs.__path__[0], flush=True)
COUNTS = {"paper": 100_000, "author": 60_000, "institute": 2_000, "field": 10_000}
ENDS = [("paper", "cites", "paper", 12), ("author", "writes", "paper", 3), ("paper", "written_by", "author", 3),
        ("institute", "employs", "author", 1), ("field", "topic_of", "paper", 5), ("paper", "topic", "field", 5)]

def typed(ends):
    rng, types = np.random.default_rng(0), {name: bs.VertexType(name, count) for name, count in COUNTS.items()}
    relations = []
    for source, name, destination, edges in ends:
        m = edges * 100_000
        sources = (COUNTS[source] * rng.random(m) ** 2).astype(np.int64)
        relations.append(bs.relation_from_edges(types[source], name, types[destination], sources, rng.integers(0, COUNTS[destination], m)))
    used = {end for source, _, destination, _ in ends for end in (source, destination)}
    return (getattr(bs.Graph, "of", None) or bs.HeteroGraph)([kind for name, kind in types.items() if name in used], relations, "typed")

name, threads = sys.argv[1], int(sys.argv[2])
graph = {"dcsbm": lambda: dcsbm(100_000, 20, "products"), "rmat": lambda: rmat(17), "reddit": lambda: dcsbm(20_000, 200, "reddit"),
         "one relation": lambda: typed(ENDS[:1]), "relations": lambda: typed(ENDS)}[name]()
seeds = np.arange(32 * 1024) % 20_000
options = {"batch_size": 1024, "bulk_size": 4, "seed": 1, "threads": threads, "prefetch": False}
if "out" in inspect.signature(bs.Loader.__init__).parameters:  # earlier loaders give arrays
    options["out"] = "numpy"
fanouts = (10, 5, 3) if name == "relations" else (15, 10, 5)
made = bs.Loader if isinstance(graph, bs.Graph) else bs.HeteroLoader
loader = made(graph, "sage", fanouts, seeds=("paper", seeds) if "relation" in name else seeds, **options)
print(bs.digest(batch.minibatch for batch in loader), flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    for batch in loader:
        pass
    print(time.perf_counter() - start, flush=True)
"""


def before(
    checkout: Path, graphs: Annotated[str, "joined by commas"] = ",".join(GRAPHS), threads: Numbers = (1, 2), rounds: int = 31
) -> dict[str, Any]:
    """Return seconds of an epoch of this checkout and of another, and the ratio of their medians: below 1, this one is faster."""
    result: dict[str, Any] = {}
    for name in graphs.split(","):
        for count in threads:
            workers = {which: _worker(path, name, count) for which, path in (("before", checkout), ("now", ROOT))}
            digests = {which: _line(worker) for which, worker in workers.items()}
            if digests["before"] != digests["now"]:
                raise SystemExit(f"{name}: the checkouts draw other mini-batches, so their times mean nothing: {digests}")
            found: dict[str, Any] = compare({which: _epoch(worker) for which, worker in workers.items()}, rounds)
            for worker in workers.values():
                worker.communicate()
            result[f"{name}, threads {count}"] = found | {"ratio": found["now"]["median"] / found["before"]["median"]}
    return result


def _worker(checkout: Path, name: str, threads: int) -> subprocess.Popen[str]:
    """Start the process of a checkout, which samples an epoch for each line that it gets."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, "-P", "-c", _WORKER, name, str(threads)]  # -P: the package of the working directory comes in neither
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    if (found := Path(_line(worker))) != checkout.resolve() / "bulksample":
        worker.kill()
        raise SystemExit(f"{checkout} has no package bulksample: {found} would be measured in its place")
    return worker


def _epoch(worker: subprocess.Popen[str]) -> Callable[[], float]:
    def seconds() -> float:
        assert worker.stdin is not None
        print(file=worker.stdin, flush=True)
        return float(_line(worker))

    return seconds


def _line(worker: subprocess.Popen[str]) -> str:
    """Return the next line that a worker prints; exit if it has ended."""
    assert worker.stdout is not None
    if not (line := worker.stdout.readline()):
        raise SystemExit(f"a checkout ended with status {worker.wait()}; its errors are above")
    return line.strip()
