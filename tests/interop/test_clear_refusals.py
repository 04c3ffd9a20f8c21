"""Attributes, options and files that our loaders and converters cannot take are refused in words that say what to do."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import bulksample as bs
from bulksample.data import edgelist, ogb_raw
from bulksample.interop.pyg import BulkSampler, ClusterData, ClusterLoader, LinkNeighborLoader, NeighborLoader

EDGES = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])


def data(**columns):
    return Data(x=torch.ones(6, 2), edge_index=EDGES, **columns)


def typed(names):
    made = HeteroData()
    made["a"].x, made["a"].names = torch.ones(6, 2), names
    made["a", "to", "a"].edge_index = EDGES
    return made


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
    ("source target\n0 1\n", edgelist.read, True),
    ("-1 2\n0 1\n", edgelist.read, False),
    ("0 1\nsource target\n", edgelist.read, False),
    ("source,target\n0,1\n", lambda path: ogb_raw.integer_table(path, 2), False),  # which skips no line
])  # fmt: skip
def test_a_line_of_names_is_to_be_skipped(tmp_path, lines, read, hint):
    (tmp_path / "e.txt").write_text(lines)
    with pytest.raises(bs.DataError, match=r"line [12]: .* is not an integer") as raised:
        read(tmp_path / "e.txt")
    assert ("skip=1" in str(raised.value)) == hint


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


def test_what_a_sampler_of_the_user_has_may_be_said_again():
    loader = NeighborLoader(data(), [1], batch_size=6, neighbor_sampler=BulkSampler(data(), [1], seed=3), seed=3)
    assert len(list(loader)) == len(loader)
