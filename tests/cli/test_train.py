"""`bulksample train`: options, exit codes, and the keys of its JSON."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from communities import community_graph
from launch import ROOT, run_ranks
from waiting import PATIENCE, until

from bulksample.data import store

FLAGS = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "2", "--threads", "1"]
KINDS = {"total", "topology", "features", "activations", "gradients", "model", "control"}


def test_the_json_has_all_documented_keys(command, graph, tmp_path):
    code, out, _ = command("train", graph, *FLAGS, "--json", "-", "--metrics", tmp_path / "m.jsonl", "--seed", 3)
    assert code == 0
    report = json.loads(out)
    promised = {"method", "ranks", "epochs", "test_accuracy", "val_accuracy", "seconds_per_epoch", "phases", "bytes_sent"}
    assert promised <= report.keys()
    assert report["method"] == "sync"
    assert report["ranks"] == 1
    assert report["epochs"] == 2
    assert report["bytes_sent"].keys() == KINDS
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 2
    again = json.loads(command("train", graph, *FLAGS, "--json", "-", "--seed", 3, "--bulk-size", 2)[1])
    assert again["train_loss"] == report["train_loss"]
    assert json.loads(command("train", graph, *FLAGS, "--json", "-", "--seed", 4)[1])["train_loss"] != report["train_loss"]


def test_every_option_is_accepted(command, graph, tmp_path):
    more = ["--method", "sync", "--model", "gat", "--layers", 2, "--heads", 2, "--dropout", 0.1, "--input-dropout", 0.1, "--batch-norm",
            "--sampler", "ladies", "--options", "importance=squared_sum,debias=true", "--frontier", "all", "--bulk-size", "auto",
            "--backend", "reference", "--memory-budget", 10**6, "--seeds", "train", "--label", "other", "--feature-norm", "l2",
            "--metric", "rocauc", "--patience", 5, "--eval-every", 1, "--checkpoint", tmp_path / "c", "--checkpoint-every", 2,
            "--resume", "auto", "--timeout", 30, "--quiet", "--lr", 0.01, "--weight-decay", 1e-4,
            "--json", tmp_path / "r.json"]  # fmt: skip
    code, out, err = command("train", graph, *FLAGS, *more)
    assert code == 0, err
    assert out == ""
    report = json.loads((tmp_path / "r.json").read_text())
    assert 0 <= report["test_rocauc"] <= 1
    assert (tmp_path / "c" / "metrics.jsonl").exists()
    code, _, _ = command("train", graph, *FLAGS, *more, "--epochs", 3)
    assert code == 0
    assert json.loads((tmp_path / "r.json").read_text())["resumed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "gin"], "model"),
        (["--sampler", "sagee"], "--sampler: got 'sagee'; did you mean 'sage'?"),
        (["--method", "gossip"], "no method 'gossip'"),
        (["--fanouts", "5,x"], "fanouts must be whole numbers"),
        (["--layers", "3", "--fanouts", "5"], "3 layers need as many fanouts"),
        (["--bulk-size", "some"], "--bulk-size must be"),
        (["--label", "none"], "no label 'none'; use other"),
        (["--metric", "rocauc"], "compares two classes"),
        (["--options", "replace"], "NAME=VALUE"),
        (["--resume", "auto"], "--checkpoint DIR"),
        (["--resume", "/nowhere", "--checkpoint", "/tmp"], "no checkpoint at"),
        (["--lr", "-1"], "lr: input should be greater than 0"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_bad_use_exits_2_with_the_reason(command, graph, arguments, said):
    code, _, err = command("train", graph, *FLAGS, *arguments)
    assert code == 2
    assert said in err


def test_bad_data_exits_65(command, graph, tmp_path):
    code, _, err = command("train", tmp_path / "nowhere", *FLAGS)
    assert code in (2, 65)
    place = tmp_path / "g"
    store.save(community_graph(), place)
    indices = next(place.glob("*indices*.npy"))
    indices.write_bytes(indices.read_bytes()[:-4])
    code, _, err = command("train", place, *FLAGS)
    assert code == 65, err


@pytest.mark.long
def test_a_file_of_sampling_weights_may_stand_in_a_file_of_options(command, graph, tmp_path):
    np.save(tmp_path / "w.npy", np.arange(300) % 2)
    (tmp_path / "run.yaml").write_text(f"data:\n  sampling_weights: {tmp_path / 'w.npy'}\n")
    given = (["--sampling-weights", tmp_path / "w.npy"], ["--config", tmp_path / "run.yaml"], [])
    by_flag, by_file, plain = (json.loads(command("train", graph, *FLAGS, *more, "--json", "-").out)["train_loss"] for more in given)
    assert by_flag == by_file != plain
    code, out, err = command("train", graph, *FLAGS, "--sampling-weights", graph / "labels.npy", "--balance-classes")
    assert (code, out) == (2, "")
    assert "--balance-classes weighs seeds by their class; got --sampling-weights" in err
    np.save(tmp_path / "w.npy", np.ones(299))
    code, out, err = command("train", graph, *FLAGS, "--config", tmp_path / "run.yaml")
    assert (code, out) == (65, "")
    assert "w.npy: got the shape (299,); use one weight for each of the 300 vertices" in err


@pytest.mark.long
def test_a_signal_exits_75_after_a_checkpoint(graph, tmp_path):
    line = [sys.executable, "-m", "bulksample", "train", str(graph), *FLAGS, "--epochs", "100000", "--checkpoint", str(tmp_path), "--quiet"]
    process = subprocess.Popen(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.glob("step-*")))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, err
    assert "go on with --resume auto" in err
    assert int(max(tmp_path.glob("step-*")).name[5:]) > 0


@pytest.mark.long
def test_a_bad_option_ends_all_ranks_with_2(graph):
    ended = run_ranks(2, ["-m", "bulksample", "train", str(graph), *FLAGS, "--method", "gossip"])
    assert ended.code in (2, 9), ended
    assert "no method 'gossip'" in ended.err


def test_flags_of_sampling_that_a_method_does_not_read_are_named(command, graph, tmp_path):
    (tmp_path / "run.yaml").write_text("sampling:\n  batch_size: 8\n")
    small = ("--layers", 1, "--epochs", 1, "--threads", 1)
    said = command("train", graph, "--method", "full", "--batch-size", 8, "--sampler", "saint", *small).err
    assert "--method full samples nothing; without effect: --sampler, --batch-size; they are for sync, grappa, random-tma" in said
    for quiet_ones in (["--method", "full", "--config", tmp_path / "run.yaml"], ["--method", "sync", "--batch-size", 8]):
        ended = command("train", graph, *quiet_ones, *small)
        assert ended.code == 0, ended.err
        assert "without effect" not in ended.err
