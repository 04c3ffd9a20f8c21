"""Graphs in a `(FeatureStore, GraphStore)` pair of torch_geometric: the batches of a `Data` that holds the same."""

import pytest
import torch
from pyg_graphs import make_data
from torch_geometric.data import EdgeAttr
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from bulksample import UsageError
from bulksample.interop.pyg import LaborLoader, LinkNeighborLoader, NeighborLoader

DATA = make_data()


def pair(layout="coo", edge_type=None, size=(300, 300)):
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(DATA.x, group_name=None, attr_name="x", index=None)
    features.put_tensor(DATA.y, group_name=None, attr_name="y", index=None)
    source, destination = DATA.edge_index
    if layout == "csc":
        order = torch.argsort(destination, stable=True)
        source, destination = source[order], torch.cat([torch.zeros(1, dtype=torch.long), destination.bincount(minlength=300).cumsum(0)])
    graph.put_edge_index((source, destination), EdgeAttr(edge_type, layout, size=size))
    return features, graph


@pytest.mark.parametrize(
    ("loader", "layout"), [(NeighborLoader, "coo"), (NeighborLoader, "csc"), (LaborLoader, "coo"), (LinkNeighborLoader, "coo")]
)
def test_batches_are_those_of_a_data(loader, layout):
    """An edge's id is its position in the store; in the layout csc that order is by destination."""
    order = torch.arange(DATA.num_edges) if layout == "coo" else torch.argsort(DATA.edge_index[1], stable=True)
    for ours, theirs in zip(*(loader(data, [3, 2], batch_size=64, shuffle=True) for data in (pair(layout), DATA)), strict=True):
        assert torch.equal(ours.n_id, theirs.n_id)
        assert torch.equal(ours.edge_index, theirs.edge_index)
        assert torch.equal(ours.x, DATA.x[ours.n_id])
        assert torch.equal(ours.y, DATA.y[ours.n_id])
        assert torch.equal(order[ours.e_id], theirs.e_id)


def test_links_of_a_pair_are_given_with_or_without_a_type():
    wanted = DATA.edge_index[:, :20]
    for given in (wanted, (None, wanted)):
        (batch,) = LinkNeighborLoader(pair(), [2], edge_label_index=given, batch_size=20)
        assert torch.equal(batch.n_id[batch.edge_label_index], wanted)
    state = LinkNeighborLoader(pair(), [2], edge_label_index=wanted, batch_size=4).state_dict()
    LinkNeighborLoader(pair(), [2], edge_label_index=wanted, batch_size=4).load_state_dict(state)


def test_the_number_of_vertices_comes_from_the_edges_or_the_features():
    assert next(iter(NeighborLoader(pair(size=None), [2], batch_size=300))).batch_size == 300


def test_stores_with_weights_or_without_edges_are_refused():
    with pytest.raises(UsageError, match="name their type"):
        NeighborLoader(pair(edge_type=("a", "to", "b")), [2])
    with pytest.raises(UsageError, match="it has none"):
        NeighborLoader((MyFeatureStore(), MyGraphStore()), [2])
    with pytest.raises(UsageError, match="a graph store has no weights"):
        NeighborLoader(pair(), [2], weight_attr="w")


@pytest.mark.parametrize("loader", [NeighborLoader, LinkNeighborLoader])
def test_an_empty_list_of_fanouts_leaves_the_seeds_alone(loader):
    for disjoint in (False, True):
        batch = next(iter(loader(DATA, [], batch_size=20, disjoint=disjoint)))
        assert batch.num_edges == 0
        assert batch.num_sampled_nodes == [batch.num_nodes]
        assert batch.num_sampled_edges == []
    repeated = next(iter(NeighborLoader(DATA, [], input_nodes=[5, 5, 7], batch_size=3)))
    assert repeated.n_id.tolist() == [5, 5, 7]
