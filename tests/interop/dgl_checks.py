"""Checks of the DGL loaders as plain functions: `python dgl_checks.py` runs them in any Python that has DGL and prints the results."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import sys
import traceback
from itertools import chain, pairwise

import dgl
import numpy as np
import torch

from bulksample import Loader, UsageError, from_dgl
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.dgl import DataLoader, FastGCNSampler, LaborSampler, LadiesSampler, MultiLayerFullNeighborSampler, NeighborSampler
from bulksample.samplers.hgt import HGSampler

SAMPLERS = {
    "sage": lambda: NeighborSampler([3, 5]),
    "sage by weight": lambda: NeighborSampler([3, 5], prob="w"),
    "sage with replacement": lambda: NeighborSampler([3, 5], replace=True),
    "full": lambda: MultiLayerFullNeighborSampler(2),
    "labor": lambda: LaborSampler([3, 5]),
    "ladies": lambda: LadiesSampler([30, 30]),
    "fastgcn": lambda: FastGCNSampler([60, 60]),
}


def graph_of(parallel=False, n=300, m=3000):
    rng = np.random.default_rng(1)
    ends = rng.integers(0, n - 30, (2, m * 3 if parallel else m))
    ends = ends % 90 if parallel else rng.permutation(np.unique(ends, axis=1), axis=1)
    graph = dgl.graph((torch.from_numpy(ends[0]), torch.from_numpy(ends[1])), num_nodes=n)
    graph.ndata["feat"] = torch.arange(n * 2.0).view(n, 2)
    graph.ndata["label"] = torch.arange(n) % 4
    graph.edata["w"] = torch.from_numpy(rng.integers(1, 9, graph.num_edges())).float()
    return graph


def both():
    return [graph_of(), graph_of(parallel=True)]


def blocks_are_exact():
    """Blocks fit together, and their edges and features are those of the graph, for every sampler."""
    for graph in both():
        for name, made in SAMPLERS.items():
            seen = []
            for inputs, outputs, blocks in DataLoader(graph, torch.arange(0, 300, 2), made(), batch_size=40, shuffle=True):
                assert torch.equal(blocks[0].srcdata[dgl.NID], inputs)
                assert torch.equal(blocks[-1].dstdata[dgl.NID], outputs)
                assert torch.equal(blocks[0].dstdata[dgl.NID], blocks[1].srcdata[dgl.NID])
                for block in blocks:
                    source, destination = block.edges()
                    found = graph.find_edges(block.edata[dgl.EID])
                    assert torch.equal(found[0], block.srcdata[dgl.NID][source]), name
                    assert torch.equal(found[1], block.dstdata[dgl.NID][destination]), name
                    assert torch.equal(block.srcdata[dgl.NID][: block.num_dst_nodes()], block.dstdata[dgl.NID])
                    assert torch.equal(block.srcdata["feat"], graph.ndata["feat"][block.srcdata[dgl.NID]])
                    assert torch.equal(block.edata["w"], graph.edata["w"][block.edata[dgl.EID]])
                    assert ("weight" in block.edata) == (name in ("ladies", "fastgcn"))
                assert torch.equal(blocks[-1].dstdata["label"], graph.ndata["label"][outputs])
                seen += outputs.tolist()
            assert sorted(seen) == list(range(0, 300, 2)), name


def prefetched_features_are_of_their_own_batch():
    """Batches that are kept, and changed, share no memory; a name that the graph does not have is refused."""
    graph = graph_of()
    sampler = NeighborSampler([3, 5], prefetch_node_feats=["feat", "label"], prefetch_labels=["label"])
    kept = []
    for inputs, _, blocks in DataLoader(graph, torch.arange(300), sampler, batch_size=40):
        assert torch.equal(blocks[0].srcdata["feat"], graph.ndata["feat"][inputs])
        assert torch.equal(blocks[0].srcdata["label"], graph.ndata["label"][inputs])
        blocks[0].srcdata["feat"] += len(kept)
        kept.append((inputs, blocks[0].srcdata["feat"]))
    assert all(torch.equal(features, graph.ndata["feat"][inputs] + i) for i, (inputs, features) in enumerate(kept))
    wrong = message_of(lambda: DataLoader(graph, torch.arange(300), NeighborSampler([3, 5], prefetch_node_feats=["feet"])))
    assert "no vertex feature 'feet'; it has feat, label" in wrong


def degrees_keep_to_the_fanouts():
    """The fanouts are in DGL's order: the last is that of the seeds; parallel edges count one by one."""
    for graph in both():
        for _, _, blocks in DataLoader(graph, torch.arange(300), NeighborSampler([3, 5]), batch_size=50):
            for block, fanout in zip(blocks, (3, 5), strict=True):
                expected = graph.in_degrees(block.dstdata[dgl.NID]).clamp(max=fanout)
                assert torch.equal(block.in_degrees(), expected)
                assert len(block.edata[dgl.EID].unique()) == block.num_edges()


def full_neighbourhoods_give_what_the_whole_graph_gives():
    from dgl.nn import SAGEConv

    torch.manual_seed(1)
    layers = [SAGEConv(2, 8, "mean"), SAGEConv(8, 4, "mean")]
    for graph in both():
        with torch.no_grad():
            whole = layers[1](graph, layers[0](graph, graph.ndata["feat"] / 600).relu())
            for _, outputs, blocks in DataLoader(graph, torch.arange(300), MultiLayerFullNeighborSampler(2), batch_size=64):
                out = layers[1](blocks[1], layers[0](blocks[0], blocks[0].srcdata["feat"] / 600).relu())
                torch.testing.assert_close(out, whole[outputs])


def weights_of_a_layer_add_up_to_one():
    for graph in both():
        for _, _, blocks in DataLoader(graph, torch.arange(100), LadiesSampler([40, 40]), batch_size=20):
            for block in blocks:
                total = torch.zeros(block.num_dst_nodes()).index_add_(0, block.edges()[1], block.edata["weight"])
                kept = block.in_degrees() > 0
                torch.testing.assert_close(total[kept], torch.ones(int(kept.sum())))


def neither_bulk_nor_back_end_changes_a_minibatch():
    def all_of(**options):
        loader = DataLoader(graph_of(), torch.arange(300), NeighborSampler([4, 4]), batch_size=32, shuffle=True, seed=3, **options)
        return [torch.cat([inputs, blocks[0].edata[dgl.EID]]).tolist() for _ in range(2) for inputs, _, blocks in loader]

    expected = all_of(bulk_size=1)
    assert expected[0] != expected[10]
    assert all_of() == all_of(bulk_size=4) == all_of(backend="reference") == expected


def ranks_deal_minibatches_in_turn():
    def outputs_of(comm=None):
        loader = DataLoader(graph_of(), torch.arange(300), NeighborSampler([4]), batch_size=32, shuffle=True, comm=comm)
        return [outputs.tolist() for _, outputs, _ in loader]

    alone = outputs_of()
    assert on_threads(3, outputs_of) == [alone[0::3], alone[1::3], alone[2::3]]


def a_state_continues_in_the_middle_of_an_epoch():
    """Also on another number of ranks; one uninterrupted loader is what it must equal."""

    def made(comm=None, **options):
        return DataLoader(graph_of(), torch.arange(300), NeighborSampler([4, 4]), batch_size=32, shuffle=True, seed=3, comm=comm, **options)

    def named(batches):
        return [torch.cat([inputs, blocks[0].edata[dgl.EID]]).tolist() for inputs, _, blocks in batches]

    def state_after(steps, comm=None):
        loader = made(comm)
        for _ in zip(range(steps), loader, strict=False):
            pass
        return json.loads(json.dumps(loader.state_dict()))

    def rest(state, comm=None):
        loader = made(comm, bulk_size=2)
        loader.load_state_dict(state)
        return named(loader)

    whole, state = named(made()), state_after(4)
    assert rest(state) == whole[4:]
    assert on_threads(2, lambda comm: rest(state, comm)) == [whole[4::2], whole[5::2]]
    shared = on_threads(3, lambda comm: state_after(2, comm))[0]
    assert rest(shared) == whole[6:]
    other = DataLoader(graph_of(), torch.arange(300), NeighborSampler([4]), batch_size=32, shuffle=True, seed=3)
    assert "does not fit: sampler" in message_of(lambda: other.load_state_dict(state))


def a_pickled_loader_goes_on_where_its_state_stands():
    """Also of a heterograph; batches have the edges that the loader itself yields."""

    def read(batches):
        return [[block.edata[dgl.EID] for block in blocks] for _, _, blocks in batches]

    for graph, seeds in ((graph_of(), torch.arange(0, 300, 2)), (heterograph_of(), {"paper": torch.arange(40)})):
        loader = DataLoader(graph, seeds, NeighborSampler([3, 5]), batch_size=10, shuffle=True)
        batches = iter(loader)
        read([next(batches)])
        copied = pickle.loads(pickle.dumps(loader))
        for ours, theirs in zip(read(copied), read(batches), strict=True):
            assert all(_equal(*pair) for pair in zip(ours, theirs, strict=True))


def _equal(one, other):
    if not isinstance(one, dict):
        return torch.equal(one, other)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def masks_and_lengths():
    graph = graph_of()
    mask = torch.arange(300) < 70
    loader = DataLoader(graph, mask, NeighborSampler([2]), batch_size=32, num_workers=2)
    assert [len(outputs) for _, outputs, _ in loader] == [32, 32, 6]
    assert len(loader) == 3
    assert len(DataLoader(graph, mask, NeighborSampler([2]), batch_size=32, drop_last=True)) == 2


def narrow_ids_stay_narrow():
    for inputs, _, blocks in DataLoader(graph_of().int(), torch.arange(50), NeighborSampler([2]), batch_size=32):
        assert inputs.dtype == blocks[0].edata[dgl.EID].dtype == blocks[0].idtype == torch.int32


def bound_to_cores_the_batches_are_the_same():
    """DGL's own loader takes the same arguments; with one core there is nothing to divide."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(usable) < 2:
        return
    assert list(inspect.signature(dgl.dataloading.DataLoader.enable_cpu_affinity).parameters) == [
        "self", "loader_cores", "compute_cores", "verbose",
    ]  # fmt: skip

    def read(loader):
        return [torch.cat([inputs, blocks[0].edata[dgl.EID]]).tolist() for inputs, _, blocks in loader]

    def made():
        return DataLoader(graph_of(), torch.arange(300), NeighborSampler([4, 4]), batch_size=32, shuffle=True, seed=3, num_workers=1)

    loader, threads = made(), torch.get_num_threads()
    with loader.enable_cpu_affinity(usable[:1], usable[1:2], verbose=False):
        assert (os.sched_getaffinity(0), torch.get_num_threads()) == ({usable[1]}, 1)
        assert read(loader) == read(made())
    assert (sorted(os.sched_getaffinity(0)), torch.get_num_threads()) == (usable, threads)


def hidden_edges_stay_hidden():
    """An edge of weight 0, or that a mask leaves out, is in no block, be it drawn or all: on 300 vertices and on two types."""
    made = {
        "all": lambda **how: NeighborSampler([-1, -1], **how), "drawn": lambda **how: NeighborSampler([3, 400], **how),
        "full": lambda **how: MultiLayerFullNeighborSampler(2, **how),
    }  # fmt: skip
    by_weight = {"labor": lambda: LaborSampler([-1, -1], prob="w"), "ladies": lambda: LadiesSampler([-1, -1], prob="w")}
    for graph in [*both(), heterograph_of()]:
        typed = len(graph.ntypes) > 1
        for key in graph.canonical_etypes:
            edges = graph.edges[key].data
            edges["w"] = (torch.arange(graph.num_edges(key)) % 3).float()
            edges["m"] = edges["w"] > 0
        seeds = {graph.ntypes[0]: torch.arange(20)} if typed else torch.arange(40)
        samplers = [law(**how) for law in made.values() for how in ({"prob": "w"}, {"mask": "m"})]
        for sampler in samplers + [law() for name, law in by_weight.items() if name != "labor" or graph.is_homogeneous]:
            for _, _, blocks in DataLoader(graph, seeds, sampler, batch_size=20):
                for block in blocks:
                    for key in block.canonical_etypes:
                        assert graph.edges[key].data["m"][block.edges[key].data[dgl.EID]].all()
        for sampler in samplers[:2] + samplers[4:]:  # all
            for _, _, blocks in DataLoader(graph, seeds, sampler, batch_size=20):
                for key in blocks[-1].canonical_etypes:
                    into = blocks[-1].dstnodes[key[2]].data[dgl.NID]
                    shown = torch.bincount(graph.edges(etype=key)[1][graph.edges[key].data["m"]], minlength=graph.num_nodes(key[2]))
                    assert torch.equal(blocks[-1].in_degrees(etype=key), shown[into].to(blocks[-1].idtype))


def message_of(call):
    """The message of a `UsageError`, or nothing if none is raised."""
    try:
        call()
    except UsageError as error:
        return str(error)
    return ""


def what_has_no_meaning_is_refused():
    graph = graph_of()
    refused = {
        "2 times": lambda: DataLoader(graph, torch.tensor([4, 5, 4]), NeighborSampler([2])),
        "edge_dir": lambda: NeighborSampler([2], edge_dir="out"),
        "use one of them": lambda: NeighborSampler([2], prob="w", mask="m"),
        "no edge feature 'q'": lambda: DataLoader(graph, torch.arange(4), NeighborSampler([2], prob="q")),
        "use_ddp": lambda: DataLoader(graph, torch.arange(4), NeighborSampler([2]), use_ddp=True),
        "use_uva": lambda: DataLoader(graph, torch.arange(4), NeighborSampler([2]), use_uva=True),
        "no option batchsize": lambda: DataLoader(graph, torch.arange(4), NeighborSampler([2]), batchsize=3),
        "graph_sampler": lambda: DataLoader(graph, torch.arange(4), dgl.dataloading.NeighborSampler([2])),
    }
    for says, call in refused.items():
        assert says in message_of(call), says


def heterograph_of():
    """Papers, authors and venues; parallel edges, a relation without edges, and weights on one relation."""
    rng, counts = np.random.default_rng(2), {"paper": 120, "author": 60, "venue": 5}
    sizes = {
        ("author", "writes", "paper"): 400,
        ("paper", "cites", "paper"): 500,
        ("paper", "in", "venue"): 120,
        ("venue", "of", "author"): 0,
    }
    ends = {key: tuple(torch.from_numpy(rng.integers(0, counts[key[2 * i]], m)) for i in (0, 1)) for key, m in sizes.items()}
    graph = dgl.heterograph(ends, num_nodes_dict=counts)
    for kind, n in counts.items():
        graph.nodes[kind].data["feat"] = torch.arange(n * 2.0).view(n, 2) + len(kind)
    graph.edges["cites"].data["w"] = torch.from_numpy(rng.integers(0, 3, 500)).float()
    return graph


SEEDS = {"paper": torch.arange(0, 120, 2), "author": torch.arange(60) % 3 == 0}
TYPED = {"paper": set(range(0, 120, 2)), "author": set(range(0, 60, 3))}


def blocks_of_a_heterograph_are_exact():
    """Vertices, edges and features by type are those of the graph, each seed comes once, and fanouts are kept by relation."""
    graph = heterograph_of()
    by_type = [{"writes": 2, "cites": 3, "in": 1, "of": 1}, {"writes": 4, "cites": 0, "in": -1, "of": 2}]
    made = {"list": NeighborSampler([2, 4]), "dict": NeighborSampler(by_type), "weight": NeighborSampler([2, 4], prob="w")}
    for name, sampler in made.items():
        seen = {kind: [] for kind in TYPED}
        for inputs, outputs, blocks in DataLoader(graph, SEEDS, sampler, batch_size=16, shuffle=True, seed=4):
            assert sum(map(len, outputs.values())) <= 16
            for kind in graph.ntypes:
                assert torch.equal(blocks[0].srcnodes[kind].data[dgl.NID], inputs[kind])
                assert torch.equal(blocks[-1].dstnodes[kind].data[dgl.NID], outputs.get(kind, torch.empty(0, dtype=torch.int64)))
                assert torch.equal(blocks[0].dstnodes[kind].data[dgl.NID], blocks[1].srcnodes[kind].data[dgl.NID])
            for kind, ids in outputs.items():
                seen[kind] += ids.tolist()
            for layer, block in enumerate(blocks):
                for key in graph.canonical_etypes:
                    source, destination = block.edges(etype=key)
                    ids = block.edges[key].data[dgl.EID]
                    found = graph.find_edges(ids, etype=key)
                    assert torch.equal(found[0], block.srcnodes[key[0]].data[dgl.NID][source]), (name, key)
                    assert torch.equal(found[1], block.dstnodes[key[2]].data[dgl.NID][destination]), (name, key)
                    assert len(ids.unique()) == len(ids)
                    fanout = by_type[layer][key[1]] if name == "dict" else (2, 4)[layer]
                    whole = graph.in_degrees(block.dstnodes[key[2]].data[dgl.NID], etype=key)
                    if name != "weight" or key[1] != "cites":
                        assert torch.equal(block.in_degrees(etype=key), whole if fanout == -1 else whole.clamp(max=fanout)), (name, key)
                    if key[1] == "cites" and len(ids):
                        assert torch.equal(block.edges[key].data["w"], graph.edges[key].data["w"][ids])
                        assert name != "weight" or (block.edges[key].data["w"] > 0).all()
                for kind in graph.ntypes:
                    own = block.srcnodes[kind].data
                    assert torch.equal(own["feat"], graph.nodes[kind].data["feat"][own[dgl.NID]])
        assert {kind: set(ids) for kind, ids in seen.items()} == TYPED
        assert {kind: len(ids) for kind, ids in seen.items()} == {kind: len(ids) for kind, ids in TYPED.items()}


def layers_of_a_heterograph_are_drawn_from_all_types_together():
    """A hop finds at most its count of vertices, all edges from them are there, and the weights into a vertex add up to 1."""
    graph, found_of_type = heterograph_of(), dict.fromkeys(("paper", "author", "venue"), 0)
    for sampler in (LadiesSampler([20, 30]), FastGCNSampler([20, 30])):
        for _, _, blocks in DataLoader(graph, SEEDS, sampler, batch_size=16, shuffle=True, seed=4):
            for block, most in zip(blocks, (20, 30), strict=True):
                new = {kind: block.srcnodes[kind].data[dgl.NID][block.num_dst_nodes(kind) :] for kind in graph.ntypes}
                assert 0 < sum(map(len, new.values())) <= most
                total = {kind: torch.zeros(block.num_dst_nodes(kind)) for kind in graph.ntypes}
                for key in graph.canonical_etypes:
                    source, destination = block.edges(etype=key)
                    data, into = block.edges[key].data, block.dstnodes[key[2]].data[dgl.NID]
                    ends = graph.find_edges(data[dgl.EID], etype=key)
                    assert torch.equal(ends[0], block.srcnodes[key[0]].data[dgl.NID][source])
                    assert torch.equal(ends[1], into[destination])
                    every = graph.edges(etype=key, form="all")
                    kept = every[2][torch.isin(every[0], new[key[0]]) & torch.isin(every[1], into)]
                    assert set(kept.tolist()) <= set(data[dgl.EID].tolist())
                    found_of_type[key[0]] += len(kept)
                    total[key[2]].index_add_(0, destination, data["weight"])
                for kind, sums in total.items():
                    reached = sum(block.in_degrees(etype=key) for key in graph.canonical_etypes if key[2] == kind) > 0
                    torch.testing.assert_close(sums[reached], torch.ones(int(reached.sum())), msg=kind)
    assert found_of_type["paper"]
    assert found_of_type["author"]


def full_neighbourhoods_of_a_heterograph_give_what_the_whole_graph_gives():
    from dgl.nn import HeteroGraphConv, SAGEConv

    torch.manual_seed(1)
    graph = heterograph_of()
    layers = [HeteroGraphConv({key[1]: SAGEConv(2, 2, "mean") for key in graph.canonical_etypes}, "sum") for _ in range(2)]
    with torch.no_grad():
        whole = {kind: graph.nodes[kind].data["feat"] / 100 for kind in graph.ntypes}
        for layer in layers:
            whole = {**{kind: torch.zeros_like(x) for kind, x in whole.items()}, **layer(graph, whole)}
        for inputs, outputs, blocks in DataLoader(graph, {"paper": torch.arange(120)}, MultiLayerFullNeighborSampler(2), batch_size=50):
            h = {kind: graph.nodes[kind].data["feat"][ids] / 100 for kind, ids in inputs.items()}
            for layer, block in zip(layers, blocks, strict=True):
                made = layer(block, h)
                h = {kind: made.get(kind, torch.zeros(block.num_dst_nodes(kind), 2)) for kind in graph.ntypes}
            torch.testing.assert_close(h["paper"], whole["paper"][outputs["paper"]])


def neither_bulk_nor_back_end_changes_a_minibatch_of_a_heterograph():
    def all_of(comm=None, **options):
        loader = DataLoader(heterograph_of(), SEEDS, NeighborSampler([3, 3]), batch_size=16, shuffle=True, seed=3, comm=comm, **options)
        return [[inputs["paper"].tolist(), blocks[0].edges["cites"].data[dgl.EID].tolist()] for inputs, _, blocks in loader]

    expected = all_of(bulk_size=1)
    assert all_of() == all_of(bulk_size=3) == all_of(backend="reference") == expected
    assert on_threads(2, all_of) == [expected[0::2], expected[1::2]]


def what_has_no_meaning_on_a_heterograph_is_refused():
    graph, seeds = heterograph_of(), {"paper": torch.arange(4)}
    refused = {
        "use {type: vertices}": lambda: DataLoader(graph, torch.arange(1), NeighborSampler([2])),
        "indices of type 'paper' name vertex 4 2 times": lambda: DataLoader(graph, {"paper": [4, 5, 4]}, NeighborSampler([2])),
        "has no type 'book'": lambda: DataLoader(graph, {"book": [0]}, NeighborSampler([2])),
        "fanouts name no edge type": lambda: DataLoader(graph, seeds, NeighborSampler([{"cites": 3}])),
        "a dict by edge type for every layer": lambda: NeighborSampler([{"cites": 3}, 2]),
        "LadiesSampler draws vertices of all types together": lambda: DataLoader(graph, seeds, LadiesSampler([{"cites": 3}])),
        "no relation has an edge feature 'q'": lambda: DataLoader(graph, seeds, NeighborSampler([2], prob="q")),
        "no vertex feature 'feet'": lambda: DataLoader(graph, seeds, NeighborSampler([2], prefetch_node_feats={"paper": ["feet"]})),
        "the graph has one type": lambda: DataLoader(graph_of(), [1], NeighborSampler([{"to": 3}])),
    }
    for says, call in refused.items():
        assert says in message_of(call), (says, message_of(call))


def a_heterograph_becomes_a_graph_with_times_and_parallel_edges():
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    ends = {writes: (torch.tensor([2, 0, 0, 0, 1]), torch.tensor([0, 3, 3, 1, 3])), cites: (torch.tensor([0, 1]), torch.tensor([1, 0]))}
    graph = dgl.heterograph(ends)
    graph.nodes["paper"].data["feat"] = torch.arange(8.0).view(4, 2)
    graph.nodes["paper"].data["time"] = torch.tensor([5, 6, 7, 8])
    graph.edges["writes"].data["time"] = torch.tensor([50, 40, 30, 20, 10])
    graph.edges["cites"].data["w"] = torch.tensor([1.0, 3.0])
    found = from_dgl(graph)
    assert [(kind.name, kind.count) for kind in found.types] == [(kind, graph.num_nodes(kind)) for kind in graph.ntypes]
    np.testing.assert_array_equal(found.type("paper").features, graph.nodes["paper"].data["feat"])
    np.testing.assert_array_equal(found.type("paper").times, [5, 6, 7, 8])
    for key, (sources, destinations) in ends.items():
        relation = found.relation(key)
        ids = relation.ids_of(np.arange(relation.edges))
        np.testing.assert_array_equal(relation.adjacency.indices, sources[ids])
        np.testing.assert_array_equal(relation.adjacency.row_of_entry(), destinations[ids])
    np.testing.assert_array_equal(found.relation(writes).times, np.array([50, 40, 30, 20, 10])[found.relation(writes).edge_ids])
    cited = found.relation(cites)
    np.testing.assert_allclose(cited.adjacency.values * cited.weight_unit, np.array([1.0, 3.0])[cited.edge_ids])


def batches_of_a_heterograph_are_blocks():
    """`Batch.to_dgl` gives blocks whose edges, features and labels are those of the graph."""
    graph = heterograph_of()
    typed = from_dgl(graph)
    for frontier in ("all", "new"):
        options = {"seeds": {"paper": np.arange(30)}, "batch_size": 7, "seed": 1, "out": "numpy"}
        hgt = [HGSampler({"paper": (5, 4)[:hops], "author": (3, 3)[:hops], "venue": (2, 2)[:hops]}) for hops in (1, 2)]
        neighbors = Loader(typed, fanouts=[3, 2], frontier=frontier, **options)
        for batch in chain(neighbors, *(Loader(typed, one, **options) for one in hgt)):
            inputs, outputs, blocks = batch.to_dgl()
            assert outputs["paper"].tolist() == batch.minibatch.rows["paper"].seeds.tolist()
            for name, ids in inputs.items():
                assert torch.equal(blocks[0].srcnodes[name].data[dgl.NID], ids)
                assert ids.tolist() == batch.vertices[name].tolist()
            for name, x in batch.x_dict.items():
                np.testing.assert_array_equal(blocks[0].srcnodes[name].data["feat"].numpy(), x)
            for first, second in pairwise(blocks):
                for name in inputs:
                    assert torch.equal(first.dstnodes[name].data[dgl.NID], second.srcnodes[name].data[dgl.NID])
            for block in blocks:
                for key in block.canonical_etypes:
                    source, destination = block.edges(etype=key)
                    found = graph.find_edges(block.edges[key].data[dgl.EID].to(graph.idtype), etype=key)
                    assert found[0].tolist() == block.srcnodes[key[0]].data[dgl.NID][source.long()].tolist()
                    assert found[1].tolist() == block.dstnodes[key[2]].data[dgl.NID][destination.long()].tolist()
            assert sum(block.num_edges() for block in blocks[:1]) == sum(one.num_edges for one in batch.blocks[0].values()) > 0


CHECKS = [
    blocks_are_exact, prefetched_features_are_of_their_own_batch, degrees_keep_to_the_fanouts,
    full_neighbourhoods_give_what_the_whole_graph_gives, weights_of_a_layer_add_up_to_one,
    neither_bulk_nor_back_end_changes_a_minibatch, ranks_deal_minibatches_in_turn, a_state_continues_in_the_middle_of_an_epoch,
    a_pickled_loader_goes_on_where_its_state_stands,
    masks_and_lengths, narrow_ids_stay_narrow, bound_to_cores_the_batches_are_the_same, hidden_edges_stay_hidden,
    what_has_no_meaning_is_refused, blocks_of_a_heterograph_are_exact,
    layers_of_a_heterograph_are_drawn_from_all_types_together, full_neighbourhoods_of_a_heterograph_give_what_the_whole_graph_gives,
    neither_bulk_nor_back_end_changes_a_minibatch_of_a_heterograph, what_has_no_meaning_on_a_heterograph_is_refused,
    a_heterograph_becomes_a_graph_with_times_and_parallel_edges, batches_of_a_heterograph_are_blocks,
]  # fmt: skip


def results_of(checks):
    """The traceback of every check that fails, "" for one that passes."""
    found = {}
    for check in checks:
        try:
            check()
            found[check.__name__] = ""
        except Exception:
            found[check.__name__] = traceback.format_exc()
    return found


if __name__ == "__main__":
    json.dump(results_of(CHECKS), sys.stdout)
