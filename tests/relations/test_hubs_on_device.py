"""Rows of relations that many warps share, beside short ones: the picks are those of the definition, in no more launches."""

from dataclasses import replace

import numpy as np
import pytest
from counted_memory import Counted, counted_engine
from emulation.host import compiler, emulated
from relation_bulks import TIMES, drawn, hubs, sampler_of

from bulksample import backends
from bulksample.backends.cuda import relations
from bulksample.backends.cuda.draws import HUB
from bulksample.backends.cuda.predicted import relation_bytes
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
RANDOM = 4 | 2 | 7 << 4
MORE = [("static", 0), ("static", RANDOM), ("vertices", RANDOM)]
ORDERS = [("static", 3), ("vertices", 0), *(pytest.param(*order, marks=pytest.mark.long) for order in MORE)]
RULES = {"static": None, "vertices": TIMES["vertices"]}


def weighted(graph, seed=1):
    """A third of the edges has no weight; the others differ by up to 2^20."""
    rng = np.random.default_rng(seed)
    weigh = [rng.integers(1, 2**20, r.adjacency.nnz) * (np.arange(r.adjacency.nnz) % 3) for r in graph.relations]
    return replace(
        graph, relations=tuple(replace(r, adjacency=r.adjacency.with_values(w)) for r, w in zip(graph.relations, weigh, strict=True))
    )


def simple(graph):
    """The graph without parallel edges, which LABOR does not draw from."""
    (node,), relations = graph.types, []
    for r in graph.relations:
        v, u = np.unique(np.stack([np.repeat(np.arange(node.count), np.diff(r.adjacency.indptr)), r.adjacency.indices]), axis=1)
        relations.append(relation_from_edges(node, r.name, node, u, v))
    return replace(graph, relations=tuple(relations))


def made(rule, name, fanouts):
    """A graph, bulks of its hub and others at several times, and a sampler."""
    graph, _ = hubs(rule)
    times = None if rule == "static" else np.array([2**62, 2**61, 0, *range(-(2**61), 2**62, 2**59)][:12])
    seeds = SeedList.of(graph, {"node": np.array([0, 0, *range(10)])}, times).select([np.arange(12), np.arange(1), np.array([1, 7, 5])])
    graph = simple(graph) if name == "labor" else weighted(graph) if "weighted" in name else graph
    assert max(np.diff(r.adjacency.indptr).max() for r in graph.relations) > HUB
    return graph, seeds, replace(sampler_of("static", name, fanouts), disjoint=None, time=RULES[rule], stride=300)


@pytest.mark.parametrize(("rule", "schedule"), ORDERS)
@pytest.mark.parametrize(
    ("name", "fanouts"), [("weighted", (10, 32)), ("labor", (5,)), ("weighted, replace", (3, 2)), ("weighted, replace", (70,))]
)
def test_warps_that_share_a_hub_draw_what_one_would(rule, name, fanouts, schedule):
    graph, seeds, sampler = made(rule, name, fanouts)
    assert drawn(graph, sampler, seeds, emulated(schedule)) == drawn(graph, sampler, seeds, backends.make("native", 2))


@pytest.mark.parametrize("schedule", [pytest.param(0, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long), 4 | 8 | 2 | 1 << 4])
@pytest.mark.parametrize("name", ["weighted", "weighted, replace"])
def test_warps_that_share_a_hub_have_no_race(name, schedule):
    graph, seeds, sampler = made("static", name, (9,))
    assert drawn(graph, sampler, seeds, emulated(schedule, recorded=True)) == drawn(graph, sampler, seeds, backends.make("native", 2))


@pytest.mark.parametrize(("name", "launches"), [("weighted", 20), ("labor", 20), ("weighted, replace", 17)])
def test_hubs_take_no_launch_and_no_fill(name, launches, monkeypatch):
    """A bulk of three hops, beside two fills, as one of the same graph whose hubs are not listed."""
    graph, seeds, sampler = made("static", name, (3, 2, 2))
    digests = []
    for listed in (True, False):
        if not listed:
            monkeypatch.setattr(relations, "has_hubs", lambda drawn, long: False)
        engine = emulated()
        digests.append(drawn(graph, sampler, seeds, engine))
        (recording,) = engine.device.recordings.values()
        given = recording.names
        assert (len(given) - given.count(None), given.count(None)) == (launches, 2)
    assert digests[0] == digests[1]


@pytest.mark.long
@pytest.mark.parametrize("name", ["weighted", "weighted, replace"])
def test_more_hubs_than_are_listed_are_drawn_all_the_same(name):
    graph, _, sampler = made("static", name, (4,))
    listed = SeedList.of(graph, {"node": np.zeros(300, np.int64)}, None)
    seeds = listed.select([np.arange(1)] * 300)
    assert drawn(graph, sampler, seeds, emulated(2)) == drawn(graph, sampler, seeds, backends.make("native", 2))


@pytest.mark.parametrize("prepares", [True, False])
@pytest.mark.parametrize("name", ["weighted", "labor", "weighted, replace", "sage"])
@pytest.mark.parametrize("fanouts", [(3, 2), (300,), pytest.param((5, 40), marks=pytest.mark.long)])
def test_no_bulk_takes_more_memory_than_was_predicted(name, fanouts, prepares, monkeypatch):
    """Scratch included: of rows of many picks, and of slices of hubs, without which draws by key would take more."""
    (graph, seeds, sampler), counted, predicted = made("static", name, fanouts), Counted(), []
    engine = counted_engine(counted, 8 << 30)
    engine.device.prepares = prepares

    def noted(bound, disjoint, laws, long):
        predicted[:] = [relation_bytes(bound, disjoint, laws, hubs) for hubs in (long, [False] * len(long))]
        return predicted[0]

    monkeypatch.setattr(relations, "relation_bytes", noted)
    drawn(graph, sampler, seeds, engine)  # what belongs to the graph is there from now on
    engine.device.recordings.clear()
    counted.peak = held = counted.alive
    drawn(graph, sampler, seeds, engine)
    assert counted.peak - held <= predicted[0]
    if name in ("weighted", "labor") and fanouts == (3, 2):
        assert predicted[1] < counted.peak - held
