"""Measure how the cost of sampling grows: with edges, mini-batches per call, fanout, and skew of degrees.

GraphSAGE with the frontier rule `all`, batch size 1024, fanouts 15,10,5 and 8 mini-batches per call, unless the series varies them.
Graphs are R-MAT graphs with about 30 entries per row and the products-like block model, kept on disk. The points of a series run in
turn, one round of each. In the series `bulk`, "all" means the mini-batches of an epoch over 8 % of the vertices, the training share of
ogbn-products. `alone` samples one mini-batch per call. A measured series replaces itself in FILE and keeps the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphs import load, seeds
from harness import Numbers, alternate, machine, some_of, summary

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.report.drawing import new_figure

BATCH_SIZE, TRAINED = 1024, 0.08


class Point(NamedTuple):
    """A setting to sample; `at` is its place on the axis of the series."""

    at: float | str
    graph: str = "rmat20"
    fanouts: tuple[int, ...] = (15, 10, 5)
    together: int = 8  # mini-batches per call; 0: all


SERIES = {
    "edges": [Point(name, name) for name in ("rmat15", "rmat18-10m", "rmat20", "rmat22", "products")],
    "bulk": [Point(k or "all", together=k) for k in (1, 8, 32, 0)],
    "alone": [Point(name, name, together=1) for name in ("rmat18", "rmat20", "products")],
    "fanout": [Point(s, fanouts=(s, s)) for s in (5, 10, 15, 20, 30, 40, 50)],
    "skew": [Point(a, name) for a, name in ((0.25, "rmat20-uniform"), (0.45, "rmat20-a45"), (0.57, "rmat20"), (0.65, "rmat20-a65"))],
}
AXES = {
    "edges": "edges of the graph", "bulk": "minibatches a call", "alone": "one minibatch a call", "fanout": "fanout of both hops",
    "skew": "a of R-MAT (0.25: uniform)",
}  # fmt: skip


class Job:
    """A point with a number of threads, sampled repeatedly; yields milliseconds per mini-batch."""

    def __init__(self, point: Point, threads: int) -> None:
        matrix = load(point.graph)
        together = point.together or int(TRAINED * matrix.shape[0]) // BATCH_SIZE
        batches = seeds(matrix, max(together, 8), BATCH_SIZE)
        self._adjacency = LocalAdjacency(matrix, backends.make("native", threads))
        self._sampler = samplers.make("sage", point.fanouts)
        chosen = Selection.of(batches, matrix.shape[0])
        self._calls = [chosen.parts(first, first + together) for first in range(0, len(batches), together)]
        self.processor: list[float] = []  # the same in CPU seconds
        self.facts = {
            "at": point.at, "graph": point.graph, "vertices": matrix.shape[0], "edges": matrix.nnz, "fanouts": point.fanouts,
            "together": together, "threads": threads, "largest_degree": int(matrix.degrees.max()),
        }  # fmt: skip

    def __call__(self) -> float:
        drawn, minibatches = 0, sum(len(call) for call in self._calls)
        began, processor = time.perf_counter(), time.process_time()
        for call in self._calls:
            drawn += sum(minibatch.num_edges for minibatch in self._sampler.sample_bulk(self._adjacency, call, Stream(1)))
        seconds = time.perf_counter() - began
        self.processor.append(1e3 * (time.process_time() - processor) / minibatches)
        self.facts["edges_per_minibatch"] = drawn / minibatches
        return 1e3 * seconds / minibatches


def measure(points: list[Point], threads: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    jobs = {f"{point.at} {count}": Job(point, count) for point in points for count in threads}
    turns: dict[str, Callable[[], float]] = {**jobs}
    lines = []
    for name, milliseconds in alternate(turns, rounds).items():
        job, found = jobs[name], summary(milliseconds)
        each = job.facts["edges_per_minibatch"]
        rate = each / found["median"] / 1e3
        line = {**job.facts, "milliseconds": found, "processor_milliseconds": summary(job.processor[1:]), "million_edges_per_second": rate}
        told = f"{job.facts['at']}, {job.facts['threads']} threads: {found['median']:.2f} ms ({found['min']:.2f} to {found['max']:.2f})"
        print(f"{told}, {summary(job.processor[1:])['median']:.2f} of processors, {each:.0f} edges, {rate:.1f} M/s", flush=True)
        lines.append(line)
    return lines


def draw(series: dict[str, Any], path: Path) -> None:
    """Draw CPU nanoseconds per edge: the median, with bars from minimum to maximum."""
    with new_figure(len(series), (3.4, 3.0)) as (figure, every):
        for axes, (name, found) in zip(every, series.items(), strict=True):
            for threads in dict.fromkeys(line["threads"] for line in found["points"]):
                own = [line for line in found["points"] if line["threads"] == threads]
                at = [line["edges"] if name == "edges" else str(line["at"]) if name in ("bulk", "alone") else line["at"] for line in own]
                middle, low, high = (nanoseconds(own, which) for which in ("median", "min", "max"))
                bars = [[m - x for m, x in zip(middle, low, strict=True)], [x - m for m, x in zip(middle, high, strict=True)]]
                axes.errorbar(at, middle, bars, fmt="o-", label=f"threads: {threads}")
            axes.set(xlabel=AXES[name], ylim=(0, None))
            if name == "edges":
                axes.set_xscale("log")
        every[0].set_ylabel("processor nanoseconds an edge")
        every[0].legend()
        figure.savefig(path)


def nanoseconds(points: list[dict[str, Any]], which: str) -> list[float]:
    return [1e6 * line["processor_milliseconds"][which] / line["edges_per_minibatch"] for line in points]


def growth(
    series: some_of(*SERIES) = tuple(SERIES), threads: Numbers = (1, 2), rounds: int = 5, plot: Path | None = None,
    kept: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    found = kept or {}
    for name in series:
        print(f"\n{name}", flush=True)
        before = machine()
        found[name] = {"machine": before, "rounds": rounds, "batch_size": BATCH_SIZE, "points": measure(SERIES[name], threads, rounds)}
        yield found
    if plot:
        draw({name: found[name] for name in SERIES if name in found}, plot)
