"""Compare node-wise draws: uniform, with replacement, weighted, LABOR; beside the cost of the random words that keys need.

Weighted draws and LABOR make a block of random words for each neighbor of every row with more than s neighbors (or with weights).
The table shows the time of as many blocks at the rate of `Backend.random_words` on one thread, measured in the same rounds. It keeps
four words of each block, where a key needs two. Times are wall-clock and CPU milliseconds per mini-batch. GRAPH.npz has `indptr` and
`indices`. Vertices and edges are the distinct input vertices and the edges of all blocks of a mini-batch. Weights are integers from
1 to 1000.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from graphs import load, seeds
from harness import Numbers, compare, some_of, summary

from bulksample import CSR, LocalAdjacency, MiniBatch, Selection, Stream, backends, samplers
from bulksample.sparse import fixed_point

BLOCKS = 2**14  # blocks of random words per call: they stay in the cache
LAWS: dict[str, tuple[str, dict[str, Any], bool]] = {  # sampler, options, True if the graph has weights
    "uniform": ("sage", {}, False), "with replacement": ("sage", {"replace": True}, False), "by weight": ("sage", {"weighted": True}, True),
    "labor": ("labor", {}, False), "labor by weight": ("labor", {}, True),
}  # fmt: skip


def candidates(bulk: list[MiniBatch], matrix: CSR, fanouts: Sequence[int], keyed: bool) -> int:
    """Count the neighbors that need a key."""
    found = 0
    for minibatch in bulk if keyed else []:
        for block, s in zip(reversed(minibatch.blocks), fanouts, strict=True):
            degrees = matrix.degrees[minibatch.vertices[: block.num_destinations]]
            found += int(degrees.sum() if matrix.values is not None else degrees[degrees > s].sum())
    return found


class Job:
    """One law, sampled repeatedly."""

    def __init__(self, law: str, matrix: CSR, fanouts: Sequence[int], batches: list[np.ndarray], threads: int) -> None:
        name, settings, weighted = LAWS[law]
        self._adjacency = LocalAdjacency(matrix if weighted else matrix.with_values(None), backends.make("native", threads))
        self._sampler, self._chosen = samplers.make(name, fanouts, **settings), Selection.of(batches, matrix.shape[0])
        bulk = self._sampler.sample_bulk(self._adjacency, self._chosen, Stream(1))
        self.vertices = sum(len(minibatch.vertices) for minibatch in bulk) / len(batches)
        self.edges = sum(minibatch.num_edges for minibatch in bulk) / len(batches)
        self.candidates = candidates(bulk, self._adjacency.matrix, fanouts, name == "labor" or weighted) / len(batches)
        self.processor: list[float] = []

    def __call__(self) -> float:
        began, processor = time.perf_counter(), time.process_time()
        self._sampler.sample_bulk(self._adjacency, self._chosen, Stream(1))
        self.processor.append(1e3 * (time.process_time() - processor) / len(self._chosen))
        return 1e3 * (time.perf_counter() - began) / len(self._chosen)


def of_file(path: Path) -> CSR:
    """Load the adjacency of a graph: int64 row pointers, int32 columns, ones."""
    with np.load(path, allow_pickle=False) as file:
        n = len(file["indptr"]) - 1
        return CSR(file["indptr"], file["indices"], None, (n, n))


def nanoseconds_a_block() -> float:
    """Measure the CPU time of a block of random words."""
    backend, repeats = backends.make("native", 1), 64
    began = time.process_time()
    for i in range(repeats):
        backend.random_words(1, 0, i * BLOCKS, BLOCKS)
    return 1e9 * (time.process_time() - began) / (BLOCKS * repeats)


def laws(
    graph: Literal["rmat18", "rmat20", "products"] = "rmat20",
    file: Annotated[Path | None, "a graph with indptr and indices. Default: --graph is generated"] = None,
    laws: some_of(*LAWS) = tuple(LAWS), fanouts: Numbers = (15, 10, 5), batch_size: int = 1024, minibatches: int = 4, rounds: int = 5,
    threads: int = 1,
) -> dict[str, Any]:  # fmt: skip
    matrix = of_file(file) if file else load(graph)
    weights, _ = fixed_point(np.random.default_rng(0).integers(1, 1001, matrix.nnz), matrix.shape[0])
    batches = seeds(matrix, minibatches, batch_size)
    jobs = {law: Job(law, matrix.with_values(weights), fanouts, batches, threads) for law in laws}
    turns: dict[str, Callable[[], float]] = {**jobs, "block": nanoseconds_a_block}
    found = compare(turns, rounds)
    block, results = found.pop("block"), {}
    for law, milliseconds in found.items():
        job, processor = jobs[law], summary(jobs[law].processor[1:])
        results[law] = {
            "milliseconds": milliseconds, "processor_milliseconds": processor, "vertices": job.vertices, "edges": job.edges,
            "candidates": job.candidates, "million_edges_per_processor_second": job.edges / processor["median"] / 1e3,
            "random_words_milliseconds": job.candidates * block["median"] / 1e6,
            "nanoseconds_a_candidate": processor["median"] * 1e6 / job.candidates if job.candidates else None,
        }  # fmt: skip
    return {
        "graph": file.stem if file else graph, "vertices": matrix.shape[0], "edges": matrix.nnz, "threads": threads, "fanouts": fanouts,
        "batch_size": batch_size, "minibatches": minibatches, "rounds": rounds, "nanoseconds_a_block": block, "results": results,
    }  # fmt: skip
