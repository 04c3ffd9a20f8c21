"""Compare the peak memory of a loader with the prediction of ``bulk_size="auto"``, on 14 pairs of graph and fanouts.

Each pair runs in a process of its own. It reads the graph into memory, touches the arrays of the adjacency, and lets a loader choose k
for the budget (MiB) and yield five bulks. The peak is the growth of the resident set since the loader was created (VmHWM of Linux, reset
there). It should be within 20 % of the loader's ``predicted_bytes``.
"""

from __future__ import annotations

import gc
import json
import subprocess
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from graphs import load
from harness import call

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.loading.loader import BulkLoader

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
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def measure(pair: Pair, threads: int, budget: int) -> dict[str, Any]:
    """Measure one pair in this process."""
    mapped = load(pair.graph)
    matrix = CSR(np.array(mapped.indptr), np.array(mapped.indices), None, mapped.shape)
    adjacency, sampler = LocalAdjacency(matrix, backends.make("native", threads)), samplers.make(pair.sampler, pair.fanouts)
    candidates = np.flatnonzero(matrix.degrees > 0)[: pair.batch_size * 32 * BULKS]
    sampler.sample_bulk(adjacency, Selection.of([candidates[:1]], adjacency.n), Stream(0))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # reset VmHWM
    before = resident("VmRSS")
    loader = BulkLoader(adjacency, sampler, candidates, batch_size=pair.batch_size, bulk_size="auto", seed=1, memory_budget=budget << 20)
    held = [minibatch.nbytes() for minibatch, _ in zip(loader, range(BULKS * loader.bulk_size), strict=False) if minibatch is not None]
    peak = resident("VmHWM") - before
    return {
        **pair._asdict(), "k": loader.bulk_size, "bulk_mib": loader.bulk_size * sum(held) / len(held) / 2**20,
        "predicted_mib": loader.predicted_bytes / 2**20, "peak_mib": peak / 2**20, "ratio": peak / loader.predicted_bytes,
    }  # fmt: skip


def alone(index: str, threads: str, budget: str) -> None:
    """Measure one pair, and print what was found."""
    print(json.dumps(measure(PAIRS[int(index)], int(threads), int(budget))))


def memory(
    threads: int = 2, budget: Annotated[int, "MiB"] = 256, only: Annotated[str | None, "only the pairs of this graph"] = None
) -> dict[str, Any]:
    print("| graph | sampler, fanouts | b | k | bulk, MiB | predicted | peak | ratio |\n|---|---|--:|--:|--:|--:|--:|--:|")
    rows = []
    for i, pair in enumerate(PAIRS):
        if only in (None, pair.graph):
            done = subprocess.run(call(alone, i, threads, budget), check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout))
            print(LINE.format(**rows[-1], asked=",".join(map(str, pair.fanouts))), flush=True)
    return {"threads": threads, "budget_mib": budget, "bulks": BULKS, "pairs": rows}
