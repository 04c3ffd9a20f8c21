"""The examples run, those of several ranks on real ones; type checkers know the types of README's lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from communities import community_graph
from launch import run_ranks
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.py"


def python(*words, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_quickstart_runs(tmp_path):
    community_graph().save(tmp_path / "g")
    lines = python(str(QUICKSTART), "g", cwd=tmp_path).splitlines()
    assert all(" digest " in line for line in lines[:-1])
    assert lines[-1].startswith("test accuracy ")


@pytest.mark.long
def test_a_script_of_a_user_passes_strict_mypy(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    typed = """
from typing import Any, assert_type

assert_type(graph, bs.Graph)
assert_type(batch, bs.Batch)
assert_type(batch.x, Any)  # a tensor, an array, or a dict of them by type
assert_type(bs.load("g", world=bs.init()).num_features, int)
assert_type(batch.to("cpu"), bs.Batch)
assert_type(batch.digest(), str)
assert_type(loader.epoch, int)
"""
    script.write_text(QUICKSTART.read_text() + typed)
    python("-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(script), cwd=tmp_path)
    script.write_text(QUICKSTART.read_text() + "\nbs.lod('g')\n")
    with pytest.raises(AssertionError, match='has no attribute "lod"'):
        python("-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(script), cwd=tmp_path)


@pytest.mark.long
def test_plain_torch_goes_on_after_its_last_checkpoint_on_another_number_of_ranks(tmp_path):
    """Two ranks by torchrun, and by mpirun; the second run resumes in the middle of an epoch and ends like one that never stopped."""
    community_graph(n=2000, noise=1.0).save(tmp_path / "g")
    program = [str(ROOT / "examples" / "plain_torch.py"), str(tmp_path / "g"), "--checkpoint"]

    def run(launcher, checkpoint, epochs, ranks=2):
        ended = run_ranks(ranks, [*program, str(tmp_path / checkpoint), "--epochs", str(epochs)], launcher=launcher)
        assert ended.code == 0, ended
        return [line for line in ended.out.splitlines() if line.startswith("epoch ") or "accuracy" in line]

    whole = run("torchrun", "one", 4)
    assert [line.split(":")[0] for line in whole[:-1]] == [f"epoch {epoch}" for epoch in range(4)]
    assert float(whole[-1].split()[-1]) > 0.5  # three classes
    first = run("mpirun", "two", 2)
    assert first[:2] == whole[:2]
    rest = run("torchrun", "two", 4)
    assert rest[-3:-1] == whole[2:4]
    assert rest[-1].split(",")[1] == whole[-1].split(",")[1]
    assert run("torchrun", "one", 6, ranks=3)[-2].startswith("epoch 5")  # on three ranks the batches of a step are others


@pytest.mark.long
def test_link_prediction_goes_on_after_its_last_checkpoint(tmp_path):
    """On two ranks: a run that resumes ends like one that never stopped; a third number of ranks goes on as well."""
    pytest.importorskip("torch_geometric")
    community_graph(n=1000, noise=1.0).save(tmp_path / "g")
    program = [str(ROOT / "examples" / "link_prediction.py"), str(tmp_path / "g"), "--checkpoint"]

    def run(checkpoint, epochs, ranks=2):
        ended = run_ranks(ranks, [*program, str(tmp_path / checkpoint), "--epochs", str(epochs)], launcher="torchrun")
        assert ended.code == 0, ended
        return [line for line in ended.out.splitlines() if line.startswith("epoch ") or "AUC" in line]

    whole = run("one", 3)
    assert float(whole[-1].split()[-1]) > 0.6
    assert run("two", 2)[:2] == whole[:2]
    rest = run("two", 3)
    assert rest[-2] == whole[2]
    assert rest[-1].split(",")[1] == whole[-1].split(",")[1]
    assert run("one", 4, ranks=3)[-2].startswith("epoch 3")


@pytest.mark.long
@pytest.mark.parametrize(("program", "size"), [("plain_torch", 2000), ("link_prediction", 1000)])
def test_what_an_example_scores_does_not_depend_on_the_number_of_ranks(tmp_path, program, size):
    """A model that was not trained is the same on any number of ranks."""
    if program == "link_prediction":
        pytest.importorskip("torch_geometric")
    community_graph(n=size, noise=1.0).save(tmp_path / "g")
    words = [str(ROOT / "examples" / f"{program}.py"), str(tmp_path / "g"), "--epochs", "0", "--checkpoint", str(tmp_path / "none")]
    alone, three = (run_ranks(p, words, launcher="torchrun") for p in (1, 3))
    assert (alone.code, three.code) == (0, 0), three
    assert three.out.splitlines()[-1] == alone.out.splitlines()[-1]


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_lightning_goes_on_after_its_last_checkpoint_and_profiles_the_loader(tmp_path, launcher):
    """Its checkpoints are saved every five steps: epochs of ten steps end with one, epochs of nine do not."""
    pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
    size = {"torchrun": "48", "mpirun": "44"}[launcher]  # 9 steps, 10 steps
    community_graph(n=1800, noise=1.0).save(tmp_path / "g")

    def run(folder, epochs, *words, ranks=2):
        program = [str(ROOT / "examples" / "lightning_sage.py"), str(tmp_path / "g"), "--checkpoints", str(tmp_path / folder)]
        ended = run_ranks(ranks, [*program, "--batch-size", size, "--epochs", str(epochs), *words], launcher=launcher)
        assert ended.code == 0, ended
        return [line for line in ended.out.splitlines() if line.startswith("epoch ") or "accuracy" in line], ended.out + ended.err

    whole, profile = run("one", 3, "--profiler", "simple")
    assert [line.split(":")[0] for line in whole[:-1]] == [f"epoch {epoch}" for epoch in range(3)]
    assert float(whole[-1].split()[-1]) > 0.5  # three classes
    assert all(f"bulksample: {phase}" in profile for phase in ("sample", "fetch"))
    assert run("two", 2)[0][:2] == whole[:2]
    assert run("two", 3)[0][-2:] == whole[-2:]


@pytest.mark.long
def test_pyg_sage_runs(tmp_path):
    pytest.importorskip("torch_geometric")
    community_graph(noise=1.0).save(tmp_path / "g")
    out = python(str(ROOT / "examples" / "pyg_sage.py"), "g", "--epochs", "2", "--hidden", "16", "--batch-size", "32", cwd=tmp_path)
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["epoch 0", "epoch 1"]


@pytest.mark.long
def test_dgl_sage_runs(tmp_path):
    pytest.importorskip("dgl", reason="DGL is not installed")
    community_graph(noise=1.0).save(tmp_path / "g")
    out = python(str(ROOT / "examples" / "dgl_sage.py"), "g", "--epochs", "2", "--hidden", "16", "--batch-size", "32", cwd=tmp_path)
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["epoch 0", "epoch 1"]
