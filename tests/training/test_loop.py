"""The loop: it learns, it repeats to the bit, it stops when it should, and it reports what it did."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from recorder import Recorder
from training_runs import run_training, weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.methods.run import train
from bulksample.training.callbacks import JsonLines

SMALL = {"fanouts": (5, 5), "hidden": 16, "batch_size": 32, "epochs": 3, "lr": 0.01, "threads": 1}


def run(graph, comm=None, **options):
    """Train, and return the report, the recorder and the trainer."""
    return run_training(graph, comm, **{**SMALL, **options})


@pytest.mark.long
@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_it_learns_more_than_the_features_say(model):
    graph = community_graph(n=600, degree=12, noise=1.2)
    report, recorder, _ = run(graph, model=model, epochs=12, dropout=0.2)
    assert report["test_accuracy"] > 0.75  # one in three by chance, about 0.6 without the graph
    assert recorder.losses[-1] < 0.7 * recorder.losses[0]


@pytest.mark.parametrize("sampler", ["sage", "ladies", "fastgcn", "labor", "full", "shadow", "saint"])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_sampler_trains(sampler, sparse):
    fanouts = (64, 64) if sampler in ("ladies", "fastgcn") else (5, 5)
    report, recorder, _ = run(community_graph(sparse=sparse, weighted=sampler == "ladies"), sampler=sampler, fanouts=fanouts, epochs=6)
    assert report["test_accuracy"] > 0.4
    assert np.isfinite(recorder.losses).all()


def test_the_subgraphs_of_shadow_may_carry_a_deeper_model():
    report, _, trainer = run(community_graph(), sampler="shadow", layers=3, fanouts=(5, 5))
    assert len(trainer.model.layers) == 3
    assert report["steps"] == 3 * trainer.context.batches.loader.steps


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    graph = community_graph()
    first, again, other = (run(graph, seed=seed, dropout=0.5, batch_norm=True) for seed in (1, 1, 2))
    assert (weights_of(first[2]) == weights_of(again[2])).all()
    assert first[1].losses == again[1].losses
    assert first[1].losses != other[1].losses


def test_neither_the_bulk_nor_the_back_end_changes_a_bit():
    graph = community_graph()
    runs = [run(graph, bulk_size=k, backend=backend) for k, backend in ((1, "auto"), (3, "auto"), ("auto", "reference"))]
    assert all((weights_of(other[2]) == weights_of(runs[0][2])).all() for other in runs)


def test_frontiers_and_label_columns():
    graph = community_graph()
    report, _, _ = run(graph, frontier="new")
    assert report["test_accuracy"] > 0.4
    report, _, trainer = run(graph, label="other", metric="rocauc", feature_norm="l2", input_dropout=0.1)
    assert report["test_rocauc"] > 0.5
    assert trainer.model.layers[-1].width_out == 2


def test_only_labelled_vertices_of_the_split_count():
    graph = community_graph()
    train = graph.seeds("train")
    _, _, trainer = run(graph, batch_size=1000, epochs=1, sampler="saint", fanouts=(5, 5))
    assert trainer.context.batches.loader.steps == 1
    assert (trainer.context.view.truth(np.arange(graph.n)) >= 0).sum() == len(train)
    _, _, trainer = run(graph, seeds="all", epochs=1)
    assert (trainer.context.view.truth(np.arange(graph.n)) >= 0).sum() == (graph.labels >= 0).sum()
    assert len(trainer.context.batches.loader) == -(-graph.n // 32)


def test_minibatches_without_a_label_make_no_step():
    graph = community_graph()
    blank = replace(graph, labels=np.where(np.arange(graph.n) < 3, graph.labels, -1), masks={})
    report, recorder, _ = run(blank, epochs=1, batch_size=10, seeds="all")
    assert report["steps"] == 30
    assert report["test_accuracy"] is None
    assert np.isfinite(recorder.losses).all()


def test_a_run_of_no_epoch_has_no_best_one():
    assert run(community_graph(n=60), epochs=0)[0]["best_epoch"] == -1


def test_early_stopping_keeps_the_best_weights():
    graph = community_graph()
    report, recorder, trainer = run(graph, epochs=60, patience=3, lr=0.05, dropout=0.0)
    scores = [line["val_accuracy"] for line in recorder.lines]
    assert report["epochs"] == len(scores) < 60
    assert report["best_epoch"] == int(np.argmax(scores)) == len(scores) - 4
    assert report["val_accuracy"] == max(scores)
    assert report["test_accuracy"] == recorder.lines[report["best_epoch"]]["test_accuracy"]
    assert all(torch.equal(trainer.context.best_weights[name], tensor) for name, tensor in trainer.model.state_dict().items())


def test_evaluation_may_be_rare_but_never_misses_the_end():
    _, recorder, _ = run(community_graph(), epochs=5, eval_every=3)
    assert ["val_accuracy" in line for line in recorder.lines] == [False, False, True, False, True]


def test_no_epochs_is_a_report_without_scores():
    report, recorder, _ = run(community_graph(), epochs=0)
    assert report["epochs"] == report["steps"] == 0
    assert report["test_accuracy"] is None
    assert recorder.ended


def test_an_infinite_loss_stops_with_its_place():
    with pytest.raises(UsageError, match=r"the loss is (nan|inf) in epoch \d+, step \d+"):
        run(community_graph(), lr=1e30, epochs=20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None, "masks": {}}, "no labels to train on"),
        ({"features": None}, "has no features"),
        ({"num_classes": 1, "labels": np.zeros(300, np.int64)}, "at least two classes"),
    ],
)
def test_graphs_that_cannot_be_trained_on_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        run(replace(community_graph(), **change))


def test_the_json_lines_hold_every_epoch(tmp_path):
    graph = community_graph()
    path = tmp_path / "new" / "lines.jsonl"
    report = train(graph, callbacks=[JsonLines(path)], **SMALL)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    for line in lines:
        assert {"loss", "val_accuracy", "test_accuracy", "seconds", "phases", "bytes_sent"} <= line.keys()
        assert {"sample", "fetch", "forward", "backward", "reduce", "step", "evaluate"} <= line["phases"].keys()
        assert line["bytes_sent"].keys() == {"total", "topology", "features", "activations", "gradients", "model", "control"}
    assert {"method", "ranks", "epochs", "test_accuracy", "val_accuracy", "seconds_per_epoch", "phases", "bytes_sent"} <= report.keys()
    assert report["bytes_sent"]["total"] == 0
    json.dumps(report)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_ends_the_run_after_its_step(number, tmp_path):
    class Killer(Recorder):
        def step(self, epoch, step, loss):
            super().step(epoch, step, loss)
            if len(self.losses) == 7:
                os.kill(os.getpid(), number)

    killer, before = Killer(), signal.getsignal(number)
    report = train(community_graph(), callbacks=[killer], checkpoint=str(tmp_path), **SMALL)
    assert report["stopped"]
    assert report["steps"] == len(killer.losses) == 8  # the signal came before the eighth began
    assert sorted(path.name for path in tmp_path.glob("step-*"))[-1] == "step-000000008"
    assert len(list(tmp_path.glob("step-*"))) == 2
    assert signal.getsignal(number) is before


def test_a_loss_that_is_not_finite_suggests_to_verify_the_store(tmp_path):
    store.save(community_graph(n=60), tmp_path / "g")
    with pytest.raises(UsageError, match=rf"if the data may be damaged: bulksample data verify {tmp_path}/g"):
        run(tmp_path / "g", lr=1e30, epochs=20)


def test_a_full_disk_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    from bulksample.training import checkpoint

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_synced", full)
    report = train(community_graph(), checkpoint=str(tmp_path), **SMALL)
    assert report["failed_saves"] == 3
    assert report["epochs"] == 3
    assert capsys.readouterr().err.count("No space left") == 1
