"""A training logs a line an epoch without a terminal, prints ten rows at the end with the score first, and nothing with --quiet."""

import json
import logging
import re

import pytest
from communities import community_graph

from bulksample.cli.output import _FILE_ONLY as FILE_ONLY
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.callbacks import EpochLog

SMALL = {"fanouts": (3, 3), "hidden": 8, "batch_size": 64, "epochs": 3, "threads": 1, "seed": 2}
FLAGS = ["--fanouts", "3,3", "--hidden", "8", "--batch-size", "64", "--epochs", "3", "--threads", "1", "--seed", "2"]
LINE = re.compile(r"^bulksample: epoch (\d) \((\d) of 3\): loss (\d\.\d{4}), val_accuracy (\d\.\d{4}), .* s$", re.MULTILINE)
SCORES = ["test_accuracy", "val_accuracy", "train_loss", "best_epoch"]
ROWS = [*SCORES, "method", "model", "ranks", "epochs", "seconds_per_epoch", "bytes_sent"]


def names(out):
    """The entries of a table, in order."""
    first = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    return [name for name in first if name]


@pytest.fixture
def trained(command, graph, tmp_path):
    """Train with some flags; return the exit, its report and the lines of its epochs."""

    def run(*flags):
        ended = command("train", graph, *FLAGS, "--json", tmp_path / "r.json", *flags)
        assert ended.code == 0, ended.err
        epochs = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
        return ended, json.loads((tmp_path / "r.json").read_text()), epochs

    return run


def test_each_epoch_is_a_line_and_the_table_has_ten_rows(trained):
    ended, report, epochs = trained()
    shown = [(int(number), int(place), float(loss), float(score)) for number, place, loss, score in LINE.findall(ended.err)]
    assert shown == [(i, i + 1, round(line["loss"], 4), round(line["val_accuracy"], 4)) for i, line in enumerate(epochs)]
    assert names(ended.out) == ROWS
    assert f"{report['test_accuracy']:,.4g} " in next(line for line in ended.out.splitlines() if "│" in line)
    assert "--verbose" in ended.out


def test_verbose_prints_the_rest_after_the_ten(trained):
    ended, report, _ = trained("--verbose")
    shown = names(ended.out)
    assert shown[:10] == ROWS
    assert {name.partition(".")[0] for name in shown} == report.keys() - set(FILE_ONLY)


@pytest.mark.parametrize(("level", "epochs", "steps"), [("debug", 3, True), ("info", 3, False), ("warning", 0, False), ("error", 0, False)])
def test_the_level_chooses_the_lines(trained, level, epochs, steps):
    ended, _, _ = trained("--log-level", level)
    assert len(LINE.findall(ended.err)) == epochs
    assert ("bulksample: epoch 0, step 0: loss " in ended.err) == steps


def test_quiet_prints_nothing(trained):
    ended, _, _ = trained("--quiet")
    assert ended.out + ended.err == ""


def test_json_on_standard_output_is_alone_there(command, graph):
    ended = command("train", graph, *FLAGS, "--json", "-")
    assert json.loads(ended.out)["epochs"] == 3
    assert len(LINE.findall(ended.err)) == 3


def test_quiet_and_verbose_contradict_each_other(command, graph):
    ended = command("train", graph, *FLAGS, "--quiet", "--verbose")
    assert ended.code == 2
    assert "--quiet and --verbose contradict each other; use one of them" in ended.err


def test_one_rank_speaks_for_all(caplog):
    source = community_graph()
    with caplog.at_level(logging.INFO, "bulksample"):
        on_threads(2, lambda comm: make_trainer(TrainConfig.of(**SMALL), source, comm, [EpochLog()]).run())
    begun = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert begun == [f"epoch {i} ({i + 1} of 3)" for i in range(3)]
