"""Models of torch_geometric compute on our batches as they do on the whole graph."""

import pytest
import torch
from pyg_graphs import make_data
from torch_geometric.nn import GraphSAGE, SAGEConv
from torch_geometric.utils import trim_to_layer

from bulksample.interop.pyg import FastGCNLoader, LaborLoader, LadiesLoader, NeighborLoader


def model_of(aggr="mean"):
    torch.manual_seed(3)
    return GraphSAGE(4, 16, num_layers=3, out_channels=5, aggr=aggr).eval().double()


def scaled(data):
    data.x = data.x.double() / data.x.max()
    return data


@pytest.mark.parametrize("aggr", ["mean", "max", "sum"])
@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"input_nodes": [3, 8, 3, 40, 8]}], ids=str)
@torch.no_grad()
def test_all_neighbours_give_what_the_whole_graph_gives(data, aggr, options):
    data, model = scaled(data), model_of(aggr)
    whole = model(data.x, data.edge_index)
    for batch in NeighborLoader(data, [-1] * 3, batch_size=20, **options):
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.testing.assert_close(out, whole[batch.n_id[: batch.batch_size]])


@pytest.mark.parametrize("loader", [NeighborLoader, LaborLoader, LadiesLoader, FastGCNLoader])
@torch.no_grad()
def test_trimming_layers_changes_nothing(data, loader):
    data, model = scaled(data), model_of()
    for batch in loader(data, [6, 5, 4], batch_size=20):
        full = model(batch.x, batch.edge_index)[: batch.batch_size]
        trimmed = model(
            batch.x, batch.edge_index, num_sampled_nodes_per_hop=batch.num_sampled_nodes, num_sampled_edges_per_hop=batch.num_sampled_edges
        )
        torch.testing.assert_close(trimmed[: batch.batch_size], full)


@torch.no_grad()
def test_trimming_leaves_out_the_last_hop():
    for batch in NeighborLoader(make_data(), [4, 3], batch_size=20, disjoint=True):
        x, edge_index, _ = trim_to_layer(1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index)
        assert len(x) == sum(batch.num_sampled_nodes[:2])
        assert edge_index.size(1) == batch.num_sampled_edges[0]


@torch.no_grad()
def test_unbiased_weights_estimate_the_mean_of_all_neighbours():
    """LADIES without re-normalising: the mean of many draws is the full aggregation, within four standard errors."""
    data = scaled(make_data(80, 1500))
    seeds = torch.arange(10)
    layer = SAGEConv(4, 4, bias=False, root_weight=False, aggr="mean").double()
    whole = layer(data.x, data.edge_index)[seeds]
    loader = LadiesLoader(data, [25], input_nodes=seeds, batch_size=10, renormalise=False)
    draws = []
    for _ in range(600):
        (batch,) = loader
        message = batch.x[batch.edge_index[0]] * batch.edge_weight[:, None]
        draws.append(layer.lin_l(torch.zeros(10, 4).double().index_add_(0, batch.edge_index[1], message)))
    estimate, error = torch.stack(draws).mean(0), torch.stack(draws).std(0) / 600**0.5
    assert ((estimate - whole).abs() <= 4 * error + 1e-6).all()


def test_training_lowers_the_loss():
    data, model = scaled(make_data()), model_of().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        for batch in NeighborLoader(data, [5, 5, 5], batch_size=64, shuffle=True):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("options", [{}, {"bulk_size": 2, "num_workers": 2}])
def test_layerwise_inference_of_torch_geometric_takes_the_loader(options):
    data = scaled(make_data())
    model = GraphSAGE(data.num_features, 16, num_layers=2, out_channels=3).double().eval()
    with torch.no_grad():
        whole, found = model(data.x, data.edge_index), model.inference(NeighborLoader(data, [-1], batch_size=32, **options))
    torch.testing.assert_close(found, whole)
