"""Layers and models equal dense formulas; with full fanout a sampled model equals the full model."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph, dense_adjacency, dense_features
from oracles import dense_block
from test_aggregate import random_block

from bulksample import Block, LocalAdjacency, Selection, Stream, UsageError, backends, samplers
from bulksample.graph import NODE
from bulksample.nn.aggregate import SparseRows
from bulksample.nn.dropout import PassKey, PassNames, RowNames
from bulksample.nn.layers import GatLayer, GcnLayer, PoolLayer, SageLayer, VertexLayer
from bulksample.nn.model import BatchNorm, Gnn
from bulksample.views.features import Features


def layer_of(name, width_in, width_out):
    if name.startswith("gat"):
        return GatLayer(width_in, width_out, 2, averaged=name == "gat-averaged")
    if name.startswith("sage-pool"):
        return PoolLayer(width_in, width_out, activated=name == "sage-pool")
    return {"sage": SageLayer, "gcn": GcnLayer, "vertex": VertexLayer}[name](width_in, width_out)


def dense_layer(layer, block, x, degrees):
    """Compute the formula of each layer with dense matrices."""
    d, own = block.num_destinations, x[: block.num_destinations]
    mean = torch.from_numpy(dense_block(block)).to(x.dtype)
    if isinstance(layer, SageLayer):
        return own @ layer.own + mean @ x @ layer.mean + layer.bias
    if isinstance(layer, GcnLayer):
        root = torch.sqrt(degrees + 1)[:, None]
        return ((degrees[:d, None] * (mean @ (x / root)) + own / root[:d]) / root[:d]) @ layer.weight + layer.bias
    if isinstance(layer, VertexLayer):
        return own @ layer.weight
    if isinstance(layer, PoolLayer):
        rows = x @ layer.pool if layer.pool_bias is None else F.relu(x @ layer.pool + layer.pool_bias)
        zeros = rows.new_zeros(rows.shape[1])
        top = [rows[torch.from_numpy(near)].max(0).values if near.any() else zeros for near in dense_block(block) > 0]
        return own @ layer.own + torch.stack(top) @ layer.max + layer.bias
    z = (x @ layer.weight).view(len(x), layer.heads, layer.width)
    out = torch.empty(d, layer.heads, layer.width)
    for h in range(layer.heads):
        to, come = (z[:d, h] * layer.destination[h]).sum(1), (z[:, h] * layer.source[h]).sum(1)
        scores = F.leaky_relu(to[:, None] + come[None, :], 0.2).exp()
        mass = degrees[:d, None] * mean * scores  # each edge stands for d_v times its share of the mean
        self_mass = scores[torch.arange(d), torch.arange(d)]
        out[:, h] = (mass @ z[:, h] + self_mass[:, None] * z[:d, h]) / (mass.sum(1) + self_mass)[:, None]
    return (out.mean(1) if layer.averaged else out.reshape(d, -1)) + layer.bias


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "gat-averaged", "sage-pool", "sage-pool without activation", "vertex"])
@pytest.mark.parametrize("widths", [(12, 4), (4, 12), (6, 6)])
@pytest.mark.parametrize("shape", [(1, 1), (9, 30), (25, 25)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_layer_equals_its_formula(name, widths, shape, weighted):
    torch.manual_seed(0)
    block, layer = random_block(*shape, seed=3, weighted=weighted), layer_of(name, *widths)
    if name != "vertex":
        layer.bias.data.normal_()
    x, degrees = torch.randn(shape[1], widths[0], requires_grad=True), torch.randint(1, 20, (shape[1],)).float()
    got, expected = layer(block, x, degrees), dense_layer(layer, block, x, degrees)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    g, wanted = torch.randn_like(got), (x, *layer.parameters())
    for a, b in zip(torch.autograd.grad(got, wanted, g), torch.autograd.grad(expected, wanted, g), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("chunk", [1, 700, 2**23])
def test_chunks_of_rows_do_not_change_the_maximum(monkeypatch, chunk):
    monkeypatch.setattr("bulksample.nn.segments._CHUNK_OF_MAXIMA", chunk)
    torch.manual_seed(3)
    block, layer = random_block(30, 60, seed=5), layer_of("sage-pool", 7, 4)
    x = torch.randn(60, 7, requires_grad=True)
    got, expected = layer(block, x, torch.ones(60)), dense_layer(layer, block, x, torch.ones(60))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(expected.sum(), x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize("transforms", [False, True])
def test_either_order_of_transform_and_aggregate_gives_the_same(name, transforms, monkeypatch):
    torch.manual_seed(1)
    layer, block = layer_of(name, 7, 5), random_block(10, 20)
    x, degrees = torch.randn(20, 7), torch.rand(20) * 9
    monkeypatch.setattr(type(layer), "transforms_first", lambda *_: transforms)
    torch.testing.assert_close(layer(block, x, degrees), dense_layer(layer, block, x, degrees), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "sage-pool", "vertex"])
def test_sparse_inputs_give_the_results_of_dense_ones(name):
    torch.manual_seed(2)
    rows = random_block(20, 50, weighted=True)
    sparse, dense = SparseRows(rows.indptr, rows.indices, rows.weights, 50), torch.from_numpy(dense_block(rows)).float()
    layer, block, degrees = layer_of(name, 50, 4), random_block(8, 20), torch.ones(20)
    torch.testing.assert_close(layer(block, sparse, degrees), layer(block, dense, degrees), rtol=1e-4, atol=1e-5)


def test_the_narrower_side_is_aggregated():
    assert SageLayer(100, 10).transforms_first(False, 50, 50, 400)
    assert not SageLayer(10, 100).transforms_first(False, 50, 50, 400)
    assert not SageLayer(256, 47).transforms_first(False, 8000, 1000, 10000)  # few destinations: transforming all sources costs more
    assert SageLayer(10, 100).transforms_first(True, 50, 50, 400)


def full_fanout(graph, layers, seeds, sampler="full", **options):
    adjacency = LocalAdjacency(graph.adjacency, backends.make())
    return samplers.make(sampler, (-1,) * layers, **options).sample_bulk(adjacency, Selection.of([seeds], graph.n), Stream(0))[0]


def test_gcn_with_all_neighbors_is_kipf_and_welling():
    graph = community_graph()
    a = dense_adjacency(graph) + np.eye(graph.n)
    root = np.sqrt(a.sum(1))
    layer = GcnLayer(8, 3)
    minibatch = full_fanout(graph, 1, np.arange(40))
    degrees = torch.from_numpy(graph.adjacency.degrees[minibatch.vertices]).float()
    got = layer(minibatch.blocks[0], torch.from_numpy(graph.features[minibatch.vertices]), degrees)
    expected = (a / root[:, None] / root[None, :]) @ dense_features(graph) @ layer.weight.detach().numpy().astype(float)
    np.testing.assert_allclose(got.detach().numpy(), expected[:40], rtol=1e-4, atol=1e-5)


def test_a_sampled_gcn_estimates_the_full_one():
    graph = community_graph(n=60, degree=20)
    layer, adjacency = GcnLayer(8, 3), LocalAdjacency(graph.adjacency, backends.make())
    degrees = torch.from_numpy(graph.adjacency.degrees.astype(np.float32))
    x, seeds = torch.from_numpy(graph.features), np.arange(30)

    def run(minibatch):
        rows = torch.from_numpy(minibatch.vertices.astype(np.int64))
        return layer(minibatch.blocks[0], x[rows], degrees[rows]).detach()

    exact = run(full_fanout(graph, 1, seeds))
    many = samplers.make("sage", (4,)).sample_bulk(adjacency, Selection.of([seeds] * 600, graph.n), Stream(1))
    draws = torch.stack([run(minibatch) for minibatch in many])
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / 600**0.5 + 1e-5)
    assert error.max() < 5


@pytest.mark.parametrize("name", ["sage", "gcn", "gat", "sage-pool"])
def test_square_blocks_run(name):
    graph = community_graph()
    model = Gnn(name, [8, 4, 3], heads=2)
    for sampler, options in (("shadow", {"layers": 2}), ("saint", {})):
        adjacency = LocalAdjacency(graph.adjacency, backends.make())
        minibatch = samplers.make(sampler, (5, 5), **options).sample_bulk(adjacency, Selection.of([[4, 2, 9]], graph.n), Stream(0))[0]
        logits = model(minibatch.blocks, Features(graph).fetch(minibatch.vertices), torch.ones(len(minibatch.vertices)))
        assert logits.shape == (len(minibatch.vertices), 3)


def test_dropout_of_sparse_inputs_acts_on_stored_values():
    rows = random_block(200, 50, weighted=True)
    sparse = SparseRows(rows.indptr, rows.indices, rows.weights, 50)
    model = Gnn("sage", [50, 4, 2], input_dropout=0.5, seed=1).train()
    names = PassNames(PassKey(seed=1), {NODE: RowNames(np.arange(200, dtype=np.int32))})
    dropped = model.drop_input(sparse, names).weights
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * rows.weights[kept], rtol=1e-6)
    assert model.eval().drop_input(sparse, names) is sparse


def test_layer_norm_follows_only_hidden_layers():
    model = Gnn("gat", [4, 3, 3, 2], heads=2, layer_norm=True, average_heads=True)
    assert [norm.normalized_shape for norm in model.norms] == [(3,), (3,)]
    h, bias = torch.randn(5, 3), torch.randn(3)
    model.layers[0].bias.data, model.layers[2].bias.data = bias, bias[:2]
    torch.testing.assert_close(model.between(0, h), F.elu(F.layer_norm(h + bias, (3,))))
    torch.testing.assert_close(model.between(2, h[:, :2]), h[:, :2] + bias[:2])


def test_batch_norm_of_one_row_uses_its_running_statistics():
    norm = BatchNorm(3).train()
    one = torch.tensor([[1.0, 2.0, 3.0]])
    torch.testing.assert_close(norm(one), one, rtol=1e-4, atol=1e-4)
    assert norm(torch.empty(0, 3)).shape == (0, 3)
    assert not norm.running_mean.any()


def test_impossible_models_are_refused():
    with pytest.raises(UsageError, match="there is no model 'gin'"):
        Gnn("gin", [4, 2])
    with pytest.raises(UsageError, match="multiples of the number of heads"):
        Gnn("gat", [4, 6, 2], heads=4)
    with pytest.raises(UsageError, match="2 layers needs as many blocks"):
        Gnn("sage", [4, 6, 2])([Block(np.zeros(1), np.empty(0), None, 0)], torch.empty(0, 4), torch.empty(0))
