"""Bulks on relations by every law and rule of time, for the back ends that take them in one pass."""

from dataclasses import replace

import numpy as np
from relations_zoo import COUNTS

from bulksample import Stream, samplers
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.local_adjacency import LocalAdjacency
from bulksample.samplers.time_rule import TimeRule

LAWS = {
    "sage": {}, "full": {}, "labor": {}, "replace": {"replace": True}, "weighted": {"weighted": True},
    "weighted, replace": {"weighted": True, "replace": True},
}  # fmt: skip
TIMES = {
    "static": None, "trees": None, "vertices": TimeRule(), "edges": TimeRule(), "window": TimeRule(window=9, strict=True),
    "last": TimeRule(strategy="last"), "last in a window": TimeRule(strategy="last", window=15), "moving": TimeRule(moving=True),
}  # fmt: skip
CASES = [(rule, name) for rule in TIMES if rule != "moving" for name in LAWS if "last" not in rule or name == "sage"]  # in one pass


def bulk(graph, timed, k=4):
    """Mini-batches of seeds of three types that repeat; one is empty, one has a single seed."""
    rng = np.random.default_rng(2)
    lists = {name: rng.integers(0, COUNTS[name], 40) for name in ("paper", "author", "venue")}
    times = {name: rng.integers(-2, 52, 40) for name in lists} if timed else None
    listed = SeedList.of(graph, lists, times)
    chosen = [rng.integers(0, 120, 8) for _ in range(k)]
    chosen[1], chosen[2] = chosen[1][:0], chosen[2][:1]
    return listed.select(chosen, np.arange(k) * 11 + 3)


def drawn(graph, sampler, seeds, engine, stream=2**63 + 5):
    """The digests of the mini-batches of a bulk, and the entries of their edges."""
    bulk = sampler.sample_bulk(LocalAdjacency(graph, engine, by_type=True), seeds, Stream(stream), 3)
    return [(m.digest(), [{key: entries.tolist() for key, entries in of_layer.items()} for of_layer in m.entries]) for m in bulk]


def kind_of_times(rule):
    """The times that a graph needs for a rule."""
    return {"static": None, "trees": None, "vertices": "vertices"}.get(rule, "edges")


def sampler_of(rule, name, fanouts, of_relation=None, frontier="all"):
    """The sampler of a rule and a law."""
    base = samplers.make(name if name in ("full", "labor") else "sage", fanouts, frontier=frontier, **LAWS[name])
    return replace(base, of_relations=of_relation, time=TIMES[rule], disjoint={"static": False, "trees": True}.get(rule), stride=15)


def hubs(rule):
    """A graph with rows of many thousand neighbors, and two mini-batches of seeds."""
    rng = np.random.default_rng(4)
    node = VertexType("node", 3000, times=rng.integers(-(2**62), 2**62, 3000) if rule != "static" else None)
    u, v = rng.integers(0, 3000, 60_000), (3000 * rng.random(60_000) ** 6).astype(int)
    graph = Graph.of((node,), (relation_from_edges(node, "to", node, u, v), relation_from_edges(node, "of", node, v, u)))
    seeds, times = rng.integers(0, 3000, 300), rng.integers(-(2**62), 2**62, 300)
    listed = SeedList.of(graph, {"node": seeds}, None if rule == "static" else times)
    return graph, listed.select([np.arange(100), np.arange(0, 300, 20)])
