"""The options of evaluation: scores by scikit-learn on dense logits, and the epochs at which they are taken."""

import pytest
from plain import WHOLE, graph, sage, trained

from bulksample.training.method import Method


def scripted(monkeypatch, scores):
    """Let the evaluations of a run find these accuracies."""
    left = iter(scores)
    monkeypatch.setattr(Method, "scores", lambda *_: dict.fromkeys(("val_accuracy", "test_accuracy"), next(left)))


def test_metric_is_scored_and_picks_the_best_weights():
    from sklearn.metrics import f1_score

    report, recorder, made = trained(graph(), **{**WHOLE, "metric": "f1_macro", "epochs": 6, "lr": 0.1})
    found = [line.get("val_f1_macro", 0.0) for line in recorder.lines]
    predicted = sage(graph(), list(made.model.parameters())).argmax(1).numpy()
    mask = graph().masks["val"]
    expected = f1_score(graph().labels[mask], predicted[mask], average="macro")
    assert found[report["best_epoch"]] == pytest.approx(expected)
    assert max(found) == found[report["best_epoch"]] > 0


def test_eval_every_counts_epochs_and_the_last_is_always_evaluated():
    _, recorder, _ = trained(graph(), epochs=8, eval_every=3)
    assert [line["epoch"] for line in recorder.lines if "val_accuracy" in line] == [2, 5, 7]


def test_patience_ends_the_run(monkeypatch):
    """The best score comes third; two more evaluations find none that is better."""
    scripted(monkeypatch, [0.1, 0.2, 0.5, 0.5, 0.4, 0.9, 0.9, 0.9, 0.9])
    report, recorder, _ = trained(graph(), epochs=9, patience=2)
    assert len(recorder.lines) == 5
    assert (report["best_epoch"], report["test_accuracy"]) == (2, 0.5)
