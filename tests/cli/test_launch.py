"""The same run under several launchers: equal mini-batches and, on equally many ranks, equal losses."""

import json

import pytest
import torch.distributed
from communities import community_graph
from launch import run_fresh

from bulksample.data import store

LAUNCHERS = ("mpirun", "torchrun") if torch.distributed.is_gloo_available() else ("mpirun",)
TRAIN = ["--fanouts", "3,3", "--hidden", "8", "--batch-size", "16", "--epochs", "3"]
SAMPLE = ["--fanouts", "3,3", "--batch-size", "16", "--seeds", "all"]
BLOCKS = ["--graph", "partitioned"]


@pytest.mark.parametrize(
    ("command", "options", "ranks"),
    [
        ("train", TRAIN, 3),
        ("train", [*TRAIN, *BLOCKS, "--replication", "2"], 4),
        ("sample", [*SAMPLE, *BLOCKS], 3),
    ],
)
@pytest.mark.long
def test_launchers_do_not_change_the_result(tmp_path, command, options, ranks):
    store.save(community_graph(), tmp_path / "g")
    found = []
    for launcher in LAUNCHERS:
        json_file = tmp_path / f"{launcher}.json"
        line = ["-m", "bulksample", command, str(tmp_path / "g"), *options, "--json", str(json_file)]
        ended = run_fresh(ranks, line, launcher=launcher)
        assert ended.code == 0, ended
        assert f"{ranks} ranks by {launcher}, threads of a rank: " in ended.err, ended
        report = json.loads(json_file.read_text())
        assert (report["ranks"], report.pop("launcher")) == (ranks, launcher)
        sent = {kind: sent for kind, sent in report["bytes_sent"].items() if kind not in ("control", "total")}  # control tells seconds
        alike = ("digest", "sampled_edges", "train_loss", "test_accuracy", "val_accuracy", "best_epoch")
        found.append({key: report[key] for key in alike if key in report} | sent)
    assert found[0].get("digest") or found[0]["train_loss"]
    assert all(other == found[0] for other in found)
