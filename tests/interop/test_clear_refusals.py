"""Attributes, options and files that our loaders and converters cannot take are refused in words that say what to do."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import bulksample as bs
from bulksample.data import edgelist, ogb_raw
from bulksample.interop.pyg import (
    BulkSampler,
    ClusterData,
    ClusterLoader,
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

EDGES = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])


def data(**columns):
    return Data(x=torch.ones(6, 2), edge_index=EDGES, **columns)


def typed(names):
    made = HeteroData()
    made["a"].x, made["a"].names = torch.ones(6, 2), names
    made["a", "to", "a"].edge_index = EDGES
    return made


def near(**options):
    """The batches of a loader of a graph of six vertices."""
    return list(NeighborLoader(data(), [1], **options))


def hgt(**options):
    return HGTLoader(typed(None), [2], **{"input_nodes": "a", **options})


def masks(splits):
    return torch.ones(6, splits, dtype=torch.bool)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: NeighborLoader(data(names=list("abcdef")), [1]), "names: got a list of 6, one for each vertex or edge"),
    (lambda: LinkNeighborLoader(data(names=list("abcdef")), [1]), "names: got a list of 6"),
    (lambda: NeighborLoader(typed(list("abcdef")), [1], input_nodes="a"), "names: got a list of 6"),
    (lambda: NeighborLoader(data(t=torch.arange(6)), [1], input_time="now", time_attr="t"), "input_time: got a str; use a tensor"),
    (lambda: NeighborLoader(data(), [1], memory_budget="1GB"), "memory_budget must be a positive whole number of bytes; got '1GB'"),
    (lambda: ClusterLoader(ClusterData(data(), 2), memory_budget=0), "memory_budget must be a positive whole number of bytes; got 0"),
    (lambda: NeighborLoader(data(w=torch.ones(6)), [1], sampler="full", weight_attr="w"), r"orders the examples.*got .full..*BulkSampler"),
    (lambda: NeighborLoader(data(), [1], neighbor_sampler=BulkSampler(data(), [1]), seed=3), "seed: the neighbor_sampler has its own"),
    (lambda: NeighborLoader(data(), [1], comm="gloo"), "comm: got a str; use what"),
    (lambda: hgt(input_time=torch.arange(6)), "input_time: HGSampling draws without times.*; use NeighborLoader"),
    (lambda: hgt(batchsize=2), "batchsize: HGTLoader has no such option; use batch_size, or leave it out"),
    (lambda: hgt(input_nodes=torch.tensor([])), "input_nodes: got a Tensor of shape .*; name their type"),
    (lambda: hgt(input_nodes=("a", torch.tensor([]))), r"input_nodes: got float32 of shape \(0,\); use integer ids"),
    (lambda: near(input_nodes=("a", [1])), "and the graph has no types; use ids or a mask"),
    (lambda: ShaDowKHopSampler(data(), 1, 2, input_id=EDGES[0]), "input_id: ShaDowKHopSampler has no such option; leave it out"),
    (lambda: near(input_id=torch.arange(3)), "input_id: got 3 for 6 input nodes; use one for each"),
    (lambda: near(subgraph_type="both"), "subgraph_type: got 'both'; use directional, bidirectional, induced"),
    (lambda: near(transform="x"), "transform: got a str; use a function"),
    (lambda: near(batch_size=2.0), "batch_size must be a whole number of at least 1; got 2.0"),
    (lambda: near(num_workers=-1), "num_workers must be a whole number of at least 0; got -1"),
    (lambda: near(shuffle="yes"), "shuffle must be true or false; got 'yes'"),
    (lambda: near(sampler=3), "sampler orders the examples, as in torch; got a int; use positions"),
    (lambda: near(sampler=[0], shuffle=True), "sampler orders the examples, and so does shuffle; use one of them"),
    (lambda: near(sampler=[0, 9]), "your sampler gave the position 9, and there are 6 examples; use 0 to 5"),
    (lambda: near(sampler=[-1]), "your sampler gave the position -1"),
    (lambda: near(sampler=[0.5]), r"your sampler gave array\(\[0.5\]\) for a mini-batch; use a list of whole numbers from 0 to 5"),
    (lambda: near(batch_sampler=[0, 1]), r"your sampler gave array\(0\) for a mini-batch"),
    (lambda: list(ShaDowKHopSampler(data(), 1, 2, node_idx=[1], sampler=[1])), "gave the position 1, and there are 1 examples"),
    (lambda: NeighborLoader(data(w="heavy"), [1], weight_attr="w"), "weight 'w': got a str; use a tensor"),
    (lambda: NeighborLoader(typed(None), {("a", "to", "a"): None}, input_nodes="a"), "num_neighbors: "),
    (lambda: NeighborLoader((1, 2), [1]), "data: use a Data or a HeteroData of torch_geometric, or a pair .*; got a tuple of int, int"),
    (lambda: near(neighbor_sampler=BulkSampler(Data(edge_index=EDGES[:, :2], num_nodes=3), [1])),
     "neighbor_sampler: got one of 3 vertices, and the graph has 6; make both from one graph"),
    (lambda: ClusterData(data(), "2"), "num_parts must be a whole number of at least 1; got '2'"),
    (lambda: ClusterData(data(), 2, seed="a"), "seed must be a 64-bit number: got 'a'"),
])  # fmt: skip
def test_options_of_loaders(make, words):
    with pytest.raises(bs.UsageError, match=words):
        make()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: NeighborLoader(Data(edge_index=torch.tensor([[0], [2**40]])), [1]), "1099511627777 vertices.*number them from 0"),
    (lambda: bs.from_pyg(data(edge_attr=torch.tensor([1.0, -1, 1, 1, 1, 1]))), "edge_attr: entry 1 is -1.0.*use weight_attr=None"),
    (lambda: bs.from_pyg(data(train_mask=masks(10))), r"train_mask: holds 10 splits.*such as .* = data.train_mask\[:, 0\]"),
])  # fmt: skip
def test_graphs_of_other_libraries(make, words):
    with pytest.raises(bs.DataError, match=words):
        make()


@pytest.mark.parametrize(("lines", "read", "hint"), [
    ("ann bob\nbob eve\n", edgelist.read, True),
    ("-1 2\n0 1\n", edgelist.read, True),
    ("0 1\nsource target\n", edgelist.read, True),
    ("source,target\n0,1\n", lambda path: ogb_raw.integer_table(path, 2), False),  # which has no names
])  # fmt: skip
def test_names_in_place_of_integers(tmp_path, lines, read, hint):
    (tmp_path / "e.txt").write_text(lines)
    with pytest.raises(bs.DataError, match=r"line [12]: .* is not an integer") as raised:
        read(tmp_path / "e.txt")
    assert ("ids='text' takes names" in str(raised.value)) == hint


def test_lists_and_arrays_serve_as_tensors_do():
    """Times and labels as a numpy array or a list give the batches of tensors."""
    timed = data(t=torch.arange(6))
    pairs = [
        [NeighborLoader(timed, [1], input_time=time, time_attr="t", batch_size=2) for time in (torch.arange(6), np.arange(6))],
        [LinkNeighborLoader(data(), [1], edge_label_index=EDGES, edge_label=own, neg_sampling="binary", batch_size=2)
         for own in (torch.zeros(6, dtype=torch.int64), [0] * 6)],
    ]  # fmt: skip
    for first, second in pairs:
        for one, other in zip(first, second, strict=True):
            assert torch.equal(one.n_id, other.n_id)
            assert torch.equal(getattr(one, "edge_label", one.n_id), getattr(other, "edge_label", other.n_id))


def test_the_full_sampler_takes_all_edges_of_positive_weight():
    weighed = data(w=torch.tensor([1.0, 0, 2, 0, 3, 0]))
    loader = NeighborLoader(weighed, [-1], batch_size=6, neighbor_sampler=BulkSampler(weighed, [-1], sampler="full", weight_attr="w"))
    assert sorted(next(iter(loader)).e_id.tolist()) == [0, 2, 4]


def test_no_examples_and_numbers_of_numpy_are_taken():
    assert near(input_nodes=[], shuffle=True) == []
    assert [batch.input_id.tolist() for batch in near(batch_size=np.int64(4), input_id=torch.arange(6) + 10)] == [
        [10, 11, 12, 13],
        [14, 15],
    ]
    assert list(hgt(input_nodes=("a", []), shuffle=True)) == []
    links = LinkNeighborLoader(data(), [1], EDGES, batch_size=4, input_id=torch.arange(6) + 10)
    assert [batch.input_id.tolist() for batch in links] == [[10, 11, 12, 13], [14, 15]]


def test_what_a_sampler_of_the_user_has_may_be_said_again():
    loader = NeighborLoader(data(), [1], batch_size=6, neighbor_sampler=BulkSampler(data(), [1], seed=3), seed=3)
    assert len(list(loader)) == len(loader)
