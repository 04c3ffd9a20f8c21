"""The fused pass of a device draws on relations what the definition draws, in so many launches and one wait."""

from dataclasses import replace

import numpy as np
import pytest
from emulation.host import compiler, emulated
from relation_bulks import CASES, TIMES, bulk, drawn, hubs, kind_of_times, sampler_of
from relations_zoo import library, one_relation
from zoo import random_matrix

from bulksample import backends, local_adjacency, samplers
from bulksample.backends.cuda import bulk as device_bulk
from bulksample.backends.cuda.tables import STRUCTURES
from bulksample.graph.seed_list import SeedList

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
EVERY_TIME = {
    ("static", "weighted"), ("trees", "sage"), ("vertices", "replace"), ("window", "weighted, replace"), ("edges", "labor"),
    ("last in a window", "sage"), ("vertices", "full"),
}  # fmt: skip
FANOUTS = {("paper", "cites", "paper"): (0, 40, -1)}


def graph_for(rule, name, **more):
    return library(kind_of_times(rule), weighted="weighted" in name, parallel=name != "labor", **more)


@pytest.fixture
def fused(monkeypatch):
    """The definition, hop by hop, is not there."""
    monkeypatch.setattr(local_adjacency, "expand_relations", None)


@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize(("rule", "name"), [pytest.param(*c, marks=() if c in EVERY_TIME else pytest.mark.long) for c in CASES])
def test_a_device_draws_what_the_definition_draws(rule, name, frontier, monkeypatch):
    """Enqueued in one call, launched one by one, and sized by waiting."""
    graph, number = graph_for(rule, name), CASES.index((rule, name)) + (frontier == "new")
    seeds, sampler = bulk(graph, kind_of_times(rule) is not None), sampler_of(rule, name, (5, 3, 2), FANOUTS, frontier)
    expected, engine = drawn(graph, sampler, seeds, backends.make("reference")), emulated()
    monkeypatch.setattr(local_adjacency, "expand_relations", None)
    engine.device.numbering = [None, *STRUCTURES][number % 3]
    assert drawn(graph, sampler, seeds, engine) == expected
    engine.device.prepares = False
    assert drawn(graph, sampler, seeds, engine) == expected
    engine.device.free_bytes = 1 << 17  # for the graph, not for bounds
    assert drawn(graph, sampler, seeds, engine) == expected


@pytest.mark.parametrize("rule", ["static", "vertices", "last"])
@pytest.mark.parametrize(
    ("name", "fanouts"), [("sage", (20, 10)), ("sage", (300,)), ("sage", (70, -1)), ("weighted", (33,)), ("weighted, replace", (70,))]
)
def test_rows_of_hubs_and_large_fanouts(rule, name, fanouts, fused):
    """Rows and windows that a block draws, whole ones of thousands, and more rows than a block has threads."""
    if rule == "last" and name != "sage":
        pytest.skip("the newest are taken without chance")
    graph, seeds = hubs(rule)
    if "weighted" in name:
        weighted = [replace(r, adjacency=r.adjacency.with_values(np.arange(r.adjacency.nnz) % 3)) for r in graph.relations]
        graph = replace(graph, relations=tuple(weighted))
    sampler = replace(sampler_of("static", name, fanouts), disjoint=None, time=TIMES[rule], stride=300)
    assert drawn(graph, sampler, seeds, emulated()) == drawn(graph, sampler, seeds, backends.make("native", 2))


@pytest.mark.parametrize("schedule", [3, 4 | 2 | 5 << 4])
@pytest.mark.parametrize(("rule", "name"), [("trees", "weighted"), ("window", "sage"), ("vertices", "weighted, replace")])
def test_the_order_of_threads_and_blocks_does_not_matter(rule, name, schedule, fused):
    graph = graph_for(rule, name)
    seeds, sampler = bulk(graph, kind_of_times(rule) is not None), sampler_of(rule, name, (40, 3), None)
    assert drawn(graph, sampler, seeds, emulated(schedule)) == drawn(graph, sampler, seeds, backends.make("native", 1))


def test_one_relation_draws_what_the_homogeneous_graph_draws(fused):
    from bulks import assert_same_minibatches, bulk_of_seeds

    from bulksample import LocalAdjacency, Stream

    matrix, engine, sampler = random_matrix(300, 6000, 1), emulated(), samplers.make("sage", (40, 5, 3))
    seeds = bulk_of_seeds(300)
    named = replace(sampler, entries=True)  # else one relation draws by the plain path
    one = named.sample_bulk(LocalAdjacency(one_relation(matrix), engine, by_type=True), seeds, Stream(7), 3)
    assert_same_minibatches(
        [replace(m, by_type=False) for m in one], sampler.sample_bulk(LocalAdjacency(matrix, engine), seeds, Stream(7), 3)
    )


def test_another_bulk_of_the_shape_has_its_own_seeds_times_stream_and_graph(fused):
    """A recording is used again: for other seeds and times, another stream, and another graph of the same sizes."""
    engine, sampler, other = emulated(), sampler_of("window", "weighted", (4, 3), None), backends.make("native", 1)
    for seed, stream in ((1, 1), (1, 2**63 + 9), (5, 1)):
        graph = graph_for("window", "weighted", seed=seed)
        listed = SeedList.of(graph, {"paper": np.arange(seed, 60)}, np.arange(60 - seed) % 40)
        for first in (0, 7):
            seeds = listed.select([np.arange(first, first + 9), np.arange(first, first + 5)], np.array([first, 8]))
            assert drawn(graph, sampler, seeds, engine, stream) == drawn(graph, sampler, seeds, other, stream)
    assert len(engine.device.recordings) == 1


def test_no_relation_no_hop_no_seeds(fused):
    graph = library()
    nothing = SeedList.of(graph, {"paper": [], "venue": []}).select([np.arange(0)] * 2)
    few = SeedList.of(graph, {"alone": [1, 4]}).select([np.arange(2), np.arange(0)])
    for seeds, fanouts in ((nothing, (3, 2)), (few, (3,)), (few, (0, 0))):
        for disjoint in (False, True):
            sampler = replace(samplers.make("sage", fanouts), disjoint=disjoint, stride=3)
            assert drawn(graph, sampler, seeds, emulated()) == drawn(graph, sampler, seeds, backends.make("native", 1))


LAUNCHED = [  # launches of a bulk of three hops, whatever the number of relations
    ("static", "sage", (15, 10, 5), 17),
    ("vertices", "sage", (15, 10, 5), 17),
    ("last", "sage", (15, 10, 5), 17),
    ("trees", "replace", (15, 10, 5), 17),
    ("window", "weighted", (15, 10, 5), 20),
    ("static", "weighted, replace", (15, 10, 5), 17),
    ("static", "full", (1, 1, 1), 20),
    ("static", "labor", (40, 10, 5), 21),
]


@pytest.mark.parametrize(("rule", "name", "fanouts", "launches"), LAUNCHED)
def test_a_bulk_of_three_hops_is_so_many_launches_and_one_wait(rule, name, fanouts, launches, monkeypatch):
    """Beside two fills. What is copied to the host after the one wait is counted apart."""
    graph, engine, asked = graph_for(rule, name), emulated(), []
    seeds, sampler, device = bulk(graph, kind_of_times(rule) is not None), sampler_of(rule, name, fanouts), engine.device
    device.prepares = False
    launch, full, get, close = device._launch, device.full, device.get, device_bulk.close
    device._launch = lambda name, *more: asked.append(name) or launch(name, *more)
    device.full = lambda *arguments: asked.append("fill") or full(*arguments)
    device.get = lambda array: asked.append("wait") or get(array)
    monkeypatch.setattr(device_bulk, "close", lambda *given: asked.append("end") or close(*given))
    drawn(graph, sampler, seeds, engine)
    before = asked[: asked.index("end")]
    assert (len(before) - before.count("fill"), before.count("fill"), before.count("wait")) == (launches, 2, 0)
    assert set(asked[len(before) + 1 :]) == {"wait"}
    device.free_bytes = 1 << 17
    asked.clear()
    drawn(graph, sampler, seeds, engine)
    assert asked[: asked.index("end")].count("wait") == 3  # where bounds have no room, once a hop
