"""The options of the task, the labels and the features: examples counted by hand, rows recomputed by numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from plain import WHOLE, copied, graph, labelled_pairs, minibatches, sage, trainer

from bulksample.data import store

LINKS = {"task": "links", "batch_size": 16, "hidden": 6}


def rows_of(**options):
    """Every mini-batch's vertices, and the features that the model gets for them."""
    return [(batch.minibatch.vertices, batch.x.numpy()) for batch in trainer(graph(), **options).context.batches]


def test_balance_classes_draws_all_classes_equally_often():
    """Of 40 seeds, 4 are of class 0, and yet a third of the draws."""
    whole = graph(n=120)
    chosen = np.concatenate([np.flatnonzero(whole.labels == 0)[:4], np.flatnonzero(whole.labels > 0)[:36]])
    source = replace(whole, masks={"train": np.isin(np.arange(whole.n), chosen)})
    made = trainer(source, balance_classes=True, batch_size=10)
    labels = np.concatenate([source.labels[one.seeds] for _ in range(100) for one in minibatches(made)])
    assert len(labels) == 4000
    assert abs(np.mean(labels == 0) - 1 / 3) < 5 * np.sqrt(2 / 9 / 4000)


def test_sampling_weights_draws_in_proportion_to_the_numbers_of_a_file(tmp_path):
    """A vertex that weighs 3 comes three times as often as one that weighs 1, and one that weighs 0 never."""
    source = graph()
    weights = np.array([0, 1, 3])[np.arange(source.n) % 3]
    np.save(tmp_path / "weights.npy", weights)
    made = trainer(source, sampling_weights=str(tmp_path / "weights.npy"))
    drawn = weights[np.concatenate([one.seeds for _ in range(100) for one in minibatches(made)])]
    ones, threes = (np.count_nonzero(weights[source.masks["train"]] == weight) for weight in (1, 3))
    share = 3 * threes / (3 * threes + ones)
    assert set(drawn) == {1, 3}
    assert abs(np.mean(drawn == 3) - share) < 5 * np.sqrt(share * (1 - share) / len(drawn))


def test_task_links_learns_from_edges(links):
    adjacency = store.load(links).adjacency
    row = adjacency.row_of_entry()
    edges = {(int(u), int(v)) for u, v in zip(adjacency.indices, row, strict=True)}
    assert all(u != v for u, v in edges)
    seeds = [minibatch.seeds for minibatch in minibatches(trainer(links, **LINKS))]
    assert all(len(triples) % 3 == 0 for triples in seeds), "sources, destinations and negatives"
    examples = [tuple(pair) for triples in seeds for pair in triples.reshape(3, -1)[:2].T.tolist()]
    assert len(examples) == len(edges)
    assert set(examples) == edges


def test_edge_labels_are_the_examples(edge_labels):
    """The pairs of the training split, each once, with their labels."""
    made, table = trainer(graph(), task="edges", edge_labels=str(edge_labels)), labelled_pairs()
    found = np.concatenate([np.stack([*one.seeds.reshape(2, -1), one.examples]) for one in minibatches(made)], axis=1)
    source, destination, rows = found
    assert sorted(rows) == np.flatnonzero(table["split"] == "train").tolist()
    assert (source == table["source"][rows]).all()
    assert (destination == table["destination"][rows]).all()
    assert made.context.view.num_classes == 3
    assert trainer(graph(), task="edges", edge_labels=str(edge_labels), label="other").context.view.num_classes == 2


def test_decoder_mlp_is_two_linear_layers_and_a_prelu(links):
    """w . prelu(W (z_u * z_v) + b) + c, in plain torch."""
    made = trainer(links, **LINKS, decoder="mlp")
    counts = (2 * 8 * 6 + 6) + (2 * 6 * 6 + 6) + (6 * 6 + 6) + (6 + 1) + 1
    assert sum(parameter.numel() for parameter in made.model.parameters()) == counts
    slope = next(parameter for name, parameter in made.model.named_parameters() if name == "slope")
    linear = [parameter for name, parameter in made.model.named_parameters() if name.startswith("decoder")]
    u, v = torch.randn(2, 10, 6, generator=torch.Generator().manual_seed(0))
    inner = (u * v) @ linear[0].T + linear[1]
    expected = torch.where(inner > 0, inner, slope * inner) @ linear[2].T + linear[3]
    torch.testing.assert_close(made.model.score(u, v), expected[:, 0])


def test_exclude_targets_leaves_out_the_edges_that_are_asked_for(links):
    for exclude, ways in (("self", 1), ("both", 2)):
        for minibatch in minibatches(trainer(links, **LINKS, exclude_targets=exclude, sampler="full")):
            source, destination, _ = minibatch.seeds.reshape(3, -1)
            asked = set(zip(destination.tolist(), source.tolist(), strict=True))
            asked |= {(u, v) for v, u in asked} if ways == 2 else set()
            for block in minibatch.blocks:
                row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                sampled = set(zip(minibatch.vertices[row].tolist(), minibatch.vertices[block.indices].tolist(), strict=True))
                assert not asked & sampled


def test_target_decides_what_the_outputs_mean():
    """The same 0 and 1 are two classes by default, one task of a logistic model, or numbers: each has its loss, in plain torch."""
    source = replace(graph(), labels=np.minimum(graph().labels, 1), num_classes=2)
    chosen = np.flatnonzero(source.masks["train"])
    truth = torch.from_numpy(source.labels[chosen])
    losses = {
        "class": lambda logits: F.cross_entropy(logits, truth),
        "multilabel": lambda logits: F.binary_cross_entropy_with_logits(logits[:, 0], truth.float()),
        "regression": lambda logits: F.mse_loss(logits[:, 0], truth.float()),
    }
    for target, loss in losses.items():
        made = trainer(source, **{**WHOLE, "target": target})
        expected = loss(sage(source, copied(made.model))[chosen])
        assert made.run()["train_loss"] == pytest.approx(expected.item(), rel=1e-5), target


def test_label_is_another_column():
    view = trainer(graph(), label="other", seeds="all").context.view
    assert view.num_classes == 2
    assert view.labels.tolist() == graph().extra["other"].tolist()


def test_feature_norm_divides_each_row():
    x = graph().features.astype(np.float64)
    norms = {"l1": np.abs(x).sum(1, keepdims=True), "l2": np.sqrt((x * x).sum(1, keepdims=True))}
    for norm, lengths in norms.items():
        for vertices, rows in rows_of(feature_norm=norm):
            np.testing.assert_allclose(rows, (x / lengths)[vertices], rtol=1e-5)


def test_feature_storage_rounds_once_and_halves_the_bytes():
    x = graph().features
    stored = {"fp16": x.astype(np.float16).astype(np.float32), "bf16": torch.from_numpy(x).bfloat16().float().numpy()}
    for storage, rounded in stored.items():
        assert not np.array_equal(rounded, x)
        for vertices, rows in rows_of(feature_storage=storage):
            np.testing.assert_array_equal(rows, rounded[vertices])
        assert trainer(graph(), feature_storage=storage).context.view.memory["features"] == 2 * x.size
