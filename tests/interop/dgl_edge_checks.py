"""Checks of edges as seeds of the DGL loader, against DGL's own `as_edge_prediction_sampler`; a program, as `dgl_checks.py`."""

from __future__ import annotations

import json
import pickle
import sys
import threading

import dgl
import numpy as np
import torch
from dgl_checks import graph_of, heterograph_of, message_of, results_of

from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.dgl import (
    DataLoader,
    FastGCNSampler,
    LaborSampler,
    LadiesSampler,
    MultiLayerFullNeighborSampler,
    NeighborSampler,
    Uniform,
    as_edge_prediction_sampler,
)

WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "written", "author")


def mirrored(parallel):
    """A graph with the reverse of each edge, and the reverse of each id; edges may repeat."""
    source, destination = graph_of(parallel).edges()
    graph = dgl.graph((torch.cat([source, destination]), torch.cat([destination, source])), num_nodes=300)
    graph.ndata["feat"] = torch.arange(600.0).view(300, 2)
    graph.edata["w"] = torch.arange(graph.num_edges()).float()
    return graph, torch.arange(graph.num_edges()).roll(len(source))


def typed():
    """A heterograph of which one relation holds the reverses of another, by id; and a relation within a type."""
    graph = heterograph_of()
    ends = {key: graph.edges(etype=key, order="eid") for key in graph.canonical_etypes}
    ends[WRITTEN] = ends[WRITES][::-1]
    made = dgl.heterograph(ends, num_nodes_dict={kind: graph.num_nodes(kind) for kind in graph.ntypes})
    for kind in graph.ntypes:
        made.nodes[kind].data["feat"] = graph.nodes[kind].data["feat"]
    made.edges[WRITES].data["year"] = torch.arange(400)
    return made


def scattered(graph, edges):
    """Negatives that are a function of the edges."""
    found = {}
    for key, ids in (edges if isinstance(edges, dict) else {graph.canonical_etypes[0]: edges}).items():
        found[key] = tuple((ids.repeat(2) * step + step) % graph.num_nodes(kind) for kind, step in ((key[0], 7), (key[2], 13)))
    return found if isinstance(edges, dict) else next(iter(found.values()))


def dgls(graph, edges, size, exclude=None, reverse_eids=None, reverse_etypes=None, **options):
    """The mini-batches of DGL, all neighbors. It sorts the edges to exclude in place: its own, whose ids then are those of other pairs."""

    def apart(edges):
        own = {key: ids.clone() for key, ids in edges.items()} if isinstance(edges, dict) else edges.clone()
        return dgl.dataloading.base.find_exclude_eids(graph, own, exclude, reverse_eids, reverse_etypes)

    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2)
    sampler = dgl.dataloading.as_edge_prediction_sampler(sampler, exclude=exclude and apart, **options)
    return list(dgl.dataloading.DataLoader(graph, edges, sampler, batch_size=size))


def ours(graph, edges, size, law=None, more=None, **options):
    law = law or MultiLayerFullNeighborSampler(2)
    return DataLoader(graph, edges, as_edge_prediction_sampler(law, **options), batch_size=size, **(more or {}))


def edges_of(block, key):
    """The edges of a block as vertices and ids, sorted."""
    source, destination = block.edges(etype=key)
    names = block.srcnodes[key[0]].data[dgl.NID][source], block.dstnodes[key[2]].data[dgl.NID][destination]
    return sorted(zip(*(column.tolist() for column in (*names, block.edges[key].data[dgl.EID])), strict=True))


def by_type(nodes):
    return {kind: sorted(ids.tolist()) for kind, ids in (nodes if isinstance(nodes, dict) else {"": nodes}).items()}


def same_graph(one, other):
    assert (one.ntypes, one.canonical_etypes, one.idtype) == (other.ntypes, other.canonical_etypes, other.idtype)
    for kind in one.ntypes:
        assert one.nodes[kind].data.keys() == other.nodes[kind].data.keys(), kind
        assert all(torch.equal(one.nodes[kind].data[name], other.nodes[kind].data[name]) for name in one.nodes[kind].data)
    for key in one.canonical_etypes:
        assert all(torch.equal(*pair) for pair in zip(one.edges(etype=key, order="eid"), other.edges(etype=key, order="eid"), strict=True))
        assert one.edges[key].data.keys() == other.edges[key].data.keys(), key
        assert all(torch.equal(one.edges[key].data[name], other.edges[key].data[name]) for name in one.edges[key].data)


def same_batches(found, expected):
    """Pair graphs with the same vertices, edges and features in the same order, and blocks with the same vertices and edges."""
    found = list(found)
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for graphs in zip(one[1:-1], other[1:-1], strict=True):
            same_graph(*graphs)
        assert by_type(one[0]) == by_type(other[0])
        for mine, theirs in zip(one[-1], other[-1], strict=True):
            assert mine.canonical_etypes == theirs.canonical_etypes
            for key in mine.canonical_etypes:
                assert edges_of(mine, key) == edges_of(theirs, key), key
            for kind in mine.dsttypes:
                assert by_type(mine.srcnodes[kind].data[dgl.NID]) == by_type(theirs.srcnodes[kind].data[dgl.NID]), kind
        last = one[-1][-1]
        for kind in last.dsttypes:
            assert torch.equal(last.dstnodes[kind].data[dgl.NID], one[1].nodes[kind].data[dgl.NID])


def pairs_and_blocks_are_those_of_dgl():
    """All neighbors, so nothing is random; edges repeat, in the graph and among the seeds."""
    for parallel in (False, True):
        graph, reverse = mirrored(parallel)
        edges = torch.from_numpy(np.random.default_rng(3).integers(0, graph.num_edges(), 90))
        edges = torch.cat([edges, edges[:7]])
        for exclude in (None, "self", "reverse_id"):
            for negatives in (None, scattered):
                options = {"exclude": exclude, "negative_sampler": negatives, "reverse_eids": reverse if exclude == "reverse_id" else None}
                same_batches(ours(graph, edges, 40, **options), dgls(graph, edges, 40, **options))


def masks_name_the_edges():
    graph, _ = mirrored(False)
    mask = torch.zeros(graph.num_edges(), dtype=torch.bool)
    mask[[5, 900, 17, 44, 2000]] = True
    same_batches(ours(graph, mask, 3, exclude="self"), dgls(graph, mask.nonzero()[:, 0], 3, exclude="self"))
    assert len(ours(graph, mask, 3)) == 2
    assert [len(pairs.edata[dgl.EID]) for _, pairs, _ in ours(graph, mask, 3, more={"drop_last": True})] == [3]


def pairs_and_blocks_of_a_heterograph_are_those_of_dgl():
    graph = typed()
    rng, sizes = np.random.default_rng(4), {WRITTEN: 20, WRITES: 30, ("paper", "cites", "paper"): 25}
    edges = {key: torch.from_numpy(rng.integers(0, graph.num_edges(key), m)) for key, m in sizes.items()}
    turned = [{"writes": "written"}, {WRITES: WRITTEN, "written": "writes"}]
    cases = [{"exclude": None}, {"exclude": "self"}, *({"exclude": "reverse_types", "reverse_etypes": one} for one in turned)]
    for case in cases:
        for negatives in (None, scattered):
            options = {**case, "negative_sampler": negatives, "prefetch_labels": {"writes": ["year"]}}
            same_batches(ours(graph, edges, 30, **options), dgls(graph, edges, 30, **options))
    by_name = {"cites": torch.arange(40)}  # the name of a type without its ends, of one type alone
    same_batches(ours(graph, by_name, 30, exclude="self"), dgls(graph, by_name, 30, exclude="self"))


def reverses_of_a_heterograph_are_named_by_type():
    """A relation of two types whose second half holds the reverses, by id."""
    source, destination = torch.arange(30) % 7, torch.arange(30) % 11
    ends = {("a", "to", "a"): (torch.cat([source, destination]), torch.cat([destination, source])), ("a", "of", "b"): (source, destination)}
    graph, reverse = dgl.heterograph(ends), {("a", "to", "a"): torch.arange(60).roll(30)}
    edges, options = {"to": torch.arange(0, 60, 4)}, {"exclude": "reverse_id", "reverse_eids": reverse}
    same_batches(ours(graph, edges, 4, **options), dgls(graph, edges, 4, **options))


def a_graph_of_two_types_and_one_relation_takes_a_tensor():
    graph = dgl.heterograph({("user", "buys", "item"): (torch.arange(20) % 6, torch.arange(20) % 7)})
    for edges in (torch.arange(20), {"buys": torch.arange(20)}):
        same_batches(ours(graph, edges, 8, negative_sampler=scattered), dgls(graph, edges, 8, negative_sampler=scattered))
    named = dgl.heterograph({("user", "likes", "user"): (torch.arange(20) % 6, torch.arange(20) % 7)})
    for _, pairs, _ in ours(named, {"likes": torch.arange(20)}, 8):
        assert pairs.canonical_etypes == named.canonical_etypes


def narrow_ids_stay_narrow():
    graph = mirrored(False)[0].int()
    found = list(ours(graph, torch.arange(50), 32, negative_sampler=Uniform(2), exclude="self"))
    assert found[0][0].dtype == found[0][1].idtype == found[0][2].idtype == found[0][1].edata[dgl.EID].dtype == torch.int32
    expected = dgls(graph, torch.arange(50).int(), 32, exclude="self")
    same_batches(ours(graph, torch.arange(50), 32, exclude="self"), expected)


def functions_exclude_edges():
    """Those that one names leave all blocks; `SpotTarget` of DGL is one. Other edges, and all vertices, stay."""
    graph, reverse = mirrored(False)
    chosen = torch.arange(0, graph.num_edges(), 3)
    spot = dgl.dataloading.SpotTarget(graph, "reverse_id", degree_threshold=25, reverse_eids=reverse)
    edges = torch.arange(0, 400, 5)
    for exclude in (lambda _: chosen, spot):
        without, pieces = 0, list(ours(graph, edges, 20))
        for (inputs, pairs, blocks), (whole_inputs, _, whole) in zip(ours(graph, edges, 20, exclude=exclude), pieces, strict=True):
            gone = exclude(pairs.edata[dgl.EID].clone()).tolist()
            assert torch.equal(inputs, whole_inputs)
            for mine, theirs in zip(blocks, whole, strict=True):
                key = ("_N", "_E", "_N")
                assert edges_of(mine, key) == [edge for edge in edges_of(theirs, key) if edge[2] not in gone]
                without += theirs.num_edges() - mine.num_edges()
        assert without > 0
    graph, kept = typed(), {WRITES: torch.arange(10)}
    found = list(ours(graph, kept, 5, exclude=lambda edges: {"cites": torch.arange(500), "writes": edges[WRITES]}))
    for _, pairs, blocks in found:
        for block in blocks:
            assert block.num_edges("cites") == 0
            assert not torch.isin(block.edges[WRITES].data[dgl.EID], pairs.edges[WRITES].data[dgl.EID]).any()


def draws_are_those_of_the_loader_that_excludes_nothing():
    """For every sampler, plain and typed: excluded edges are gone, the others keep their weights, and no vertex goes."""
    graph, reverse = mirrored(True)
    key = graph.canonical_etypes[0]
    laws = (
        lambda: NeighborSampler([4, 5]), lambda: NeighborSampler([4, 5], replace=True), lambda: LaborSampler([4, 5]),
        lambda: LadiesSampler([40, 40]), lambda: FastGCNSampler([90, 90]),
    )  # fmt: skip
    gone = 0
    for law in laws:
        plain = ours(graph, torch.arange(0, 600, 2), 40, law(), {"seed": 5})
        without = ours(graph, torch.arange(0, 600, 2), 40, law(), {"seed": 5}, exclude="reverse_id", reverse_eids=reverse)
        for (inputs, pairs, blocks), (all_inputs, all_pairs, whole) in zip(without, plain, strict=True):
            assert torch.equal(inputs, all_inputs)
            same_graph(pairs, all_pairs)
            own = pairs.edata[dgl.EID]
            excluded = torch.cat([own, reverse[own]])
            for mine, theirs in zip(blocks, whole, strict=True):
                kept = ~torch.isin(theirs.edata[dgl.EID], excluded)
                gone += int((~kept).sum())
                assert torch.equal(mine.edata[dgl.EID], theirs.edata[dgl.EID][kept])
                for end, every in zip(mine.edges(order="eid"), theirs.edges(order="eid"), strict=True):
                    assert torch.equal(end, every[kept])
                if "weight" in theirs.edata:
                    assert torch.equal(mine.edata["weight"], theirs.edata["weight"][kept])
    assert gone > 100
    graph = typed()
    for law in (lambda: NeighborSampler([3, 3]), lambda: LadiesSampler([30, 30])):
        turned = {"exclude": "reverse_types", "reverse_etypes": {WRITES: WRITTEN}}
        for _, pairs, blocks in ours(graph, {"writes": torch.arange(60)}, 20, law(), **turned):
            for block in blocks:
                for key in (WRITES, WRITTEN):
                    assert not torch.isin(block.edges[key].data[dgl.EID], pairs.edges[WRITES].data[dgl.EID]).any()


def scores_of_full_neighbourhoods_are_those_of_the_whole_graph():
    from dgl.nn import SAGEConv

    torch.manual_seed(1)
    layers = [SAGEConv(2, 8, "mean"), SAGEConv(8, 4, "mean")]
    graph, _ = mirrored(True)
    with torch.no_grad():
        whole = layers[1](graph, layers[0](graph, graph.ndata["feat"] / 600).relu())
        for _, pairs, others, blocks in ours(graph, torch.arange(0, 500, 3), 64, negative_sampler=Uniform(3)):
            h = layers[1](blocks[1], layers[0](blocks[0], blocks[0].srcdata["feat"] / 600).relu())
            for one in (pairs, others):
                source, destination = one.edges(order="eid")
                true = whole[one.ndata[dgl.NID][source]] * whole[one.ndata[dgl.NID][destination]]
                torch.testing.assert_close(h[source] * h[destination], true)
                assert one.num_nodes() == len(h)
            assert torch.equal(graph.edata["w"][pairs.edata[dgl.EID]], pairs.edata["w"])


def named(batches):
    """The edges, the negatives and the drawn edges of batches, for comparisons."""
    return [
        [one.ndata[dgl.NID][end].tolist() for one in graphs for end in one.edges(order="eid")]
        + [block.edata[dgl.EID].tolist() for block in blocks]
        for _, *graphs, blocks in batches
    ]


def uniform_negatives_are_functions_of_seed_epoch_minibatch_and_position():
    """Whatever the bulk, the back end, the ranks and torch's random numbers; DGL's `Uniform` is ours."""
    graph, _ = mirrored(False)

    def all_of(comm=None, negatives=Uniform, seed=3, **options):
        more = {"shuffle": True, "seed": seed, "comm": comm, **options}
        loader = ours(graph, torch.arange(300), 32, NeighborSampler([4, 4]), more, negative_sampler=negatives(3), exclude="self")
        torch.rand(3)
        return [one for _ in range(2) for one in named(loader)]

    expected = all_of(bulk_size=1)
    assert expected[0] != expected[10]
    assert all_of(seed=4) != expected
    samplers = dgl.dataloading.negative_sampler
    assert all_of() == all_of(bulk_size=4) == all_of(backend="reference") == all_of(negatives=samplers.Uniform) == expected
    assert on_threads(3, all_of) == [
        expected[0:10:3] + expected[10::3],
        expected[1:10:3] + expected[11::3],
        expected[2:10:3] + expected[12::3],
    ]


def uniform_negatives_are_uniform():
    """k of each edge, with its source; every destination comes as often as by chance."""
    graph = typed()
    counts, edges = torch.zeros(120), {"writes": torch.arange(400), "cites": [1, 2]}
    loader = ours(graph, edges, 100, more={"shuffle": True}, negative_sampler=Uniform(30))
    for _ in range(4):
        for _, pairs, others, _ in loader:
            for key in (WRITES, ("paper", "cites", "paper")):
                sources = pairs.nodes[key[0]].data[dgl.NID][pairs.edges(etype=key, order="eid")[0]]
                drawn = others.edges(etype=key, order="eid")
                assert torch.equal(others.nodes[key[0]].data[dgl.NID][drawn[0]], sources.repeat_interleave(30))
            counts += torch.bincount(others.nodes["paper"].data[dgl.NID][others.edges(etype=WRITES)[1]], minlength=120)
    expected = 4 * 400 * 30 / 120
    assert ((counts - expected) ** 2 / expected).sum() < 119 + 5 * (2 * 119) ** 0.5


def functions_draw_negatives_on_the_thread_that_iterates():
    """So torch's seed repeats them. DGL's other samplers and their subclasses are such functions; `GlobalUniform` draws no edge."""
    graph, _ = mirrored(False)
    samplers, threads = dgl.dataloading.negative_sampler, []

    class Own(samplers.Uniform):
        def __call__(self, graph, edges):
            threads.append(threading.current_thread())
            return super().__call__(graph, edges)

    def drawn():
        torch.manual_seed(5)
        return named(ours(graph, torch.arange(100), 40, NeighborSampler([3]), {"seed": 1, "bulk_size": 2}, negative_sampler=Own(2)))

    assert drawn() == drawn()
    assert {*threads} == {threading.current_thread()}
    for _, pairs, others, _ in ours(graph, torch.arange(100), 40, negative_sampler=samplers.GlobalUniform(1)):
        assert 0 < others.num_edges() <= pairs.num_edges()
        assert not graph.has_edges_between(*(others.ndata[dgl.NID][end] for end in others.edges())).any()


def a_state_continues_in_the_middle_of_an_epoch():
    """Also on another number of ranks, and in a pickled loader; a state fits no other edges, exclusion or negatives."""
    graph, _ = mirrored(True)

    def made(comm=None, edges=300, exclude="self", negatives=2, **options):
        more = {"shuffle": True, "seed": 3, "comm": comm, **options}
        return ours(
            graph,
            torch.arange(edges),
            32,
            NeighborSampler([4, 4]),
            more,
            exclude=exclude,
            negative_sampler=negatives and Uniform(negatives),
        )

    def rest(state, comm=None):
        loader = made(comm, bulk_size=2)
        loader.load_state_dict(state)
        return named(loader)

    whole, loader = named(made()), made()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    assert rest(state) == named(pickle.loads(pickle.dumps(loader))) == named(batches) == whole[4:]
    assert on_threads(2, lambda comm: rest(state, comm)) == [whole[4::2], whole[5::2]]
    others = {"edges": 299, "exclude": None, "negatives": 3}
    for name, value in others.items():
        assert "does not fit" in message_of(lambda name=name, value=value: made(**{name: value}).load_state_dict(state)), name
    different = {"edges": lambda rank: 300 - rank, "exclude": lambda rank: ("self", None)[rank], "negatives": lambda rank: 2 + rank}
    for name, value in different.items():
        said = on_threads(2, lambda comm, name=name, value=value: message_of(lambda: made(comm, **{name: value(comm.rank)})))
        assert all(said), name
    graph, reverse = mirrored(False)
    own = reverse.clone()
    own[7] = 7  # an edge without a reverse

    def reversed_by(comm):
        more = {"comm": comm, "seed": 3}
        return ours(graph, [1], 2, NeighborSampler([3]), more, exclude="reverse_id", reverse_eids=(reverse, own)[comm.rank])

    assert all(
        "do not agree on sampler and exclusion" in said for said in on_threads(2, lambda comm: message_of(lambda: reversed_by(comm)))
    )


def a_loader_on_a_device_has_graphs_there():
    graph, _ = mirrored(False)
    for inputs, *graphs, blocks in ours(graph, torch.arange(9), 4, more={"device": "cpu"}, negative_sampler=Uniform(1)):
        assert {one.device.type for one in (*graphs, *blocks, inputs)} == {"cpu"}


def what_has_no_meaning_is_refused():
    graph, reverse = mirrored(False)
    types, law = typed(), NeighborSampler([2])
    m, foreign = graph.num_edges(), dgl.dataloading.NeighborSampler([2])
    wrong, turned = reverse.clone(), {"exclude": "reverse_types", "reverse_etypes": {WRITES: WRITTEN}}
    wrong[3] = 5

    def started(call):
        return lambda: next(iter(call()))

    refused = {
        f"indices: entry 1 is edge {m}; use 0 to {m - 1}": lambda: ours(graph, [0, m], 2),
        "the graph has edge types": lambda: ours(types, torch.arange(3), 2),
        "indices names the edge type 'reads'": lambda: ours(types, {"reads": [0]}, 2),
        "twice": lambda: ours(types, {"cites": [0], ("paper", "cites", "paper"): [1]}, 2),
        "indices of type ('paper', 'cites', 'paper'): entry 0 is edge 500": lambda: ours(types, {"cites": [500]}, 2),
        "prefetch_labels: edges of": lambda: ours(graph, [0], 2, prefetch_labels=["feet"]),
        "and its reverse, edge 5 of": lambda: ours(graph, [2, 3], 2, exclude="reverse_id", reverse_eids=wrong),
        "none for edge 4": lambda: ours(graph, [2, 4], 2, exclude="reverse_id", reverse_eids=reverse[:4]),
        "is no reverse of": lambda: ours(types, {"writes": [2]}, 2, exclude="reverse_types", reverse_etypes={"writes": "cites"}),
        "reverse_etypes has no reverse of": lambda: ours(types, {"cites": [2]}, 2, **turned),
        "reverse_etypes: got a str": lambda: ours(types, {"cites": [2]}, 2, exclude="reverse_types", reverse_etypes="writes"),
        "negative_sampler: sources: entry 0 is vertex 900": started(lambda: ours(graph, [0], 2, negative_sampler=lambda *_: ([900], [0]))),
        "1 sources and 2 destinations": started(lambda: ours(graph, [0], 2, negative_sampler=lambda *_: ([0], [0, 1]))),
        "return (sources, destinations)": started(lambda: ours(graph, [0], 2, negative_sampler=lambda *_: torch.zeros(2, 3))),
        "return a dict of": started(lambda: ours(types, {"cites": [0]}, 2, negative_sampler=lambda *_: ([0], [0]))),
        "exclude: entry 0 is edge": started(lambda: ours(graph, [0], 2, exclude=lambda _: [m])),
        "sampler must be one of": lambda: as_edge_prediction_sampler(foreign),
        "graph_sampler must be one of": lambda: DataLoader(graph, [0], dgl.dataloading.as_edge_prediction_sampler(foreign)),
    }  # fmt: skip
    for says, call in refused.items():
        assert says in message_of(call), (says, message_of(call))
    own = reverse.clone()
    own[3] = 3  # an edge without a reverse names itself
    list(ours(graph, [2, 3], 2, law, exclude="reverse_id", reverse_eids=own))


CHECKS = [
    pairs_and_blocks_are_those_of_dgl, masks_name_the_edges, pairs_and_blocks_of_a_heterograph_are_those_of_dgl,
    reverses_of_a_heterograph_are_named_by_type, a_graph_of_two_types_and_one_relation_takes_a_tensor, narrow_ids_stay_narrow,
    functions_exclude_edges, draws_are_those_of_the_loader_that_excludes_nothing,
    scores_of_full_neighbourhoods_are_those_of_the_whole_graph, uniform_negatives_are_functions_of_seed_epoch_minibatch_and_position,
    uniform_negatives_are_uniform, functions_draw_negatives_on_the_thread_that_iterates, a_state_continues_in_the_middle_of_an_epoch,
    a_loader_on_a_device_has_graphs_there, what_has_no_meaning_is_refused,
]  # fmt: skip

if __name__ == "__main__":
    json.dump(results_of(CHECKS), sys.stdout)
