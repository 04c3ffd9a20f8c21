"""The table of a comparison: its numbers, and well-formed CSV and Markdown."""

import csv
import io
import math

import pytest
from reports import run

from bulksample.report.network import NetworkModel
from bulksample.report.table import format_number, norm_of, rows, to_csv, to_markdown

SLOW, FAST = NetworkModel("slow", 1e-3, 1.25e6), NetworkModel("fast", 0.0, 1e9)


def cells(markdown):
    """Return the cells of every row of a Markdown table."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")] for line in lines]


@pytest.fixture
def table():
    return rows([run(score=0.9), run("odd", failure="a | b\nc"), run(score=0.8, seed=1, megabytes=10)], [SLOW, FAST])


def test_figures_are_means_and_deviations_over_seeds(table):
    sync = table[0]
    assert sync["runs"] == 2
    assert sync["score"]["mean"] == pytest.approx(0.85)
    assert sync["score"]["std"] == pytest.approx(0.1 / math.sqrt(2))
    assert sync["score"]["values"] == [0.9, 0.8]
    assert sync["bytes"]["total"] == sync["bytes"]["gradients"] == 9e6
    assert sync["messages"]["total"] == 100
    # 2 s of computing, 50 messages of 1 ms, 4 and 5 MB at 1.25 MB/s, in 4 epochs
    assert sync["networks"]["slow"]["seconds"]["values"] == pytest.approx([5.25, 6.05])
    assert sync["networks"]["slow"]["seconds_per_epoch"]["mean"] == pytest.approx(5.65 / 4)
    assert sync["networks"]["fast"]["seconds"]["mean"] == pytest.approx(2.0045)


def test_one_run_has_no_deviation():
    row = rows([run()], [SLOW])[0]
    assert row["score"] == {"mean": 0.5, "std": None, "values": [0.5]}
    assert "±" not in to_markdown([row], [SLOW], "").split("- MB")[0]


def test_a_method_that_failed_with_one_seed_is_failed(table):
    found = rows([run(), run(seed=1, failure="no")], [SLOW])
    assert found == [{"method": "sync", "failed": "seed 1: no"}]
    assert [row["method"] for row in table] == ["sync", "odd"]


@pytest.mark.parametrize(("metric", "split"), [("accuracy", "test"), ("f1", "test"), ("accuracy", "val"), ("rocauc", "train")])
def test_the_score_is_that_of_the_metric_on_the_best_split_there_is(metric, split):
    beside = {"f1": {"test_accuracy": 0.75}, "rocauc": {"train_accuracy": 0.75}}.get(metric, {"train_accuracy": 1.0})
    row = rows([run(metric=metric, split=split, score=0.25, **beside)], [SLOW])[0]
    assert (row["metric"], row["split"], row["score"]["mean"]) == (metric, split, 0.25)
    assert f"{split} {metric}, %" in cells(to_markdown([row], [SLOW], ""))[0]


def test_a_graph_without_splits_has_no_score():
    row = rows([run(score=None)], [SLOW])[0]
    assert row["score"] is None
    assert cells(to_markdown([row], [SLOW], ""))[2][1] == ""


def test_markdown_rows_have_equal_length(table):
    found = cells(to_markdown(table, [SLOW, FAST], "a caption"))
    assert {len(line) for line in found} == {len(found[0])}
    assert found[0] == [
        "method",
        "test accuracy, %",
        "epochs",
        "steps",
        "trainers",
        "norm",
        "MB",
        "gradients",
        "messages",
        "s/epoch",
        "s/epoch, slow",
        "s/epoch, fast",
    ]
    assert found[2] == ["sync", "85.00 ± 7.07", "4", "", "", "", "9", "9", "100", "0.25 ± 0", "1.413 ± 0.14", "0.5011 ± 0.00018"]
    assert found[3] == ["odd", "failed: seed 0: a \0 b c", *[""] * 10]


def test_only_kinds_that_were_sent_have_a_column(table):
    assert "topology" not in cells(to_markdown(table, [], ""))[0]
    assert "bytes.topology" in to_csv(table).splitlines()[0].split(",")


def test_csv_reads_back(table):
    found = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [line["method"] for line in found] == ["sync", "odd"]
    assert float(found[0]["score.mean"]) == pytest.approx(0.85)
    assert float(found[0]["bytes.total"]) == 9e6
    assert float(found[0]["networks.slow.seconds.mean"]) == pytest.approx(5.65)
    assert found[1]["failed"] == "seed 0: a | b\nc"
    assert found[1]["bytes.total"] == ""
    assert not any(name.endswith("values") for name in found[0])
    assert all(None not in line and None not in line.values() for line in found)


def test_a_table_of_failures_only_is_still_a_table():
    found = cells(to_markdown(rows([run(failure="x")], [SLOW]), [SLOW], ""))
    assert {len(line) for line in found} == {len(found[0])}


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (1234567.0, "1,235,000"), (12.3456, "12.35"), (0.00123456, "0.001235"), (1.5e-7, "1.5e-07")]
)
def test_numbers_are_formatted(value, said):
    assert format_number(value) == said


def test_unequal_numbers_of_steps_are_noted():
    table = rows([run("sync", steps=10), run("full", steps=5), run("bns", failure="no")], [])
    assert [row.get("steps") for row in table] == [10, 5, None]
    assert "- The methods made different numbers of steps: sync 10, full 5." in to_markdown(table, [], "")
    assert "numbers of steps" not in to_markdown(rows([run("sync", steps=5), run("full", steps=5)], []), [], "")
    assert "numbers of steps" not in to_markdown(rows([run("sync", steps=5), run("full")], []), [], "")


def test_a_row_states_its_steps_its_trainers_and_its_norm():
    layers = {"model": "sage", "layer_norm": None, "batch_norm": False}
    told = {"sync": {"ranks": 4}, "psgd-pa": {"ranks": 4, "trainers": 3}, "retexo": {"ranks": 4}}
    made = [run(name, steps=10, config={**layers, "method": name}, **more) for name, more in told.items()]
    table = rows(made, [])
    assert [(row["steps"], row["trainers"], row["norm"]) for row in table] == [(10, 4, "none"), (10, 3, "none"), (10, 4, "layer")]
    assert [line[3:6] for line in cells(to_markdown(table, [], ""))[2:]] == [["10", "4", "none"], ["10", "3", "none"], ["10", "4", "layer"]]


NORMS = [({"layer_norm": False, "method": "retexo"}, "none"), ({"layer_norm": True}, "layer"), ({"batch_norm": True}, "batch")]


@pytest.mark.parametrize(("config", "norm"), [*NORMS, ({"model": "a.b:C"}, None)])
def test_the_norm_is_that_of_the_model(config, norm):
    layers = {"model": "sage", "layer_norm": None, "batch_norm": False, "method": "sync"}
    assert norm_of({"config": {**layers, **config}}) == norm


def test_differences_are_paired_by_seed_with_an_interval():
    """By hand: differences of 2, 4 and 6 points have mean 4 and deviation 2; t of 2 degrees of freedom is 4.3027."""
    scores = {"sync": [0.5, 0.7, 0.6], "full": [0.52, 0.74, 0.66]}
    table = rows([run(name, seed=seed, score=values[seed]) for seed in range(3) for name, values in scores.items()], [])
    found, half = table[1]["difference"], 4.302653 * 0.02 / math.sqrt(3)
    assert found == pytest.approx({"mean": 0.04, "low": 0.04 - half, "high": 0.04 + half, "seeds": 3})
    assert "difference" not in table[0]
    text = to_markdown(table, [], "")
    assert [line[2] for line in cells(text)] == ["minus sync", "---:", "", "+4.00 [-0.97, 8.97]"]
    assert "3 seeds say little: use --repeats 5" in text
    five = rows([run(name, seed=seed, score=score + seed / 100) for seed in range(5) for name, score in (("sync", 0.5), ("full", 0.6))], [])
    assert "paired by seed" in to_markdown(five, [], "")
    assert "say little" not in to_markdown(five, [], "")


def test_a_seed_whose_score_is_undefined_in_one_method_is_left_out_of_the_differences():
    """Method `full` lacks seed 1 and `sync` lacks seed 2: seeds 0 and 3 remain, with differences of 10 and 30 points."""
    scores = {"sync": [0.5, 0.7, None, 0.6], "full": [0.6, None, 0.1, 0.9]}
    table = rows([run(name, seed=seed, score=values[seed]) for seed in range(4) for name, values in scores.items()], [])
    assert table[1]["difference"]["mean"] == pytest.approx(0.2)
    assert table[1]["difference"]["seeds"] == 2


@pytest.mark.parametrize("other", [{"metric": "f1"}, {"split": "val"}], ids=["metric", "split"])
def test_a_score_is_not_subtracted_from_another_metric_or_split(other):
    runs = [run(name, seed=seed, **more) for name, more in (("sync", {}), ("full", other)) for seed in range(2)]
    table = rows(runs, [])
    assert table[1]["difference"] is None
    assert "minus sync" not in to_markdown(table, [], "")


def test_a_method_is_not_paired_with_one_that_failed_or_has_one_seed():
    assert "difference" not in rows([run("sync", failure="no"), run("full")], [])[1]
    assert rows([run("sync"), run("full")], [])[1]["difference"] is None
    assert "minus" not in to_markdown(rows([run("sync"), run("full")], []), [], "")
