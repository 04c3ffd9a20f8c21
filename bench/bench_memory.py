"""Compare the peak memory of a loader with the prediction of ``bulk_size="auto"``, on 14 pairs of graph and fanouts.

    python bench/bench_memory.py [--threads 2] [--budget 256] [--only rmat18] [--json FILE]

Each pair runs in a process of its own. It reads the graph into memory, touches the arrays of the adjacency, and lets a loader choose k
for the budget (MiB) and yield five bulks. The peak is the growth of the resident set since the loader was created (VmHWM of Linux, reset
there). It should be within 20 % of the loader's ``predicted_bytes``.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from graphs import load
from harness import machine, report

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.loader import BulkLoader

BULKS = 5
LINE = "| {graph} | {sampler} {asked} | {batch_size} | {k} | {bulk_mib:.1f} | {predicted_mib:.1f} | {peak_mib:.1f} | {ratio:.2f} |"


class Pair(NamedTuple):
    graph: str
    fanouts: tuple[int, ...]
    batch_size: int
    sampler: str = "sage"


PAIRS = [
    Pair("rmat18", (15, 10, 5), 1024), Pair("rmat18", (25, 10), 1024), Pair("rmat18", (-1, 10), 512), Pair("rmat18", (30, 20, 10), 512),
    Pair("rmat18", (10, 10), 256), Pair("rmat20", (15, 10, 5), 1024), Pair("rmat20", (15, 10), 1024), Pair("rmat20", (5, 5), 512),
    Pair("rmat20", (50,), 1024), Pair("products", (15, 10, 5), 1024), Pair("products", (10, 10), 512), Pair("products", (5, 5, 5), 1024),
    Pair("rmat18", (512, 512), 512, "ladies"), Pair("rmat18", (512, 512), 512, "fastgcn"),
]  # fmt: skip


def resident(what: str) -> int:
    """Read a memory figure of this process, by its name in Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def measure(pair: Pair, threads: int, budget: int) -> dict[str, Any]:
    """Measure one pair in this process."""
    mapped = load(pair.graph)
    matrix = CSR(np.array(mapped.indptr), np.array(mapped.indices), None, mapped.shape)
    adjacency, sampler = LocalAdjacency(matrix, backends.make("native", threads)), samplers.make(pair.sampler, pair.fanouts)
    candidates = np.flatnonzero(matrix.degrees > 0)[: pair.batch_size * 32 * BULKS]
    sampler.sample_bulk(adjacency, Selection.of([candidates[:1]], adjacency.n), Stream(0))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # reset VmHWM
    before = resident("VmRSS")
    loader = BulkLoader(adjacency, sampler, candidates, batch_size=pair.batch_size, bulk_size="auto", seed=1, memory_budget=budget << 20)
    held = [minibatch.nbytes() for minibatch, _ in zip(loader, range(BULKS * loader.bulk_size), strict=False) if minibatch is not None]
    peak = resident("VmHWM") - before
    return {
        **pair._asdict(), "k": loader.bulk_size, "bulk_mib": loader.bulk_size * sum(held) / len(held) / 2**20,
        "predicted_mib": loader.predicted_bytes / 2**20, "peak_mib": peak / 2**20, "ratio": peak / loader.predicted_bytes,
    }  # fmt: skip


def alone(index: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one pair in a process of its own."""
    command = [sys.executable, __file__, "--threads", str(options.threads), "--budget", str(options.budget), "--pair", str(index)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--only", help="only the pairs of this graph")
    parser.add_argument("--pair", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.pair is not None:
        print(json.dumps(measure(PAIRS[options.pair], options.threads, options.budget)))
        return
    print("| graph | sampler, fanouts | b | k | bulk, MiB | predicted | peak | ratio |\n|---|---|--:|--:|--:|--:|--:|--:|")
    rows = []
    for i, pair in enumerate(PAIRS):
        if options.only in (None, pair.graph):
            rows.append(alone(i, options))
            print(LINE.format(**rows[-1], asked=",".join(map(str, pair.fanouts))), flush=True)
    report({"machine": machine(), "threads": options.threads, "budget_mib": options.budget, "bulks": BULKS, "pairs": rows}, options.json)


if __name__ == "__main__":
    main()
