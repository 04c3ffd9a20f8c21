"""`bulksample predict`: its scores match those of training, and graphs that do not match the model are refused."""

import csv
import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted

from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.errors import UsageError
from bulksample.methods.config import TrainConfig
from bulksample.methods.predict import Prediction, predict
from bulksample.methods.prediction_file import columns_of, write_predictions
from bulksample.training.checkpoint import load

FLAGS = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "2", "--threads", "1", "--seed", "1"]


def trained(command, folder, graph=None, *options):
    """Train on a graph stored in `folder`/g with checkpoints in `folder`/kept; return the report."""
    store.save(graph or community_graph(), folder / "g", overwrite=True)
    code, out, err = command("train", folder / "g", *FLAGS, *options, "--checkpoint", folder / "kept", "--json", "-")
    assert code == 0, err
    return json.loads(out)


def predicted(command, folder, *options):
    """Predict, and return the JSON object and the arrays written."""
    arguments = [folder / "g", "--checkpoint", folder / "kept", "-o", folder / "out.npz", "--threads", 1, "--overwrite", *options]
    code, out, err = command("predict", *arguments, "--json", "-")
    assert code == 0, err
    with np.load(folder / "out.npz", allow_pickle=False) as file:
        return json.loads(out), {name: file[name] for name in file.files}


SETTINGS = {
    **{model: ["--model", model] for model in ("sage", "sage-pool", "gcn", "gat")},
    "full": ["--method", "full"],
    "random-tma": ["--method", "random-tma"],
    "llcg": ["--method", "llcg"],
    "ladies on weights": ["--sampler", "ladies", "--fanouts", "64,64", "--feature-norm", "l2"],
    "normalised": ["--batch-norm", "--model", "gcn"],
    "another label": ["--label", "other"],
    "one layer": ["--fanouts", "5", "--layers", "1"],
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_accuracy_of_the_scores_is_that_of_the_report(command, tmp_path, setting):
    graph = community_graph(weighted="weights" in setting, sparse=setting == "gcn")
    report = trained(command, tmp_path, graph, *SETTINGS[setting])
    summary, arrays = predicted(command, tmp_path)
    labelled = graph.with_label("other") if setting == "another label" else graph
    right = arrays["logits"].argmax(1) == labelled.labels
    for split in ("val", "test"):
        assert right[labelled.masks[split]].mean() == pytest.approx(report[f"{split}_accuracy"], abs=1e-12)
        assert summary[f"{split}_accuracy"] == pytest.approx(report[f"{split}_accuracy"], abs=1e-12)
    assert arrays["logits"].shape == (graph.n, labelled.num_classes)
    if setting == "one layer":
        assert set(arrays) == {"logits"}
    else:
        assert arrays["embeddings"].shape == (graph.n, 8)
        assert summary["embeddings"] == [graph.n, 8]
    assert (summary["method"], summary["task"]) == (report["method"], "nodes")


def test_logits_are_the_last_layer_of_the_embeddings(command, tmp_path):
    trained(command, tmp_path, None, "--model", "sage")
    _, arrays = predicted(command, tmp_path)
    tensors, _ = load(sorted((tmp_path / "kept").glob("step-*"))[-1])
    own, mean, bias = (tensors[f"best.layers.1.{name}"].numpy() for name in ("own", "mean", "bias"))
    graph, h = store.load(tmp_path / "g"), arrays["embeddings"]
    pattern = graph.adjacency.to_scipy()
    averaged = (pattern @ h) / np.maximum(graph.adjacency.degrees, 1)[:, None]
    np.testing.assert_allclose(arrays["logits"], h @ own + averaged @ mean + bias, atol=1e-4)


@pytest.mark.long
def test_rows_in_files_are_the_same(command, tmp_path):
    trained(command, tmp_path)
    memory, files = predicted(command, tmp_path)[1], predicted(command, tmp_path, "--memory", 1)[1]
    for name in ("logits", "embeddings"):
        np.testing.assert_allclose(files[name], memory[name], rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_link_prediction_writes_embeddings_alone(command, tmp_path, monkeypatch):
    graph = hold_out(replace(community_graph(), labels=None, masks={}), "to", 0.1, 0.1, 10, seed=0)
    graph.save(tmp_path / "g")
    kept = ["--checkpoint", tmp_path / "kept", "--json", "-"]
    code, _, err = command("train", tmp_path / "g", *FLAGS, "--task", "links", "--metric", "mrr", *kept)
    assert code == 0, err
    summary, arrays = predicted(command, tmp_path)
    assert {name: array.shape for name, array in arrays.items()} == {"embeddings": (graph.n, 8)}
    assert summary["task"] == "links"
    with monkeypatch.context() as patch:  # no tensor is read before a table of links is refused
        patch.setattr("bulksample.training.checkpoint.load", lambda _: pytest.fail("the tensors were read"))
        for name in "t.csv", "t.PARQUET":
            ended = command("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / name)
            assert ended.code == 2
            assert f"--out: got {tmp_path / name}, but link prediction gives embeddings alone" in ended.err
            assert f"use {tmp_path / 't.npz'}" in ended.err


def test_a_graph_without_labels_is_enough(command, tmp_path):
    trained(command, tmp_path)
    _, arrays = predicted(command, tmp_path)
    bare = replace(community_graph(), labels=None, num_classes=0, masks={}, extra={})
    found = predict(bare, tmp_path / "kept")
    np.testing.assert_array_equal(found.logits, arrays["logits"])
    assert found.scores == {}
    assert found.step == int(found.path.name.removeprefix("step-"))


def test_a_single_checkpoint_is_named(command, tmp_path):
    trained(command, tmp_path)
    steps = sorted((tmp_path / "kept").glob("step-*"))
    assert predict(tmp_path / "g", steps[0]).path == steps[0]
    assert predict(tmp_path / "g", tmp_path / "kept").path == steps[-1]


@pytest.mark.long
def test_graphs_and_files_that_do_not_match_are_refused(command, tmp_path):
    trained(command, tmp_path)
    store.save(community_graph(width=5), tmp_path / "narrow")
    store.save(replace(community_graph(), features=None), tmp_path / "bare")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.npz").touch()
    graph, kept, out = tmp_path / "g", tmp_path / "kept", tmp_path / "new.npz"
    cases = [
        ((graph, tmp_path / "nowhere", out), 2, "there is no checkpoint at"),
        ((graph, tmp_path / "empty", out), 2, "holds no checkpoint; use the folder that training was given"),
        ((tmp_path / "narrow", kept, out), 2, "takes 8 features of a vertex; graph 'communities' has 5: use a graph with 8"),
        ((tmp_path / "bare", kept, out), 2, "no features"),
        ((graph, kept, tmp_path / "there.npz"), 2, "exists already"),
        ((graph, kept, tmp_path / "there.npz" / "new.npz"), 2, "Not a directory"),
        ((tmp_path / "no-graph", kept, out), 65, "there is no such folder"),
    ]
    for (store_path, checkpoint, file), expected, message in cases:
        code, _, err = command("predict", store_path, "--checkpoint", checkpoint, "-o", file)
        assert (code, message in err) == (expected, True), err
        assert not out.exists()


def table_of(file):
    """Read a table by a reader that is not ours: columns of numbers by name."""
    if file.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is missing: pip install pyarrow")
        return parquet.read_table(file).to_pydict()
    with open(file, newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".CSV"])
def test_a_table_has_the_most_likely_class_and_its_probability(command, tmp_path, ending):
    trained(command, tmp_path)
    _, arrays = predicted(command, tmp_path)
    code, out, err = command("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / f"p{ending}", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["columns"] == ["id", "class", "probability"]
    table = table_of(tmp_path / f"p{ending}")
    share, best = torch.from_numpy(arrays["logits"]).double().softmax(1).max(1)
    assert table["id"] == list(range(len(best)))
    assert table["class"] == best.tolist()
    assert table["probability"] == pytest.approx(share.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("target", "columns"),
    [("multilabel", ["id", "probability_0", "probability_1"]), ("regression", ["id", "prediction_0", "prediction_1"])],
)
def test_a_table_of_several_labels_has_a_column_for_each(tmp_path, target, columns):
    logits = np.array([[0.5, -200.0], [3.0, 800.0]], np.float32)
    found = Prediction(logits, None, {}, TrainConfig.of(target=target), 1, tmp_path)
    assert write_predictions(tmp_path / "p.csv", found) == columns
    right = torch.from_numpy(logits).double()
    right = right.sigmoid() if target == "multilabel" else right
    table = table_of(tmp_path / "p.csv")
    for j, name in enumerate(columns[1:]):
        assert table[name] == pytest.approx(right[:, j].tolist(), rel=1e-12)
    assert list(columns_of(found._replace(logits=logits[:, :1])))[1] == ("prediction" if target == "regression" else "probability_0")
    timed = columns_of(found._replace(more={"times": np.array([7, 9])}))
    assert (list(timed)[1], timed["time"].tolist()) == ("time", [7, 9])
    with pytest.raises(UsageError, match="link prediction gives embeddings alone"):
        write_predictions(tmp_path / "links.csv", found._replace(logits=None))


def test_a_damaged_checkpoint_is_bad_data(command, tmp_path):
    trained(command, tmp_path)
    for folder in (tmp_path / "kept").glob("step-*"):
        (folder / "tensors.safetensors").write_bytes(b"")
    code, _, err = command("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "new.npz")
    assert code == 65
    assert "is damaged" in err
    shutil.rmtree(tmp_path / "kept")


OWN = """
import pathlib, torch
pathlib.Path("imported").touch()
class Mean(torch.nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(features, outputs)
    def forward(self, x, blocks):
        for block in blocks:
            x = block.aggregate(x)
        return self.linear(x)
"""


def test_a_model_of_your_own_is_named_again(command, tmp_path, monkeypatch):
    """The code that a checkpoint names does not run unless it is asked for."""
    (tmp_path / "own_mean.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    store.save(community_graph(), tmp_path / "g")
    flags = ["--fanouts", "5,5", "--epochs", "1", "--threads", "1", "--model", "own_mean:Mean", "--checkpoint", tmp_path / "kept"]
    code, out, err = command("train", tmp_path / "g", *flags, "--json", "-")
    assert code == 0, err
    sys.modules.pop("own_mean")
    (tmp_path / "imported").unlink()
    code, _, err = command("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "none.npz")
    assert code == 2
    assert "holds a model of your own, own_mean:Mean; use --model package.module:factory" in err
    assert not (tmp_path / "imported").exists()
    summary, arrays = predicted(command, tmp_path, "--model", "own_mean:Mean")
    sys.modules.pop("own_mean")
    assert {name: array.shape for name, array in arrays.items()} == {"logits": (300, 3)}
    assert summary["test_accuracy"] == pytest.approx(json.loads(out)["test_accuracy"], abs=1e-12)
    assert (summary["model"], summary["logits"]) == ("own_mean:Mean", [300, 3])


def test_a_checkpoint_of_one_layer_at_a_time_is_refused(command, tmp_path):
    trained(command, tmp_path, None, "--method", "retexo")
    code, _, err = command("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "new.npz")
    assert code == 2
    assert "one layer at a time" in err


def test_a_heterogeneous_graph_is_predicted_at_a_time(command, tmp_path):
    graph = planted("regression", times=True)
    graph.save(tmp_path / "g")
    flags = ["--model", "hetero-sage", "--fanouts", "4,3", "--hidden", 8, "--epochs", 1, "--threads", 1, "--quiet"]
    code, _, err = command("train", tmp_path / "g", *flags, "--checkpoint", tmp_path / "kept")
    assert code == 0, err
    arguments = [tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "o.npz"]
    code, out, err = command("predict", *arguments, "--at", 40, "--json", "-")
    assert code == 0, err
    with np.load(tmp_path / "o.npz", allow_pickle=False) as file:
        assert {name: file[name].shape for name in file.files} == {"predictions": (120, 1), "embeddings": (120, 8), "times": (120,)}
    summary = json.loads(out)
    assert (summary["predictions"], summary["times"]) == ([120, 1], [120])
    assert "test_mae" in summary


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_pairs_of_a_file_get_labels_in_its_order(command, tmp_path, ending):
    pandas = pytest.importorskip("pandas", reason="pandas is missing: pip install pandas")
    rng = np.random.default_rng(0)
    ends, x = rng.integers(0, 300, (2, 120)), rng.normal(size=(120, 2)).astype(np.float32)
    columns = {"source": ends[0], "destination": ends[1], "feature_a": x[:, 0], "feature_b": x[:, 1]}
    labels = {"label": (x[:, 0] > 0).astype(int), "split": np.array(["train", "val", "test"])[rng.integers(0, 3, 120)]}
    table = pandas.DataFrame(columns | labels)
    file, out = tmp_path / f"pairs{ending}", tmp_path / f"p{ending}"
    (table.to_csv if ending == ".csv" else table.to_parquet)(file, index=False)
    report = trained(command, tmp_path, None, "--task", "edges", "--edge-labels", file)
    place = [tmp_path / "g", "--checkpoint", tmp_path / "kept"]
    summary, arrays = predicted(command, tmp_path, "--pairs", file)
    assert {name: array.shape for name, array in arrays.items()} == {"logits": (120, 2), "source": (120,), "destination": (120,)}
    assert (arrays["destination"] == ends[1]).all()
    mask = labels["split"] == "test"
    assert (arrays["logits"].argmax(1) == labels["label"])[mask].mean() == pytest.approx(report["test_accuracy"], abs=1e-12)
    assert (summary["task"], summary["logits"]) == ("edges", [120, 2])
    found = command("predict", *place, "--pairs", file, "-o", out, "--json", "-")
    assert found.code == 0, found.err
    assert json.loads(found.out)["columns"] == ["source", "destination", "class", "probability"]
    written = table_of(out)
    share, best = torch.from_numpy(arrays["logits"]).double().softmax(1).max(1)
    assert (written["source"], written["destination"]) == (ends[0].tolist(), ends[1].tolist())
    assert written["class"] == best.tolist()
    assert written["probability"] == pytest.approx(share.tolist(), rel=1e-12)
    (tmp_path / "bad.csv").write_text("source,destination,feature_a,feature_b\n1,300,0,0\n")
    cases = [
        ([], 2, "predicts labels of edges; give --pairs TABLE, with source and destination"),
        (["--pairs", tmp_path / "bad.csv"], 65, "bad.csv: row 0 has destination 300"),
        (["--pairs", tmp_path / "none.npz"], 65, "none.npz"),
        (["--pairs", file, "--at", 3], 2, "at is for heterogeneous graphs"),
    ]
    for options, code, message in cases:
        ended = command("predict", *place, *options, "-o", tmp_path / f"new{ending}")
        assert (ended.code, message in ended.err) == (code, True), ended.err
        assert not (tmp_path / f"new{ending}").exists()


def test_scored_links_are_a_table(command, tmp_path):
    graph = hold_out(replace(community_graph(), labels=None, masks={}), "to", 0.1, 0.1, 10, seed=0)
    graph.save(tmp_path / "g")
    code, _, err = command("train", tmp_path / "g", *FLAGS, "--task", "links", "--checkpoint", tmp_path / "kept", "--quiet")
    assert code == 0, err
    np.savez(tmp_path / "pairs.npz", source=np.arange(50), destination=np.arange(50)[::-1])
    arguments = [tmp_path / "g", "--checkpoint", tmp_path / "kept", "--pairs", tmp_path / "pairs.npz"]
    code, out, err = command("predict", *arguments, "-o", tmp_path / "p.csv", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["columns"] == ["source", "destination", "score", "probability"]
    table = table_of(tmp_path / "p.csv")
    assert table["destination"] == list(range(49, -1, -1))
    assert table["probability"] == pytest.approx((1 / (1 + np.exp(-np.array(table["score"])))).tolist())
