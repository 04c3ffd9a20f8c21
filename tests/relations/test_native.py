"""The fused native pass draws what the definition draws, on any number of threads, in any bulk, and it is the pass that samplers take."""

from dataclasses import replace

import numpy as np
import pytest
from relation_bulks import LAWS, TIMES, bulk, drawn, hubs, kind_of_times, sampler_of
from relations_zoo import library

from bulksample import backends, samplers
from bulksample.backends import relation_draws as draw
from bulksample.backends.native import Native
from bulksample.backends.relational import TreeVertices, relabel_by_sorting
from bulksample.graph import Graph, VertexType
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.samplers import Sage
from bulksample.samplers.time_rule import TimeRule


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in TIMES for name in LAWS if "last" not in rule or name == "sage"])
def test_native_draws_what_the_definition_draws(rule, name, frontier):
    kind = kind_of_times(rule)
    graph = library(kind, weighted="weighted" in name, parallel=name != "labor")
    sampler = sampler_of(rule, name, (5, 3, 2), {("paper", "cites", "paper"): (0, 300, -1)}, frontier)
    seeds = bulk(graph, kind is not None)
    expected = drawn(graph, sampler, seeds, backends.make("reference"))
    assert drawn(graph, sampler, seeds, backends.make("native", 3)) == expected
    told = replace(sampler, entries=True)  # positions of edges with the draws; by default they are found when they are read
    alone = [drawn(graph, told, seeds.parts(j, j + 1), backends.make("native", 1))[0] for j in range(len(seeds))]
    assert alone == expected


def test_relations_whose_rules_of_time_differ_are_left_to_the_definition():
    class Mixed(Sage):
        def laws(self, adjacency, stream, epoch):
            return [[law._replace(last=r > 0, strict=r > 1) for r, law in enumerate(hop)] for hop in super().laws(adjacency, stream, epoch)]

    graph = library("edges")
    sampler, seeds = Mixed((3, 2), time=TimeRule(), stride=15), bulk(graph, True)
    assert drawn(graph, sampler, seeds, backends.make("native", 1)) == drawn(graph, sampler, seeds, backends.make("reference"))


@pytest.mark.parametrize("rule", ["static", "vertices", "last"])
def test_rows_of_hubs_and_large_fanouts(rule):
    """Rows longer than a bitmap of Floyd's, windows longer than insertion sorts, more rows than a block; 2 of 5 threads share a bulk."""
    graph, chosen = hubs(rule)
    for fanouts in ((20, 10), (300,), (70, -1)):
        sampler = replace(samplers.make("sage", fanouts), time=TIMES[rule], stride=300)
        expected = drawn(graph, sampler, chosen, backends.make("reference"))
        assert all(drawn(graph, sampler, chosen, backends.make("native", threads)) == expected for threads in (2, 5))


@pytest.mark.parametrize("name", ["sage", "replace", "weighted", "labor", "full"])
@pytest.mark.parametrize("window", [None, 40])
def test_windows_of_rows_around_the_lengths_that_are_sorted_otherwise(name, window):
    """Rows of 15 are not bisected, 4 picks are sorted by a network, rows of up to 256 by bits. Times tie; an end may be any int64."""
    rng, degrees = np.random.default_rng(7), [0, 1, 2, 3, 4, 5, 6, 8, 15, 16, 17, 31, 63, 64, 65, 255, 256, 257, 300]
    node = VertexType("node", 400)
    v = np.repeat(np.arange(len(degrees)), degrees)
    u = np.concatenate([np.sort(rng.choice(400, degree, replace=False)) for degree in degrees])
    edges = relation_from_edges(
        node, "to", node, u, v, times=rng.integers(0, 100, len(u)), weights=rng.integers(0, 5, len(u)) if name == "weighted" else None
    )
    graph, rows = Graph.of((node,), (edges,)), np.tile(np.arange(len(degrees)), 5)
    ends = np.repeat([-(2**63), -1, 50, 100, 2**63 - 1], len(degrees))
    base = samplers.make(name if name in ("full", "labor") else "sage", (5,), **LAWS[name])
    for strict in (False, True):
        sampler = replace(base, time=TimeRule(window=window, strict=strict), stride=len(rows))
        chosen = SeedList.of(graph, {"node": rows}, ends).select([np.arange(len(rows))])
        assert drawn(graph, sampler, chosen, backends.make("native", 1)) == drawn(graph, sampler, chosen, backends.make("reference"))


@pytest.mark.parametrize("rule", [rule for rule in TIMES if rule != "moving"])
def test_samplers_take_the_fused_pass(rule, monkeypatch):
    from bulksample import local_adjacency

    monkeypatch.setattr(local_adjacency, "expand_relations", None)  # the definition, hop by hop
    kind = kind_of_times(rule)
    graph = library(kind)
    assert len(drawn(graph, sampler_of(rule, "sage", (2, 2)), bulk(graph, kind is not None), backends.make("native"))) == 4


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule in TIMES for name in LAWS if "last" not in rule or name == "sage"])
def test_a_hop_of_a_relation_draws_what_the_definition_draws(rule, name, frontier, monkeypatch):
    """Owners of block rows draw so: relation by relation, without the fused pass."""
    kind = kind_of_times(rule)
    graph = library(kind, weighted="weighted" in name, parallel=name != "labor")
    sampler = sampler_of(rule, name, (5, 3), {("paper", "cites", "paper"): (0, -1)}, frontier)
    seeds = bulk(graph, kind is not None)
    expected = drawn(graph, sampler, seeds, backends.make("reference"))
    monkeypatch.setattr(Native, "expand_relations", lambda *_: None)
    monkeypatch.setattr(draw, "_by_primitives", None)
    assert drawn(graph, sampler, seeds, backends.make("native", 3)) == expected


def test_a_hop_of_more_rows_than_a_block(monkeypatch):
    graph, chosen = hubs("vertices")
    sampler = replace(samplers.make("sage", (20, 10)), time=TIMES["vertices"], stride=300)
    expected = drawn(graph, sampler, chosen, backends.make("reference"))
    monkeypatch.setattr(Native, "expand_relations", lambda *_: None)
    for threads in (1, 3):
        assert drawn(graph, sampler, chosen, backends.make("native", threads)) == expected


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_trees_hold_is_numbered_as_by_sorting(threads, timed):
    """Three mini-batches, one without trees; vertices and ends that repeat within a tree and between trees; held ones keep their places."""
    rng, tree_pointers, engine = np.random.default_rng(3), np.array([0, 4, 4, 9]), backends.make("native", threads)

    def entries(count):
        trees = np.sort(rng.integers(0, 9, count))
        ends = rng.integers(-2, 2, count) * 2**62 if timed else None
        return TreeVertices(rng.integers(0, 40, count).astype(np.int32), trees, ends)

    empty = TreeVertices(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64) if timed else None)
    pointers, held = np.zeros(4, np.int64), empty
    for count in (300, 1, 2000, 50):
        found = entries(count)
        got, expected = (number(pointers, held, found, tree_pointers) for number in (engine.relabel_trees, relabel_by_sorting))
        for one, other in zip((got[0], *got[1], got[2]), (expected[0], *expected[1], expected[2]), strict=True):
            np.testing.assert_array_equal(one, other)
            assert other is None or one.dtype == other.dtype
        pointers, held = got[:2]
    assert len(
        set(
            zip(
                held.vertices.tolist(), held.trees.tolist(), [0] * len(held.trees) if held.ends is None else held.ends.tolist(), strict=True
            )
        )
    ) == len(held.trees)
