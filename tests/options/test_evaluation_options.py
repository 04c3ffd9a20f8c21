"""The options of evaluation: scores by scikit-learn on dense logits, and the epochs at which they are taken."""

import numpy as np
import pytest
import torch
from plain import WHOLE, graph, sage, trained, without_scores

from bulksample.nn.model import Gnn
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


def test_evaluate_none_keeps_the_newest_weights_and_says_so():
    """A graph without validation has no best weights but the newest."""
    asked = {"epochs": 5, "lr": 0.3}
    report, recorder, made = trained(graph(), **asked, evaluate="none")
    newest = trained(without_scores(), **asked)[2]
    assert all(torch.equal(one, other) for one, other in zip(made.model.parameters(), newest.model.parameters(), strict=True))
    assert not any("val_accuracy" in line for line in recorder.lines)
    assert (report["evaluation"], report["test_accuracy"], report["best_epoch"]) == ({"kind": "none"}, None, 4)


def test_eval_every_0_evaluates_nothing():
    _, recorder, _ = trained(graph(), epochs=3, eval_every=0)
    assert not any("val_accuracy" in line for line in recorder.lines)


def test_eval_splits_are_scored_and_no_others():
    _, recorder, _ = trained(graph(), eval_splits="test,val")
    assert {name for name in recorder.lines[0] if name.endswith("_accuracy")} == {"val_accuracy", "test_accuracy"}


def test_eval_fanouts_are_the_most_draws_of_a_row(monkeypatch):
    most, forward = [], Gnn.forward

    def counted(self, blocks, *more):
        if not self.training:
            most.append([int(np.diff(block.indptr).max()) for block in blocks])
        return forward(self, blocks, *more)

    monkeypatch.setattr(Gnn, "forward", counted)
    trained(graph(), evaluate="sampled", eval_fanouts=(2, 3))  # hops from the seeds outwards; blocks from the input on
    assert np.max(most, axis=0).tolist() == [3, 2]


def test_eval_seeds_are_the_vertices_of_a_split_to_score():
    _, recorder, _ = trained(graph(), evaluate="sampled", eval_seeds=7)
    for split in ("train", "val", "test"):
        right = 7 * recorder.lines[0][f"{split}_accuracy"]
        assert right == pytest.approx(round(right))
        error = np.std([1] * round(right) + [0] * (7 - round(right))) / np.sqrt(7)
        assert recorder.lines[0].get(f"{split}_accuracy_standard_error", -1) == pytest.approx(error)


def test_eval_memory_streams_what_exceeds_it():
    """Rows of 60 vertices and eight features do not fit into 1 KiB, and do into a quarter of the memory; scores are the same."""
    short, plenty = (trained(graph(), **options) for options in ({"eval_memory": 1024}, {}))
    assert [made.context.view.share.streamed for _, _, made in (short, plenty)] == [True, False]
    assert short[1].lines[0]["val_accuracy"] == plenty[1].lines[0]["val_accuracy"]
