"""The accuracy table: every row is trained over the first seeds, and the scores of torch_geometric's runs are right."""

import json
import statistics
import subprocess

import bench_accuracy
import keep
import numpy as np
import pytest
import run
from scipy.sparse import csr_matrix

ROWS = [row for part in keep.load("accuracy").values() for row in part["result"]["rows"]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['graph']}, {row['sampler']}@{row['ranks']}")
def test_a_row_has_a_score_for_each_seed_and_the_command_of_the_script(row):
    assert row["seeds"] == list(range(len(row["scores"])))
    assert row["mean"] == pytest.approx(statistics.mean(row["scores"]))
    assert row["std"] == pytest.approx(statistics.stdev(row["scores"]) if len(row["scores"]) > 1 else 0)
    assert "full_batch" not in row, "full batch is a row of its own, trained over the same seeds"
    assert all(word in row["command"] for word in bench_accuracy.ROWS[row["sampler"]].split())


def test_full_batch_is_trained_by_the_method_full():
    full = [row for row in ROWS if row["sampler"] == "full"]
    assert full
    assert all("--method full" in row["command"] and min(run["steps"] for run in row["runs"]) > 20 for row in full)
    assert all([run["seed"] for run in row["runs"]] == row["seeds"] for row in full)


def test_a_second_call_trains_only_the_seeds_that_a_row_lacks(tmp_path, monkeypatch, capsys):
    """The scores of a fake trainer are its seeds, so a score beside the wrong seed shows."""
    calls, file = [], tmp_path / "rows.json"

    def train(store, arguments, ranks, seed, torch_geometric):
        calls.append((ranks, seed, torch_geometric))
        return {"metric": "accuracy", "test_accuracy": seed / 10, "steps": 7, "seconds_per_epoch": 0.5}

    def call(*more):
        calls.clear()
        with pytest.raises(SystemExit, match=r"^0$"):
            run.run("accuracy", ["--data", str(tmp_path), "--graphs", "dblp", "--json", str(file), *more])
        return {(row["sampler"], row["ranks"]): row for row in json.loads(file.read_text())["rows"]}

    monkeypatch.setattr(bench_accuracy, "train", train)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    call("--rows", "sage,pyg-full", "--seeds", "0,1")
    assert calls == [(1, 0, False), (1, 1, False), (1, 0, True), (1, 1, True)]
    rows = call("--rows", "sage,sage@4", "--seeds", "1,2")
    assert calls == [(1, 2, False), (4, 1, False), (4, 2, False)]
    assert (rows["sage", 1]["seeds"], rows["sage", 1]["scores"]) == ([0, 1, 2], [0, 10, 20])
    assert (rows["sage", 1]["mean"], rows["sage", 1]["std"]) == (10, 10)
    assert rows["sage", 4]["seeds"] == [1, 2]
    monkeypatch.setitem(bench_accuracy.ROWS, "sage", "--fanouts 3,3")
    with pytest.raises(SystemExit, match=r"^2$"):
        run.run("accuracy", ["--data", str(tmp_path), "--graphs", "dblp", "--json", str(file), "--rows", "sage"])
    assert "other options" in capsys.readouterr().err


def test_wide_features_become_their_largest_singular_directions(tmp_path):
    """The products of rows are those of the best approximation of rank 3, for rows of length 1; an empty row stays empty."""
    rng = np.random.default_rng(0)
    x = csr_matrix(np.where(rng.random((12, 9)) < 0.4, rng.integers(1, 5, (12, 9)), 0) * (np.arange(12) != 5)[:, None])
    arrays = {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": x.data, "x_shape": x.shape, "y": np.arange(12)}
    np.savez(tmp_path / "wide.npz", **arrays)
    assert bench_accuracy.reduced(tmp_path / "wide.npz", 9, tmp_path / "no.npz") == tmp_path / "wide.npz"
    with np.load(bench_accuracy.reduced(tmp_path / "wide.npz", 3, tmp_path / "narrow.npz")) as file:
        found, names = file["x"], sorted(file.files)
    rows = x.toarray() / np.maximum(np.linalg.norm(x.toarray(), axis=1, keepdims=True), 1e-12)
    u, s, _ = np.linalg.svd(rows)
    best = (u[:, :3] * s[:3]) @ (u[:, :3] * s[:3]).T
    assert (found.shape, found.dtype, names) == ((12, 3), np.float32, ["x", "y"])
    np.testing.assert_allclose(found @ found.T, best, atol=1e-5)


def test_the_area_under_the_curve_counts_pairs():
    """Three positives and two negatives; one pair is tied and counts half, one is wrong."""
    torch = pytest.importorskip("torch", reason="pip install torch would bring it")
    pytest.importorskip("torch_geometric", reason="pip install torch_geometric would bring it")
    import pyg_accuracy

    margins, y = np.array([0.9, 0.5, 0.2, 0.5, 0.1]), np.array([1, 1, 1, 0, 0])
    logits = torch.tensor(np.stack([np.zeros(5), margins], axis=1))
    pairs = [(a > b) + (a == b) / 2 for a in margins[y == 1] for b in margins[y == 0]]
    assert pyg_accuracy.score(logits, torch.tensor(y), "rocauc") == pytest.approx(np.mean(pairs))
    assert pyg_accuracy.score(logits, torch.tensor([1, 1, 0, 1, 1]), "accuracy") == pytest.approx(4 / 5)
