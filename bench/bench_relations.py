"""Measure sampled edges per second on relations, with and without time, beside the homogeneous pass on the union of all relations.

The graph is like IGBH: four types (paper 1 M, author 600 k, institute 20 k, field 100 k) and seven relations of 29 M edges, times
`--share`; sources bend towards 0, destinations are uniform. All contestants draw for the same seeds, 1024 papers a mini-batch, in bulks:

    relations      Graph, the fanouts of each relation
    union          the same edges as one relation of one type, with as many draws per row as all relations together
    trees          relations, each seed a tree of its own
    uniform, window, last    trees in time, with times of vertices; the cutoff is beyond 75 % of the times
    dgl                      with --python, a Python that has DGL: its NeighborSampler, int32, not fused, a mini-batch on each thread

A figure is millions of edges per second of processor time on one thread, else per second of the wall clock. Compare ratios. The time
of a row, of one vertex in one relation, is printed as well: a narrow window draws few edges of as many rows.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from harness import Numbers, check_edges, compare
from peers.contest import Worker, peer

from bulksample import Graph, Stream, TimeRule, VertexType, backends, relation_from_edges, samplers
from bulksample.graph.minibatch import MiniBatch
from bulksample.graph.seed_list import SeedList
from bulksample.local_adjacency import LocalAdjacency, union_of
from bulksample.samplers import NodeWise

TYPES = {"paper": 1_000_000, "author": 600_000, "institute": 20_000, "field": 100_000}
ENDS = [
    ("paper", "cites", "paper", 12_000_000), ("author", "writes", "paper", 3_000_000), ("paper", "written_by", "author", 3_000_000),
    ("institute", "employs", "author", 600_000), ("author", "affiliated_to", "institute", 600_000),
    ("field", "topic_of", "paper", 5_000_000), ("paper", "topic", "field", 5_000_000),
]  # fmt: skip
SPAN = 1_000_000  # units of time


def igbh(share: float) -> Graph:
    """Make the graph at a share of its size."""
    rng = np.random.default_rng(0)
    counts = {name: max(1, int(count * share)) for name, count in TYPES.items()}
    types = {name: VertexType(name, count, times=rng.integers(0, SPAN, count)) for name, count in counts.items()}
    relations = []
    for source, name, destination, edges in ENDS:
        m = int(edges * share)
        u = (counts[source] * rng.random(m) ** 2).astype(np.int64)
        relations.append(relation_from_edges(types[source], name, types[destination], u, rng.integers(0, counts[destination], m)))
    return Graph.of(tuple(types.values()), tuple(relations), "igbh").validate()


def seeds_of(graph: Graph, k: int, b: int) -> np.ndarray:
    """Return the seeds of k mini-batches: int64, shape (k b,)."""
    return np.random.default_rng(1).integers(0, min(graph.types[0].count, TYPES["paper"]), k * b)


class Contestant:
    """A sampler with a bulk of k mini-batches of b seeds."""

    def __init__(self, graph: Graph, sampler: NodeWise, threads: int, k: int, b: int) -> None:
        self.adjacency, self.sampler = LocalAdjacency(graph, backends.make("native", threads), by_type=True), sampler
        listed = SeedList.of(graph, {graph.types[0].name: seeds_of(graph, k, b)}, np.full(k * b, 3 * SPAN // 4))
        self.seeds, self.clock = listed.select(np.split(np.arange(k * b), k)), time.process_time if threads == 1 else time.perf_counter

    def drawn(self) -> list[MiniBatch]:
        """Sample the bulk."""
        return self.sampler.sample_bulk(self.adjacency, self.seeds, Stream(1))

    def __call__(self) -> float:
        """Sample the bulk and return millions of edges per second."""
        began = self.clock()
        drawn = self.drawn()
        return sum(m.num_edges for m in drawn) / (self.clock() - began) / 1e6

    def size(self) -> dict[str, int]:
        """Return the edges of the bulk, and the rows of relations that they were drawn from."""
        drawn = self.drawn()
        rows = sum(block.num_destinations for m in drawn for layer in m.blocks for block in layer.values())
        return {"edges": sum(m.num_edges for m in drawn), "rows": rows}


def dgl_worker(graph: Graph, seeds: np.ndarray, threads: int, python: str, fanouts: tuple[int, ...], folder: Path) -> Worker:
    """Start DGL on the same relations and seeds."""
    for place, relation in enumerate(graph.relations):
        np.save(folder / f"{place}.indptr.npy", relation.adjacency.indptr)
        np.save(folder / f"{place}.indices.npy", relation.adjacency.indices)
    np.save(folder / "seeds.npy", seeds)
    task = {
        "what": "relations", "threads": threads, "fanouts": fanouts, "folder": str(folder), "seeds": str(folder / "seeds.npy"),
        "relations": [relation.key for relation in graph.relations], "counts": {kind.name: kind.count for kind in graph.types},
        "seed_type": graph.types[0].name,
    }  # fmt: skip
    (folder / "task.json").write_text(json.dumps(task))
    worker = peer(python, "dgl_relations", folder / "task.json", 1)
    if worker.left_out is not None:
        raise SystemExit(f"DGL takes no part: {worker.left_out}")
    return worker


def peer_rounds(worker: Worker, threads: int, edges: int) -> Callable[[], float]:
    """Return a function that has the peer sample the bulk once; it must draw as many edges as we do, within 2 %."""

    def run() -> float:
        turn = worker.round()
        check_edges(worker.name, turn["edges"], edges)
        return float(turn["edges"] / turn["processor" if threads == 1 else "seconds"] / 1e6)

    return run


def relations(
    share: Annotated[float, "size of the graph, relative to IGBH's"] = 0.1, fanouts: Numbers = (15, 10), threads: int = 1, rounds: int = 7,
    minibatches: int = 4, batch_size: int = 1024, python: Annotated[str | None, "a Python with DGL"] = None,
) -> dict[str, Any]:  # fmt: skip
    graph, k, b = igbh(share), minibatches, batch_size
    union = Graph(union_of(graph).with_values(None))
    sage = samplers.make("sage", fanouts)
    rules = {"uniform": TimeRule(), "window": TimeRule(window=SPAN // 4), "last": TimeRule(strategy="last")}
    law = {"relations": sage, "trees": replace(sage, disjoint=True, stride=b)}
    law |= {name: replace(sage, time=rule, stride=b) for name, rule in rules.items()}
    own = {name: Contestant(graph, sampler, threads, k, b) for name, sampler in law.items()}
    wide = samplers.make("sage", tuple(3 * s for s in fanouts))  # a paper ends three relations
    own["union"] = Contestant(union, wide, threads, k, b)
    runs: dict[str, Callable[[], float]] = {**own}
    bulks = {name: one.size() for name, one in own.items()}
    with tempfile.TemporaryDirectory() as folder:
        worker = dgl_worker(graph, seeds_of(graph, k, b).reshape(k, b), threads, python, fanouts, Path(folder)) if python else None
        if worker is not None:
            runs["dgl"] = peer_rounds(worker, threads, bulks["relations"]["edges"])
        medians = compare(runs, rounds)
        if worker is not None:
            worker.end()
    return {
        "vertices": graph.n, "edges": sum(relation.edges for relation in graph.relations), "fanouts": fanouts, "threads": threads,
        "bulks": bulks, "million_edges_per_second": medians,
        "to_relations": {name: round(medians[name]["median"] / medians["relations"]["median"], 3) for name in runs},
        "to_trees": {name: round(medians[name]["median"] / medians["trees"]["median"], 3) for name in rules},
        "nanoseconds_per_row": {
            name: round(1e3 * bulk["edges"] / medians[name]["median"] / bulk["rows"], 1) for name, bulk in bulks.items()
        },
    }  # fmt: skip
