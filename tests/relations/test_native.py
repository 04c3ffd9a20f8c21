"""The fused native pass draws what the definition draws, on any number of threads, in any bulk, and it is the pass that samplers take."""

import numpy as np
import pytest
from engines import engine
from relations_zoo import COUNTS, library

from bulksample import Stream, backends, samplers
from bulksample.relations.adjacency import RelationAdjacency
from bulksample.relations.from_edges import relation_from_edges
from bulksample.relations.graph import HeteroGraph, VertexType
from bulksample.relations.rule import TimeRule
from bulksample.relations.sampler import RelationSampler
from bulksample.relations.seeds import SeedList

LAWS = {
    "sage": {}, "full": {}, "labor": {}, "replace": {"replace": True}, "weighted": {"weighted": True},
    "weighted, replace": {"weighted": True, "replace": True},
}  # fmt: skip
TIMES = {
    "static": None, "trees": None, "vertices": TimeRule(), "edges": TimeRule(), "window": TimeRule(window=9, strict=True),
    "last": TimeRule(strategy="last"), "last in a window": TimeRule(strategy="last", window=15), "moving": TimeRule(moving=True),
}  # fmt: skip


def bulk(graph, timed, k=4):
    """Mini-batches of seeds of three types that repeat; one is empty, one has a single seed."""
    rng = np.random.default_rng(2)
    lists = {name: rng.integers(0, COUNTS[name], 40) for name in ("paper", "author", "venue")}
    times = {name: rng.integers(-2, 52, 40) for name in lists} if timed else None
    listed = SeedList.of(graph, lists, times)
    chosen = [rng.integers(0, 120, 8) for _ in range(k)]
    chosen[1], chosen[2] = chosen[1][:0], chosen[2][:1]
    return listed.select(chosen, np.arange(k) * 11 + 3)


def drawn(graph, sampler, seeds, engine):
    return [m.digest() for m in sampler.sample_bulk(RelationAdjacency(graph, engine), seeds, Stream(2**63 + 5), 3)]


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in TIMES for name in LAWS if "last" not in rule or name == "sage"])
def test_native_draws_what_the_definition_draws(rule, name, frontier):
    kind = {"static": None, "trees": None, "vertices": "vertices"}.get(rule, "edges")
    graph = library(kind, weighted="weighted" in name, parallel=name != "labor")
    base = samplers.make(name if name in ("full", "labor") else "sage", (5, 3, 2), frontier=frontier, **LAWS[name])
    fanouts = {("paper", "cites", "paper"): (0, 300, -1)}
    disjoint = {"static": False, "trees": True}.get(rule)
    sampler = RelationSampler(base, fanouts, TIMES[rule], disjoint, stride=15)
    seeds = bulk(graph, kind is not None)
    expected = drawn(graph, sampler, seeds, backends.make("reference"))
    assert drawn(graph, sampler, seeds, backends.make("native", 3)) == expected
    alone = [drawn(graph, sampler, seeds.parts(j, j + 1), backends.make("native", 1))[0] for j in range(len(seeds))]
    assert alone == expected


def test_relations_whose_rules_of_time_differ_are_left_to_the_definition():
    class Mixed(RelationSampler):
        def laws(self, adjacency, stream, epoch):
            return [[law._replace(last=r > 0, strict=r > 1) for r, law in enumerate(hop)] for hop in super().laws(adjacency, stream, epoch)]

    graph = library("edges")
    sampler, seeds = Mixed(samplers.make("sage", (3, 2)), time=TimeRule(), stride=15), bulk(graph, True)
    assert drawn(graph, sampler, seeds, backends.make("native", 1)) == drawn(graph, sampler, seeds, backends.make("reference"))


@pytest.mark.parametrize("rule", ["static", "vertices", "last"])
def test_rows_of_hubs_and_large_fanouts(rule):
    """Rows longer than a bitmap of Floyd's, windows longer than what insertion sorts, more rows than a block."""
    rng = np.random.default_rng(4)
    node = VertexType("node", 3000, times=rng.integers(-(2**62), 2**62, 3000) if rule != "static" else None)
    u, v = rng.integers(0, 3000, 60_000), (3000 * rng.random(60_000) ** 6).astype(int)
    graph = HeteroGraph((node,), (relation_from_edges(node, "to", node, u, v), relation_from_edges(node, "of", node, v, u)))
    seeds, times = rng.integers(0, 3000, 300), rng.integers(-(2**62), 2**62, 300)
    listed = SeedList.of(graph, {"node": seeds}, None if rule == "static" else times)
    chosen = listed.select([np.arange(100), np.arange(0, 300, 20)])
    for fanouts in ((20, 10), (300,), (70, -1)):
        sampler = RelationSampler(samplers.make("sage", fanouts), time=TIMES[rule], stride=300)
        expected = drawn(graph, sampler, chosen, backends.make("reference"))
        assert drawn(graph, sampler, chosen, backends.make("native", 2)) == expected


@pytest.mark.parametrize("rule", [rule for rule in TIMES if rule != "moving"])
def test_samplers_take_the_fused_pass(rule, monkeypatch):
    from bulksample.relations import adjacency

    monkeypatch.setattr(adjacency, "expand_relations", None)  # the definition, hop by hop
    kind = {"static": None, "trees": None, "vertices": "vertices"}.get(rule, "edges")
    graph = library(kind)
    sampler = RelationSampler(
        samplers.make("sage", (2, 2)), time=TIMES[rule], disjoint={"static": False, "trees": True}.get(rule), stride=15
    )
    assert len(drawn(graph, sampler, bulk(graph, kind is not None), backends.make("native"))) == 4


@pytest.mark.parametrize(
    ("rule", "name"),
    [("static", "labor"), ("trees", "sage"), ("vertices", "weighted"), ("edges", "sage"), ("last", "sage"), ("moving", "replace")],
)
def test_kernels_of_a_device_draw_what_the_definition_draws(rule, name):
    """Hop by hop, by the primitives of the device."""
    kind = {"static": None, "trees": None, "vertices": "vertices"}.get(rule, "edges")
    graph = library(kind, weighted="weighted" in name, parallel=name != "labor")
    base = samplers.make(name if name == "labor" else "sage", (3, 2), **LAWS[name])
    sampler = RelationSampler(base, None, TIMES[rule], {"static": False, "trees": True}.get(rule), stride=15)
    seeds = bulk(graph, kind is not None, 3)
    assert drawn(graph, sampler, seeds, engine("emulated")) == drawn(graph, sampler, seeds, backends.make("reference"))
