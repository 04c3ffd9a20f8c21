"""Loaders of numpy arrays and `bulksample sample` need no torch, which is installed by an extra."""

import subprocess
import sys

import pytest
from communities import community_graph
from planted_relations import planted

from bulksample.data import store

_BLOCKED = "import sys; sys.modules['torch'] = None\n"
_LOADER = """
import bulksample as bs

graph = bs.load(sys.argv[1])
typed = not graph.plain
for dicts in (True,) if typed else (True, False):
    loader = bs.Loader(graph, fanouts=(2, 2), seeds="paper" if typed else "all", batch_size=8, as_dicts=dicts, out="numpy")
    batch = next(iter(loader))
    own, mean = batch.own_and_mean()
    print(batch.x is not None, batch.y is not None, batch.e_id is not None, len(batch.blocks), len(own) > 0, len(mean) > 0, batch.digest())
bs.HeteroLoader, bs.HeteroBatch, bs.RelationSampler, bs.Batch, bs.TimeRule
"""
_SAMPLE = "from bulksample.cli import main; sys.argv[0] = 'bulksample'; main()"


def alone(code, *words):
    run = subprocess.run(
        [sys.executable, "-c", _BLOCKED + code, *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("kind", ["plain", "several"])
def test_a_loader_of_numpy_arrays(kind, tmp_path):
    store.save(community_graph(n=60) if kind == "plain" else planted(), tmp_path / "s")
    lines = alone(_LOADER, tmp_path / "s").splitlines()
    assert [line.split()[:6] for line in lines] == [["True", "True", "True", "2", "True", "True"]] * (2 if kind == "plain" else 1)


def test_the_command_sample(tmp_path):
    store.save(planted(), tmp_path / "s")
    assert "digest" in alone(_SAMPLE, "sample", tmp_path / "s", "--fanouts", "2,2", "--batch-size", "8", "--json", "-")
