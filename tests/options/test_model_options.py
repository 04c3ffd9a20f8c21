"""The options of the network: its parameters counted by hand, its rows computed by dense torch."""

import math

import torch
import torch.nn.functional as F
from communities import dense_adjacency
from plain import WHOLE, copied, graph, trained, trainer, training_loss, without_scores

from bulksample.distributed.comm.threads import on_threads

FEATURES, CLASSES, POOLED = 8, 3, 512


def parameters(**options):
    made = trainer(graph(), **options)
    return sum(parameter.numel() for parameter in made.model.parameters())


def rows_of_a_step(comm=None, **options):
    """Rows of the first training step: into the model, into its layers, and out of its first layer; and the trained model."""
    made, seen = trainer(without_scores(), comm, **{**WHOLE, "input_layer": "gathered", **options}), {}

    def keep(name, rows):
        if made.model.training:
            seen.setdefault(name, rows.detach().clone())

    made.model.register_forward_pre_hook(lambda _, given: keep("x", given[1]))
    made.model.layers[0].register_forward_pre_hook(lambda _, given: keep("input", given[1]))
    made.model.layers[0].register_forward_hook(lambda _, given, out: keep("first", out))
    made.model.layers[1].register_forward_pre_hook(lambda _, given: keep("hidden", given[1]))
    made.run()
    return seen, made.model


def assert_dropped(rows, expected, share):
    """`rows` are those of `expected`, each number zero with probability `share`, or else divided by 1 - share."""
    live = expected != 0
    dropped = (rows == 0) & live
    count, mean = int(live.sum()), float(dropped.sum())
    assert abs(mean - share * count) < 5 * math.sqrt(count * share * (1 - share))
    kept = live & ~dropped
    torch.testing.assert_close(rows[kept], expected[kept] / (1 - share), rtol=1e-4, atol=1e-5)


def test_model_names_the_formula():
    a, b, c = FEATURES, 4, CLASSES
    counts = {
        "sage": 2 * a * b + b + 2 * b * c + c,
        "sage-pool": sum((x * POOLED + POOLED) + x * y + (POOLED * y + y) for x, y in ((a, b), (b, c))),
        "gcn": a * b + b + b * c + c,
        "gat": sum(x * y + 2 * y + y for x, y in ((a, b), (b, c))),
    }
    assert {name: parameters(model=name) for name in counts} == counts
    source = without_scores()
    weight, bias, last, end = copied(trainer(source, **WHOLE, model="gcn").model)
    loops = torch.from_numpy(dense_adjacency(source)).float() + torch.eye(source.n)
    root = loops.sum(1).rsqrt()
    spread = root[:, None] * loops * root[None, :]  # Kipf and Welling
    logits = spread @ F.relu(spread @ torch.from_numpy(source.features) @ weight + bias) @ last + end
    assert math.isclose(trained(source, **WHOLE, model="gcn")[1].losses[0], training_loss(source, logits).item(), rel_tol=1e-4)


def test_layers_are_counted_by_their_weights():
    made = trainer(graph(), sampler="shadow", fanouts=(3,), layers=5, hidden=4)
    assert [layer.width_out for layer in made.model.layers] == [4, 4, 4, 4, CLASSES]


def test_hidden_is_the_width():
    assert parameters(hidden=6) == 2 * FEATURES * 6 + 6 + 2 * 6 * CLASSES + CLASSES


def test_heads_attend_apart():
    """With every attention vector zero but that of the first head, only the first half of a hidden row is attended to."""
    source = without_scores()
    made, heads, width = trainer(source, **{**WHOLE, "model": "gat", "heads": 2, "hidden": 8}), 2, 4
    x, sees = torch.from_numpy(source.features), torch.from_numpy(dense_adjacency(source)).bool() | torch.eye(source.n, dtype=torch.bool)
    h = x
    for layer, n in zip(made.model.layers, (heads, 1), strict=True):
        z = (h @ layer.weight).view(source.n, n, -1)
        own, other = layer.destination.view(n, -1), layer.source.view(n, -1)
        scores = torch.stack([F.leaky_relu((z[:, k] @ own[k])[:, None] + (z[:, k] @ other[k])[None, :], 0.2) for k in range(n)])
        alpha = torch.softmax(scores.masked_fill(~sees, -math.inf), dim=2)
        h = torch.cat([alpha[k] @ z[:, k] for k in range(n)], dim=1) + layer.bias
        h = F.elu(h) if n == heads else h
    assert z.shape[1:] == (1, CLASSES)
    assert width == made.model.layers[0].width
    first = trained(source, **{**WHOLE, "model": "gat", "heads": 2, "hidden": 8})[1].losses[0]
    assert math.isclose(first, training_loss(source, h).item(), rel_tol=1e-4)


def test_dropout_is_on_hidden_rows():
    seen, _ = rows_of_a_step(hidden=64, dropout=0.3)
    assert_dropped(seen["hidden"], F.relu(seen["first"]), 0.3)


def test_input_dropout_is_on_features():
    seen, _ = rows_of_a_step(input_dropout=0.2)
    assert_dropped(seen["input"], seen["x"], 0.2)


def test_batch_norm_is_over_the_rows_of_a_rank_and_its_statistics_are_means_over_ranks():
    def rank(comm):
        seen, model = rows_of_a_step(comm, hidden=16, batch_norm=True, batch_size=15)
        first = seen["first"]
        variance, mean = torch.var_mean(first, dim=0, correction=0)
        torch.testing.assert_close(seen["hidden"], F.relu((first - mean) / torch.sqrt(variance + 1e-5)), rtol=1e-3, atol=1e-4)
        return mean, variance * len(first) / (len(first) - 1), model.norms[0]

    ranks = on_threads(2, rank)
    for _, _, norm in ranks:  # torch's momentum is 0.1, from mean 0 and variance 1
        torch.testing.assert_close(norm.running_mean, 0.1 * (ranks[0][0] + ranks[1][0]) / 2)
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * (ranks[0][1] + ranks[1][1]) / 2)


def test_layer_norm_is_over_each_row():
    seen, _ = rows_of_a_step(hidden=16, layer_norm=True)
    first = seen["first"]
    variance, mean = torch.var_mean(first, dim=1, correction=0, keepdim=True)
    torch.testing.assert_close(seen["hidden"], F.relu((first - mean) / torch.sqrt(variance + 1e-5)), rtol=1e-3, atol=1e-4)
