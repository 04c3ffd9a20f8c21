"""The accuracy table: every row is trained over the same seeds, and the scores of torch_geometric's runs are right."""

import statistics

import bench_accuracy
import keep
import numpy as np
import pytest

ROWS = [row for part in keep.load("accuracy").values() for row in part["result"]["rows"]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['graph']}, {row['sampler']}@{row['ranks']}")
def test_a_row_has_a_score_for_each_seed_and_the_command_of_the_script(row):
    assert len(row["scores"]) == 3
    assert row["mean"] == pytest.approx(statistics.mean(row["scores"]))
    assert row["std"] == pytest.approx(statistics.stdev(row["scores"]))
    assert "full_batch" not in row, "full batch is a row of its own, trained over the same seeds"
    assert all(word in row["command"] for word in bench_accuracy.ROWS[row["sampler"]].split())


def test_full_batch_is_trained_by_the_method_full():
    full = [row for row in ROWS if row["sampler"] == "full"]
    assert full
    assert all("--method full" in row["command"] and row["seeds"] == [0, 1, 2] and min(row["steps"]) > 20 for row in full)


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
