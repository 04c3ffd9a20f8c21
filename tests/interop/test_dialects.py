"""A mini-batch in the words of torch_geometric and of DGL: the same vertices, edges and numbers, in the same memory."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from communities import community_graph
from torch_geometric.nn import GraphSAGE, SAGEConv
from torch_geometric.utils import trim_to_layer

import bulksample as bs
from bulksample.nn.aggregate import aggregate

A = community_graph(n=150, degree=10)
GRAPH = replace(A, edge_features=np.stack([A.adjacency.row_of_entry(), A.adjacency.indices], axis=1).astype(np.float32))


def batches(graph=GRAPH, **options):
    return list(
        bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 16, "seeds": "train", "seed": 5, "threads": 1, "out": "numpy", **options})
    )


def same_memory(tensor, array):
    return tensor.data_ptr() == array.ctypes.data


def test_a_batch_of_one_edge_set_is_a_data_of_torch_geometric():
    for batch in batches(frontier="new"):
        data = batch.to_pyg()
        assert same_memory(data.x, batch.x)
        assert same_memory(data.y, batch.y)
        assert same_memory(data.edge_attr, batch.edge_attr[0])
        np.testing.assert_array_equal(data.n_id, batch.vertices)
        np.testing.assert_array_equal(data.input_id, batch.seeds)
        source, target = (batch.vertices[ends] for ends in data.edge_index.numpy())
        np.testing.assert_array_equal(data.edge_attr, np.stack([target, source], axis=1))
        np.testing.assert_array_equal(GRAPH.adjacency.indices[data.e_id], source)
        assert (data.batch_size, data.num_nodes) == (len(batch.seeds), len(batch.vertices))
        assert (sum(data.num_sampled_nodes), sum(data.num_sampled_edges)) == (data.num_nodes, data.edge_index.shape[1])
        assert len(data.num_sampled_nodes) == len(data.num_sampled_edges) + 1 == 3
        data.validate()


def test_trimmed_layers_give_the_seeds_what_whole_ones_do():
    """torch_geometric trims what later layers do not need by the numbers of nodes and edges of each hop."""
    torch.manual_seed(0)
    model = GraphSAGE(8, 6, num_layers=2, out_channels=3).eval()
    for batch in batches(frontier="new"):
        data = batch.to_pyg()
        whole = model(data.x, data.edge_index)[: data.batch_size]
        hops = {"num_sampled_nodes_per_hop": data.num_sampled_nodes, "num_sampled_edges_per_hop": data.num_sampled_edges}
        torch.testing.assert_close(model(data.x, data.edge_index, **hops)[: data.batch_size], whole)
        x, edges, _ = trim_to_layer(1, data.num_sampled_nodes, data.num_sampled_edges, data.x, data.edge_index)
        assert len(x) == sum(data.num_sampled_nodes[:-1])
        assert edges.shape[1] == data.num_sampled_edges[0]


@pytest.mark.parametrize("layout", ["edge_index", "EdgeIndex", "adj_t"])
@pytest.mark.parametrize("frontier", ["new", "all"])
def test_every_layout_has_the_same_neighbors(layout, frontier):
    torch.manual_seed(0)
    conv = SAGEConv(8, 4)
    for batch in batches(frontier=frontier):
        data, block = batch.to_pyg(layout), batch.blocks[0]
        if frontier == "all":
            edges, size = data.adjs[0].edge_index, data.adjs[0].size
            assert size == (block.num_sources, block.num_destinations)
            found = conv((data.x, data.x[: size[1]]), edges)
        else:
            edges = data.adj_t if layout == "adj_t" else data.edge_index
            found = conv(data.x, edges)[: block.num_destinations]
        own = data.x[: block.num_destinations]
        torch.testing.assert_close(found, conv.lin_l(aggregate(block, data.x)) + conv.lin_r(own))
        if layout == "adj_t":
            assert same_memory(edges.col_indices(), block.indices)


def test_layers_with_edges_of_their_own_are_listed_from_the_input_on():
    for batch in batches(sampler="ladies", fanouts=[30, 20]):
        data = batch.to_pyg()
        assert "edge_index" not in data
        assert [len(part) for part in data.layer_edge_weight] == data.num_sampled_edges[::-1]
        for adj, attr, weights, block in zip(data.adjs, data.layer_edge_attr, data.layer_edge_weight, batch.blocks, strict=True):
            source, target = (batch.vertices[ends] for ends in adj.edge_index.numpy())
            np.testing.assert_array_equal(attr, np.stack([target, source], axis=1))
            np.testing.assert_array_equal(GRAPH.adjacency.indices[adj.e_id], source)
            assert same_memory(weights, block.weights)


def test_a_seed_that_repeats_is_one_vertex_of_the_data():
    (batch,) = batches(seeds=[7, 9, 7, 8], shuffle=False, frontier="new")
    data = batch.to_pyg()
    assert data.input_id.tolist() == data.n_id[:3].tolist() == [7, 9, 8]
    assert data.y.tolist() == GRAPH.labels[[7, 9, 8]].tolist()


def test_a_graph_without_features_or_labels_has_none_in_its_data():
    bare = bs.from_edges([0, 1, 2], [1, 0, 0])
    data = batches(bare, seeds="all", frontier="new")[0].to_pyg()
    assert not {"x", "y", "edge_attr"} & set(data.keys())


def test_a_layout_that_is_none_is_refused():
    with pytest.raises(bs.UsageError, match="layout: got 'adjt'; did you mean 'adj_t'"):
        batches()[0].to_pyg("adjt")
    with pytest.raises(ImportError, match=r"torch_sparse is needed here.*use layout adj_t"):
        batches()[0].to_pyg("SparseTensor")


class DglStandIn(SimpleNamespace):
    """A stand-in for the calls of DGL that `to_dgl` makes; it checks their arguments as DGL does, which is hard to install."""

    NID = EID = "_ID"

    @staticmethod
    def create_block(given, num_src_nodes, num_dst_nodes):
        layout, (pointers, columns, names) = given
        assert layout == "csc"
        assert pointers.dtype == columns.dtype == names.dtype == torch.int32
        assert (len(pointers), pointers[0], pointers[-1]) == (num_dst_nodes + 1, 0, len(columns))
        assert columns.numel() == 0 or 0 <= columns.min() <= columns.max() < num_src_nodes
        block = SimpleNamespace(srcdata={}, dstdata={}, edata={}, columns=columns, num_dst_nodes=lambda: num_dst_nodes)
        return block


def test_blocks_of_dgl_share_the_memory_of_the_batch(monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", DglStandIn())
    for batch in batches(sampler="ladies", fanouts=[30, 20]):
        inputs, outputs, blocks = batch.to_dgl()
        np.testing.assert_array_equal(inputs, batch.vertices)
        np.testing.assert_array_equal(outputs, batch.seeds)
        assert same_memory(inputs, batch.vertices)
        assert same_memory(blocks[0].srcdata["feat"], batch.x)
        assert same_memory(blocks[-1].dstdata["label"], batch.y)
        for made, block, numbers, attr in zip(blocks, batch.blocks, batch.e_id, batch.edge_attr, strict=True):
            assert same_memory(made.columns, block.indices)
            assert same_memory(made.edata["weight"], block.weights)
            np.testing.assert_array_equal(made.srcdata["_ID"], batch.vertices[: block.num_sources])
            np.testing.assert_array_equal(made.dstdata["_ID"], batch.vertices[: block.num_destinations])
            np.testing.assert_array_equal(made.edata["_ID"], numbers)
            np.testing.assert_array_equal(made.edata["feat"], attr)


def test_dgl_that_is_missing_is_named():
    with pytest.raises(ImportError, match="dgl is needed here"):
        batches()[0].to_dgl()
