"""Labels of several columns, some of them missing, are learnt by every method; losses and scores are those of plain torch and numpy."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph, dense_adjacency, with_columns_of_labels
from training_runs import run_training

from bulksample import Graph, UsageError, methods
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.evaluation.metrics import score_columns
from bulksample.methods.predict import predict
from bulksample.methods.run import train

TARGETS = ("multilabel", "regression")
OPTIONS = {"fanouts": (-1, -1), "hidden": 16, "batch_size": 64, "lr": 0.02, "dropout": 0.0, "threads": 1, "quiet": True}
LOSSES = {"multilabel": F.binary_cross_entropy_with_logits, "regression": F.mse_loss}


@pytest.fixture(scope="module")
def graphs():
    return {target: with_columns_of_labels(community_graph(n=120), target) for target in TARGETS}


@pytest.fixture(scope="module")
def stores(graphs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    for target, graph in graphs.items():
        store.save(graph, folder / target)
    return folder


def known_labels(graph, split):
    """The rows of a split, and their labels with NaN where one is missing, from what the graph holds."""
    labels = graph.labels.astype(np.float32)
    if graph.labels.dtype == np.int8:
        labels[graph.labels == -1] = np.nan
    return graph.masks[split], torch.from_numpy(labels[graph.masks[split]])


def dense_logits(graph, model):
    """GraphSAGE by dense products, of the parameters of a model."""
    a = torch.from_numpy(dense_adjacency(graph)).float()
    mean, h = a / a.sum(1, keepdim=True).clamp(min=1), torch.from_numpy(graph.features)
    parameters = [parameter.detach() for parameter in model.parameters()]
    for first in range(0, len(parameters), 3):
        own, near, bias = parameters[first : first + 3]
        h = (h.relu() if first else h) @ own + mean @ (h.relu() if first else h) @ near + bias
    return h


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("method", "placement"), [("sync", "replicated"), ("sync", "partitioned"), ("full", "partitioned")])
def test_a_step_minimises_the_mean_over_all_known_labels(graphs, stores, target, method, placement):
    """One step of all seeds: its loss is that of the initial weights, on one rank and on two."""
    graph = graphs[target]
    options = {**OPTIONS, "batch_size": 60, "epochs": 1, "lr": 1e-12, "method": method, "graph": placement}
    reports = on_threads(2, lambda comm: run_training(stores / target, comm, **options))
    rows, truth = known_labels(graph, "train")
    logits = dense_logits(graph, reports[0][2].model)[rows]
    known = ~truth.isnan()
    expected = LOSSES[target](logits[known], truth[known]).item()
    assert reports[0][0]["train_loss"] == pytest.approx(expected, rel=1e-4)
    rows, truth = known_labels(graph, "test")
    metric = {"multilabel": "rocauc", "regression": "mae"}[target]
    found = score_columns(metric, truth.numpy(), dense_logits(graph, reports[0][2].model)[rows].numpy())
    assert reports[0][0][f"test_{metric}"] == pytest.approx(found, rel=1e-4)
    assert (reports[0][0]["metric"], reports[0][0]["target"]) == (metric, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", [pytest.param(name, marks=() if name == "grappa" else pytest.mark.long) for name in methods.METHODS])
def test_every_method_learns_them(stores, target, method):
    options = {**OPTIONS, "method": method, "epochs": 30, "eval_every": 10}
    report = on_threads(2, lambda comm: train(stores / target, comm, **options))[0]
    if target == "multilabel":
        assert report["test_rocauc"] > 0.65
    else:
        assert report["test_r2"] > 0.15
        assert report["test_mae"] > 0
    assert report["test_accuracy"] is None


def test_the_lowest_error_is_the_best(graphs):
    _, recorder, made = run_training(graphs["regression"], **{**OPTIONS, "epochs": 12, "lr": 0.3})
    found = [line["val_mae"] for line in recorder.lines]
    assert made.context.progress.best_epoch == int(np.argmin(found)) != len(found) - 1
    assert made.context.progress.best_scores["val_mae"] == min(found)


@pytest.mark.parametrize("target", TARGETS)
def test_predictions_are_those_of_the_run(stores, target, tmp_path):
    report = train(stores / target, **OPTIONS, epochs=2, checkpoint=str(tmp_path / "kept"))
    found = predict(stores / target, tmp_path / "kept")
    metric = report["metric"]
    assert found.scores[f"test_{metric}"] == pytest.approx(report[f"test_{metric}"], rel=1e-6)
    assert found.config.target == target
    resumed = train(stores / target, **{**OPTIONS, "epochs": 3}, checkpoint=str(tmp_path / "kept"), resume="auto")
    assert resumed["resumed"]


def test_a_column_of_the_graph_is_a_target(tmp_path):
    whole = community_graph(n=120)
    year = np.where(np.arange(120) % 7 == 0, np.nan, 2000.0 + np.arange(120) % 5).astype(np.float32)
    whole_year = np.where(np.isnan(year), -1, np.nan_to_num(year)).astype(np.int64)
    tasks = np.stack([whole.labels == 0, whole.labels == 1], axis=1)
    source = replace(whole, extra={"year": year, "whole_year": whole_year, "tasks": tasks, "tasks_as_floats": tasks.astype(np.float32)})
    store.save(source, tmp_path / "g")
    options = {**OPTIONS, "epochs": 1, "eval_every": 1, "hidden": 4}
    for graph, placement in ((source, "replicated"), (tmp_path / "g", "partitioned")):
        asked = options | {"graph": placement}
        assert run_training(graph, label="year", target="regression", **asked)[0]["test_mae"] > 1000
        assert run_training(graph, label="tasks", **asked)[0]["target"] == "multilabel"
        assert run_training(graph, label="tasks_as_floats", target="multilabel", **asked)[0]["metric"] == "rocauc"
        with pytest.raises(ValueError, match="whole_year: row 0 holds -1; that may be a number or no label: use floats"):
            run_training(graph, label="whole_year", target="regression", **asked)
    with pytest.raises(ValueError, match=r"tasks: got bool of shape .* a class is one number of a vertex: use target multilabel"):
        train(source, label="tasks", target="class", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "accuracy"}, "the metric 'accuracy' does not suit the target 'multilabel'; use rocauc, ap, f1"),
        ({"metric": "mae", "target": "multilabel"}, "the metric 'mae' does not suit the target 'multilabel'"),
        ({"target": "several"}, "target: got 'several'; use class, multilabel, regression"),
        ({"target": "multilabel", "task": "links"}, "target is an option of the task nodes; got 'multilabel' with task links"),
        ({"metric": "rocauk"}, "there is no metric 'rocauk'; did you mean 'rocauc'"),
    ],
)
def test_options_that_do_not_fit_are_refused(graphs, options, message):
    with pytest.raises(UsageError, match=message):
        train(graphs["multilabel"], **{**OPTIONS, "epochs": 1, **options})


def test_gaps_in_class_numbers_warn_on_one_rank_and_in_its_report(tmp_path, capsys):
    graph = community_graph(n=60)
    gap = Graph(graph.adjacency, features=graph.features, labels=np.where(graph.labels > 0, graph.labels + 4, graph.labels), num_classes=7,
                masks=graph.masks)  # fmt: skip
    store.save(gap, tmp_path / "g")
    for source, placement in ((gap, "replicated"), (tmp_path / "g", "partitioned")):
        report, _, _ = run_training(source, **{**OPTIONS, "epochs": 1}, graph=placement)
        assert report["warnings"][0].startswith("4 of the 7 classes have no vertex")
        assert capsys.readouterr().err.count("4 of the 7 classes have no vertex") == 1
    assert train(graph, **{**OPTIONS, "epochs": 1})["warnings"] == []


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_without_any_label_are_refused_before_training(graphs, tmp_path, target):
    graph = graphs[target]
    missing = -1 if target == "multilabel" else np.nan
    bare = replace(graph, labels=np.where(graph.masks["train"][:, None], missing, graph.labels).astype(graph.labels.dtype))
    store.save(bare, tmp_path / "bare")
    found = f"none of the {graph.masks['train'].sum()} seeds of graph '{target}' has a label to train on; use another label"
    for method, p in (("sync", 2), ("random-tma", 2), ("full", 1)):
        with pytest.raises(UsageError, match=found):
            on_threads(p, lambda comm, method=method: train(tmp_path / "bare", comm, **OPTIONS, epochs=1, method=method))


def test_a_score_that_labels_do_not_define_is_null_and_chooses_nothing(graphs, capsys):
    """All validation labels are positive, so their ROC AUC is not defined; the newest weights are kept, and a warning says so."""
    graph = graphs["multilabel"]
    labels = np.where(graph.masks["val"][:, None], 1, graph.labels).astype(np.int8)
    report, recorder, _ = run_training(replace(graph, labels=labels), **OPTIONS, epochs=3, patience=1)
    assert (report["val_rocauc"], report["best_epoch"], report["epochs"]) == (None, 2, 3)
    assert [line["val_rocauc"] for line in recorder.lines] == [None] * 3
    assert 0 < report["test_rocauc"] < 1
    said = "val_rocauc cannot be computed from the labels of the split"
    assert report["warnings"][0].startswith(said)
    assert said in capsys.readouterr().err
    assert "NaN" not in json.dumps([report, recorder.lines])
