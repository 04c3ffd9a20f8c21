"""The layers of heterogeneous graphs, against torch_geometric's."""

import numpy as np
import pytest
import torch
from planted_relations import planted

from bulksample.graph.minibatch import Block, LayerBlocks
from bulksample.nn.relational import RelationalGat, RelationalGnn, RelationalSage, Schema

GRAPH = planted()
KEYS = tuple(relation.key for relation in GRAPH.relations)
COUNTS = {kind.name: kind.count for kind in GRAPH.types}


def whole_block():
    """All edges of all relations, as one block."""
    blocks = {}
    for relation in GRAPH.relations:
        matrix = relation.adjacency
        blocks[relation.key] = Block(matrix.indptr, matrix.indices, None, matrix.shape[1])
    return LayerBlocks(blocks, COUNTS)


def rows(width, seed=0):
    rng = np.random.default_rng(seed)
    return {name: torch.from_numpy(rng.normal(size=(n, width)).astype(np.float32)).requires_grad_() for name, n in COUNTS.items()}


def edges():
    pairs = {}
    for relation in GRAPH.relations:
        matrix = relation.adjacency
        pairs[relation.key] = torch.from_numpy(np.stack([matrix.indices, matrix.row_of_entry()]).astype(np.int64))
    return pairs


def assert_same(own, other, x, out):
    """Outputs and gradients of the inputs are those of torch_geometric's layers, plus the rows' own term."""
    theirs = {name: t.detach().clone().requires_grad_() for name, t in x.items()}
    expected = other(theirs, edges())
    for name, w, b in zip(own.destinations, own.own, own.bias, strict=True):
        expected[name] = expected.get(name, 0) + theirs[name] @ w + b
    for name in own.destinations:
        torch.testing.assert_close(out[name], expected[name], rtol=1e-4, atol=1e-5)
    weight = {name: torch.randn_like(t) for name, t in out.items()}
    sum((t * weight[name]).sum() for name, t in out.items()).backward()
    sum((expected[name] * weight[name]).sum() for name in out).backward()
    for name, t in x.items():
        torch.testing.assert_close(t.grad, theirs[name].grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("width_out", [3, 9])
def test_sage_is_a_sum_of_sage_convolutions(width_out):
    pyg = pytest.importorskip("torch_geometric.nn")
    own = RelationalSage(KEYS, ("paper", "venue"), 5, width_out, torch.Generator().manual_seed(0))
    convolutions = {}
    for key, weight in zip(KEYS, own.mean, strict=True):
        made = convolutions[key] = pyg.SAGEConv((5, 5), width_out, root_weight=False, bias=False)
        made.lin_l.weight.data = weight.data.T.clone()
    x = rows(5)
    assert_same(own, pyg.HeteroConv(convolutions, "sum"), x, own(whole_block(), x))


@pytest.mark.parametrize("heads", [1, 2])
def test_gat_is_a_sum_of_gat_convolutions(heads):
    pyg = pytest.importorskip("torch_geometric.nn")
    own = RelationalGat(KEYS, ("paper", "venue"), 5, 6, torch.Generator().manual_seed(0), heads)
    convolutions = {}
    for number, key in enumerate(KEYS):
        made = convolutions[key] = pyg.GATConv((5, 5), 6 // heads, heads, add_self_loops=False, bias=False)
        made.lin_src.weight.data = own.weight[number].data.T.clone()
        made.att_src.data = own.source[number].data[None].clone()
        own.destination[number].data = torch.stack(
            [made.lin_dst.weight.data.view(heads, -1, 5)[h].T @ made.att_dst.data[0, h] for h in range(heads)], dim=1
        )
    x = rows(5)
    assert_same(own, pyg.HeteroConv(convolutions, "sum"), x, own(whole_block(), x))


def test_what_cannot_reach_the_target_has_no_weights():
    schema = Schema(COUNTS, {"paper": 2, "author": 3, "venue": 0}, KEYS, "venue")
    model = RelationalGnn("hetero-sage", schema, 4, 2, 5)
    assert model.types == [("paper", "author", "venue"), ("paper", "author", "venue"), ("venue",)]
    assert [layer.relations for layer in model.layers] == [KEYS, tuple(key for key in KEYS if key[2] == "venue")]
    author = Schema(COUNTS, {"paper": 2, "author": 3, "venue": 0}, KEYS, "author")  # no relation ends in an author
    assert RelationalGnn("hetero-sage", author, 4, 2, 5).types == [("author",)] * 3


def test_a_relation_without_edges_adds_zero_and_no_nan():
    schema = Schema(COUNTS, {"paper": 2, "author": 3, "venue": 0}, KEYS, "venue")
    model = RelationalGnn("hetero-gat", schema, 4, 1, 4, heads=2)
    x = {"paper": torch.ones(120, 2), "author": torch.ones(40, 3), "venue": torch.arange(6)}
    block = whole_block()
    logits = model([block], x)
    assert torch.isfinite(logits).all()
    reviews = KEYS[-1]
    assert block.relations[reviews].num_edges == 0
    layer = model.layers[0]
    layer.weight[layer.relations.index(reviews)].data += 100
    assert torch.equal(model([block], x), logits)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("name", ["hetero-sage", "hetero-gat"])
def test_hooks_may_keep_the_rows_of_a_layer(name, norm):
    """Later operations wrote over them."""
    schema = Schema(COUNTS, dict.fromkeys(COUNTS, 5), KEYS, "paper")
    model, kept = RelationalGnn(name, schema, 4, 2, 3, heads=2, norm=norm), []
    inputs = {name: x.detach() for name, x in rows(5).items()}
    expected = model([whole_block()] * 2, inputs)
    for module in (*model.layers, *(norm for of_layer in model.norms for norm in of_layer)):
        module.register_forward_hook(lambda module, given, made: kept.extend(made.values() if isinstance(made, dict) else [made]))
    model.layers[0].register_forward_hook(lambda module, given, made: before.update({name: x.clone() for name, x in made.items()}))
    before = {}
    found = model([whole_block()] * 2, inputs)
    torch.testing.assert_close(found, expected)
    assert all(torch.equal(x, before[name]) for name, x in zip(before, kept, strict=False))
    (found.sum() + sum(x.square().sum() for x in kept)).backward()
