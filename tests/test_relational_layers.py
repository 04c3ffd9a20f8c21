"""examples/relational_layers.py runs on stores of `data make hetero`, with and without times, and learns what can be learned."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from planted_relations import planted
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]


def run(folder, model, *options):
    pytest.importorskip("torch_geometric")
    command = [sys.executable, "examples/relational_layers.py", str(folder), "--model", model, "--json", str(folder / "run.json"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert not done.returncode, done.stderr
    return json.loads((folder / "run.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize("model", ["rgcn", "hgt"])
def test_layers_of_torch_geometric_learn_from_our_minibatches(tmp_path, model):
    planted().save(tmp_path / "planted")
    history = run(tmp_path / "planted", model, "--epochs", "60")
    assert history[-1]["test_accuracy"] > 0.8


@pytest.mark.long
@pytest.mark.parametrize("model", ["rgcn", "hgt"])
def test_layers_of_torch_geometric_train_on_a_made_graph_with_times(tmp_path, model):
    made = [
        "data",
        "make",
        "hetero",
        "--scale",
        "0.0005",
        "--features",
        "8",
        "--classes",
        "3",
        "--times",
        "50",
        "-o",
        str(tmp_path / "papers"),
    ]
    subprocess.run([sys.executable, "-m", "bulksample", *made], check=True, capture_output=True, timeout=PATIENCE)
    history = run(tmp_path / "papers", model, "--epochs", "3")
    assert history[-1]["loss"] < history[0]["loss"]
