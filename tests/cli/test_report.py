"""`bulksample report` as a user calls it: what is written, what is said, and the exit codes."""

import json
import shutil
import subprocess
import sys

import pytest
from communities import community_graph
from launch import MPIRUN, ROOT, run_ranks

from bulksample.data import store

FLAGS = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "2", "--threads", "1", "--quiet"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run alone, one on two ranks that is tracked, and a sample."""
    folder = tmp_path_factory.mktemp("runs")
    store.save(community_graph(), folder / "g")
    bulksample("train", folder / "g", *FLAGS, "--json", folder / "alone.json")
    bulksample("sample", folder / "g", "--fanouts", "5,5", "--batch-size", "32", "--json", folder / "drawn.json")
    shutil.rmtree(folder / "g")
    return folder


def bulksample(*words):
    line = [sys.executable, "-m", "bulksample", *map(str, words)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_lines_lie_beside_the_object_of_a_run(runs):
    assert len((runs / "alone.jsonl").read_text().splitlines()) == 2


def test_it_writes_what_it_is_asked_for(runs, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install matplotlib would bring it")
    files = ["--png", tmp_path / "png", "--markdown", tmp_path / "r.md", "--csv", tmp_path / "r.csv"]
    ended = bulksample("report", runs, "-o", tmp_path / "r.html", *files, "--title", "Two runs")
    assert (ended.returncode, ended.stderr) == (0, "")
    html = (tmp_path / "r.html").read_text()
    assert "<h1>Two runs</h1>" in html
    assert f"{json.loads((runs / 'drawn.json').read_text())['sampled_edges']:,}" in html
    assert {file.stem for file in (tmp_path / "png").iterdir()} == {"phases", "score_seconds", "loss", "sampling"}
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 3
    assert (tmp_path / "r.md").read_text().startswith("# Two runs\n\n## Runs\n\n| run |")


@pytest.mark.parametrize(
    ("text", "said"), [('{"a": ', "x.json: is not JSON"), ('{"a": 1}', "x.json: is no result"), (None, "x.json: there is no such file")]
)
def test_bad_input_exits_65_and_names_the_file(runs, tmp_path, text, said):
    if text:
        (tmp_path / "x.json").write_text(text)
    ended = bulksample("report", runs, tmp_path / "x.json", "-o", tmp_path / "r.html")
    assert ended.returncode == 65
    assert said in ended.stderr
    assert not (tmp_path / "r.html").exists()


def test_what_is_left_out_is_said(runs, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install matplotlib would bring it")
    (tmp_path / "package.json").write_text("{}")
    ended = bulksample("report", runs, tmp_path, "-o", tmp_path / "r.html")
    assert ended.returncode == 0
    assert f"bulksample: {tmp_path / 'package.json'} is left out: it is no result" in ended.stderr


def test_an_unknown_network_exits_2(runs, tmp_path):
    ended = bulksample("report", runs, "-o", tmp_path / "r.html", "--network", "carrier-pigeon")
    assert ended.returncode == 2
    assert "there is no network 'carrier-pigeon'" in ended.stderr


def test_only_rank_0_tells_trackers(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard would bring it")
    if MPIRUN is None:
        pytest.skip("no mpirun: pip install mpich would bring one")
    store.save(community_graph(), tmp_path / "g")
    track = ["--track", f"tensorboard:{tmp_path / 'board'}", "--json", str(tmp_path / "r.json")]
    ended = run_ranks(2, ["-m", "bulksample", "train", str(tmp_path / "g"), *FLAGS, *track], timeout=100)
    assert ended.code == 0, ended
    assert len(list((tmp_path / "board").iterdir())) == 1
    assert json.loads((tmp_path / "r.json").read_text())["config"]["track"] == [track[1]]


def test_a_tracker_that_does_not_exist_exits_2_before_anything_runs(tmp_path):
    store.save(community_graph(), tmp_path / "g")
    ended = bulksample("train", tmp_path / "g", *FLAGS, "--track", "comet:x", "--json", tmp_path / "r.json")
    assert ended.returncode == 2
    assert "a tracker must be NAME:TARGET; got 'comet:x'" in ended.stderr
    assert not (tmp_path / "r.json").exists()


def test_trainers_that_join_a_run_tell_no_trackers(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard would bring it")
    store.save(community_graph(), tmp_path / "g")
    track = ["--track", f"tensorboard:{tmp_path / 'board'}"]
    apart = ["--method", "super-tma", "--tolerate-failures", "--trainers", "1", "--interval", "0.2s"]
    ended = bulksample("train", tmp_path / "g", *FLAGS, *apart, *track)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "board").iterdir())) == 1
