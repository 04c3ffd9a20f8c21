"""Every batch is exact: its edges are the user's, attributes belong to them, degrees keep to the fanouts, nothing is lost."""

import numpy as np
import pytest
import torch
from pyg_graphs import assert_exact, in_degrees, make_data
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph
from zoo import ZOO

from bulksample.interop.pyg import FastGCNLoader, LaborLoader, LadiesLoader, NeighborLoader

SAGE = [
    {}, {"disjoint": True}, {"weight_attr": "weight"}, {"disjoint": True, "weight_attr": "weight"}, {"replace": True}, {"num_workers": 2},
    {"num_workers": 2, "filter_per_worker": False}, {"bulk_size": 3}, {"backend": "reference"},
]  # fmt: skip


@pytest.mark.parametrize("options", SAGE, ids=str)
def test_neighbours_are_those_of_the_graph(data, options):
    loader = NeighborLoader(data, [4, 3], input_nodes=data.train_mask, batch_size=16, **options)
    seeds = data.train_mask.nonzero().view(-1)
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    for part, batch in zip(seeds.split(16), loader, strict=True):
        assert_exact(batch, data, part)
        torch.testing.assert_close(batch.input_id, part)  # of a mask, torch_geometric's input_id is the vertex
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        assert batch.num_sampled_nodes[0] == batch.batch_size == len(part)
        hop = np.repeat(np.arange(3), batch.num_sampled_nodes)
        fanout = torch.tensor([4, 3, 0])[hop]
        if options.get("replace"):
            expected = torch.where(degree[batch.n_id] > 0, fanout, 0)
        else:
            expected = torch.minimum(degree[batch.n_id], fanout)
            assert len(torch.unique(torch.stack([batch.e_id, batch.edge_index[1]]), dim=1)[0]) == batch.num_edges
        torch.testing.assert_close(in_degrees(batch), expected)


@pytest.mark.parametrize("disjoint", [False, True])
def test_edges_of_a_hop_end_at_the_hop_before(data, disjoint):
    for batch in NeighborLoader(data, [3, 3, 2], batch_size=10, disjoint=disjoint):
        hop = np.repeat(np.arange(4), batch.num_sampled_nodes)
        edge_hop = np.repeat(np.arange(3), batch.num_sampled_edges)
        np.testing.assert_array_equal(hop[batch.edge_index[1]], edge_hop)
        assert (hop[batch.edge_index[0]] <= edge_hop + 1).all()


def test_all_neighbours_are_the_k_hop_subgraph(data):
    for batch in NeighborLoader(data, [-1, -1], batch_size=7):
        seeds = batch.n_id[: batch.batch_size]
        nodes, _, _, _ = k_hop_subgraph(seeds, 2, data.edge_index, num_nodes=data.num_nodes)
        near, _, _, _ = k_hop_subgraph(seeds, 1, data.edge_index, num_nodes=data.num_nodes)
        torch.testing.assert_close(batch.n_id.sort().values, nodes)
        expected = torch.isin(data.edge_index[1], near).nonzero().view(-1)
        torch.testing.assert_close(batch.e_id.sort().values, expected)


def test_all_neighbours_one_hop_at_a_time_of_disjoint_trees():
    data = make_data(60, 300)
    for batch in NeighborLoader(data, [-1, -1], batch_size=6, disjoint=True):
        assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()
        torch.testing.assert_close(batch.batch[:6], torch.arange(6))
        for tree in range(batch.batch_size):
            nodes, _, _, _ = k_hop_subgraph(int(batch.n_id[tree]), 2, data.edge_index, num_nodes=60)
            torch.testing.assert_close(batch.n_id[batch.batch == tree].sort().values, nodes)


def test_induced_subgraphs_hold_every_edge_among_their_vertices(data):
    for batch in NeighborLoader(data, [3, 2], batch_size=9, subgraph_type="induced"):
        assert_exact(batch, data, batch.n_id[: batch.batch_size])
        inside = torch.isin(data.edge_index, batch.n_id).all(dim=0).nonzero().view(-1)
        torch.testing.assert_close(batch.e_id.sort().values, inside)


def test_induced_disjoint_subgraphs_hold_every_edge_of_each_tree():
    data = make_data(60, 500, simple=False)
    for batch in NeighborLoader(data, [3], batch_size=5, subgraph_type="induced", disjoint=True):
        for tree in range(batch.batch_size):
            inside = torch.isin(data.edge_index, batch.n_id[batch.batch == tree]).all(dim=0).nonzero().view(-1)
            torch.testing.assert_close(batch.e_id[batch.batch[batch.edge_index[1]] == tree].sort().values, inside)


def test_bidirectional_subgraphs_turn_what_was_sampled():
    data = make_data()
    one_way = NeighborLoader(data, [3, 2], batch_size=9)
    for directed, batch in zip(one_way, NeighborLoader(data, [3, 2], batch_size=9, subgraph_type="bidirectional"), strict=True):
        torch.testing.assert_close(batch.n_id, directed.n_id)
        pairs = {*map(tuple, directed.edge_index.t().tolist())}
        assert {*map(tuple, batch.edge_index.t().tolist())} == pairs | {(v, u) for u, v in pairs}


@pytest.mark.long
def test_parallel_edges_are_drawn_one_by_one():
    """Vertex 0 has 6 edges from vertex 1 and 2 from vertex 2: all of 4 draws are distinct edges, and each edge has its chance."""
    data = Data(edge_index=torch.tensor([[1, 1, 2, 1, 1, 2, 1, 1], [0] * 8]), num_nodes=3, edge_attr=torch.arange(8))
    loader, counts = NeighborLoader(data, [4], input_nodes=[0], batch_size=1), torch.zeros(8)
    for _ in range(2000):
        (batch,) = loader
        assert len(batch.e_id.unique()) == 4
        counts[batch.e_id] += 1
    assert (counts / 2000 - 0.5).abs().max() < 4 * (0.25 / 2000) ** 0.5


def test_draws_by_weight_of_parallel_edges_follow_their_weights():
    data = Data(edge_index=torch.tensor([[1, 1, 2], [0] * 3]), num_nodes=3, w=torch.tensor([1.0, 3.0, 4.0]))
    loader, counts = NeighborLoader(data, [1], input_nodes=[0], batch_size=1, weight_attr="w"), torch.zeros(3)
    for _ in range(2000):
        (batch,) = loader
        counts[batch.e_id] += 1
    assert (counts / 2000 - torch.tensor([0.125, 0.375, 0.5])).abs().max() < 4 * (0.25 / 2000) ** 0.5


def test_weight_zero_is_never_drawn():
    data = make_data()
    data.weight[::3] = 0
    for batch in NeighborLoader(data, [5, 5], batch_size=50, weight_attr="weight"):
        assert (batch.weight > 0).all()


def test_repeated_seeds_each_have_their_row(data):
    seeds = torch.tensor([5, 7, 5, 9, 9, 5])
    for batch in NeighborLoader(data, [3, 3], input_nodes=seeds, batch_size=6):
        assert_exact(batch, data, seeds)
        torch.testing.assert_close(batch.input_id, torch.arange(6))
        edges = [set(batch.e_id[batch.edge_index[1] == row].tolist()) for row in range(6)]
        assert edges[0] == edges[2] == edges[5]
        assert edges[3] == edges[4]


@pytest.mark.parametrize("loader", [LaborLoader, LadiesLoader, FastGCNLoader])
def test_other_samplers_give_exact_batches(data, loader):
    for batch in loader(data, [20, 20], batch_size=30):
        assert_exact(batch, data, batch.n_id[: batch.batch_size])
        assert sum(batch.num_sampled_edges) == batch.num_edges
        if loader is not LaborLoader:
            assert batch.edge_weight.shape == (batch.num_edges,)


@pytest.mark.parametrize("loader", [LadiesLoader, FastGCNLoader])
def test_weights_of_a_vertex_add_up_to_one_over_all_its_parallel_edges(data, loader):
    for batch in loader(data, [40, 40], batch_size=30):
        total = torch.zeros(batch.num_nodes).index_add_(0, batch.edge_index[1], batch.edge_weight)
        torch.testing.assert_close(total[in_degrees(batch) > 0], torch.ones(int((in_degrees(batch) > 0).sum())))


def test_layer_wise_samplers_keep_all_edges_to_what_they_drew(data):
    for batch in LadiesLoader(data, [15], batch_size=20):
        seeds, drawn = batch.n_id[:20], batch.n_id[batch.edge_index[0]].unique()
        kept = (torch.isin(data.edge_index[1], seeds) & torch.isin(data.edge_index[0], drawn)).nonzero().view(-1)
        torch.testing.assert_close(batch.e_id.sort().values, kept)


@pytest.mark.parametrize("name", ZOO)
def test_graphs_on_which_samplers_go_wrong(name):
    matrix = ZOO[name]
    rows, columns = torch.from_numpy(matrix.row_of_entry()), torch.from_numpy(matrix.indices.astype(np.int64))
    data = Data(edge_index=torch.stack([columns, rows]), num_nodes=matrix.shape[0])
    seen = 0
    for batch in NeighborLoader(data, [5, 2], batch_size=13):
        torch.testing.assert_close(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        seen += batch.batch_size
    assert seen == data.num_nodes


def test_weighted_draws_with_replacement_follow_the_weights_of_the_edges():
    """Edges into one vertex, parallel ones too, are drawn in proportion to their weights, each draw alone."""
    edges, weight = torch.tensor([[1, 1, 2, 3], [0, 0, 0, 0]]), torch.tensor([1.0, 2.0, 0.0, 5.0])
    for parallel in (True, False):
        data = Data(edge_index=edges[:, not parallel :], weight=weight[not parallel :], num_nodes=4)
        loader = NeighborLoader(
            data, [4], torch.zeros(1000, dtype=torch.long), replace=True, weight_attr="weight", disjoint=True, batch_size=500
        )
        counts = sum(torch.bincount(batch.e_id, minlength=data.num_edges) for batch in loader)
        assert int(counts.sum()) == 4000
        share = data.weight / data.weight.sum()
        assert (counts / 4000 - share).abs().max() < 4.5 * 0.5 / 4000**0.5
        assert not counts[data.weight == 0].any()
