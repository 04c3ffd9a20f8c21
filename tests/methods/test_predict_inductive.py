"""`predict` on graphs that a model was not trained on: another size, other edges and features, against dense formulas; the inductive
setting of GraphSAGE, in which training sees no vertex of the test split and no edge to one.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import all_sage_logits, planted
from sklearn.metrics import accuracy_score

import bulksample as bs
from bulksample import CSR
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

QUICK = {"fanouts": (5, 4), "hidden": 8, "epochs": 3, "lr": 0.02, "batch_size": 32, "threads": 1, "quiet": True}


def trained(graph, folder, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, **options, "checkpoint": str(folder)}), graph)
    made.run()
    return dict(made.model.named_parameters()), made.model


def sage(graph, w):
    h, rows = torch.tensor(np.asarray(graph.features, np.float32)), graph.adjacency.to_scipy().toarray() != 0
    means = torch.from_numpy(rows / np.maximum(rows.sum(1, keepdims=True), 1)).float()
    for i in range(2):
        h = h @ w[f"layers.{i}.own"] + means @ h @ w[f"layers.{i}.mean"] + w[f"layers.{i}.bias"]
        h = h if i else h.relu()
    return h


def gcn(graph, w):
    h, edges = torch.tensor(np.asarray(graph.features, np.float32)), (graph.adjacency.to_scipy().toarray() != 0).astype(np.float64)
    scale = 1 / np.sqrt(edges.sum(1) + 1)
    mix = torch.from_numpy(scale[:, None] * (edges + np.eye(graph.n)) * scale).float()
    for i in range(2):
        h = mix @ h @ w[f"layers.{i}.weight"] + w[f"layers.{i}.bias"]
        h = h if i else h.relu()
    return h


@pytest.mark.parametrize(("model", "formula"), [("sage", sage), ("gcn", gcn)])
def test_another_graph_has_the_logits_of_the_formula(tmp_path, model, formula):
    weights, _ = trained(community_graph(), tmp_path / "kept", model=model)
    other = community_graph(n=170, degree=5, seed=7)
    found = bs.predict(other, tmp_path / "kept")
    with torch.no_grad():
        expected = formula(other, weights).numpy()
    np.testing.assert_allclose(found.logits, expected, rtol=1e-4, atol=1e-4)
    assert found.warnings == []
    for split, mask in other.masks.items():
        assert found.scores[f"{split}_accuracy"] == pytest.approx(accuracy_score(other.labels[mask], expected[mask].argmax(1)))


def test_training_that_never_saw_the_test_split(tmp_path):
    whole = community_graph()
    known = np.flatnonzero(~whole.masks["test"])
    seen = whole.replace(
        adjacency=CSR.from_scipy(whole.adjacency.to_scipy()[known][:, known]), features=whole.features[known], labels=whole.labels[known],
        masks={split: mask[known] for split, mask in whole.masks.items()}, extra={},
    )  # fmt: skip
    assert seen.n == 300 - whole.masks["test"].sum()
    weights, _ = trained(seen, tmp_path / "kept", model="sage", epochs=15)
    found = bs.predict(whole, tmp_path / "kept")
    with torch.no_grad():
        np.testing.assert_allclose(found.logits, sage(whole, weights).numpy(), rtol=1e-4, atol=1e-4)
    assert found.scores["test_accuracy"] > 0.6  # 0.33 by chance


def test_another_heterogeneous_graph_has_the_logits_of_the_formula(tmp_path):
    _, model = trained(planted(), tmp_path / "kept", model="hetero-sage", featureless="constant")
    other = planted(seed=5)
    found = bs.predict(other, tmp_path / "kept")
    np.testing.assert_allclose(found.logits, all_sage_logits(other, model).numpy(), atol=1e-4)
    assert not found.warnings


def test_other_features_or_classes_are_told(tmp_path):
    trained(community_graph(), tmp_path / "kept", model="sage")
    with pytest.raises(bs.UsageError, match="8 features"):
        bs.predict(community_graph(width=9), tmp_path / "kept")
    bare = replace(community_graph(seed=3), labels=None, num_classes=0, masks={}, extra={})
    assert bs.predict(bare, tmp_path / "kept").scores == {}
