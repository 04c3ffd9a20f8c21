"""`bulksample report`: files, messages and exit codes; trackers of `train`."""

import json

import pytest
from launch import MPIRUN, run_ranks

FLAGS = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "2", "--threads", "1", "--quiet"]


@pytest.fixture
def runs(command, graph, made_once):
    """A folder with a result of `train` and one of `sample`."""
    if not made_once.exists():
        command("train", graph, *FLAGS, "--json", made_once / "alone.json")
        command("sample", graph, "--fanouts", "5,5", "--batch-size", "32", "--json", made_once / "drawn.json")
    return made_once


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    return tmp_path_factory.mktemp("results") / "runs"


def test_lines_lie_beside_the_object_of_a_run(runs):
    assert len((runs / "alone.jsonl").read_text().splitlines()) == 2


@pytest.mark.long
def test_it_writes_every_requested_file(command, runs, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    files = ["--png", tmp_path / "png", "--markdown", tmp_path / "r.md", "--csv", tmp_path / "r.csv"]
    ended = command("report", runs, "-o", tmp_path / "r.html", *files, "--title", "Two runs")
    assert (ended.code, ended.err) == (0, "")
    html = (tmp_path / "r.html").read_text()
    assert "<h1>Two runs</h1>" in html
    assert f"{json.loads((runs / 'drawn.json').read_text())['sampled_edges']:,}" in html
    assert {file.stem for file in (tmp_path / "png").iterdir()} == {"phases", "score_seconds", "loss", "sampling"}
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 3
    assert (tmp_path / "r.md").read_text().startswith("# Two runs\n\n## Runs\n\n| run |")


@pytest.mark.parametrize(
    ("text", "said"), [('{"a": ', "x.json: is not JSON"), ('{"a": 1}', "x.json: is no result"), (None, "x.json: there is no such file")]
)
def test_bad_input_exits_65_and_names_the_file(command, runs, tmp_path, text, said):
    if text:
        (tmp_path / "x.json").write_text(text)
    ended = command("report", runs, tmp_path / "x.json", "-o", tmp_path / "r.html")
    assert ended.code == 65
    assert said in ended.err
    assert not (tmp_path / "r.html").exists()


def test_a_skipped_file_is_reported(command, runs, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    (tmp_path / "package.json").write_text("{}")
    ended = command("report", runs, tmp_path, "-o", tmp_path / "r.html")
    assert ended.code == 0
    assert f"bulksample: {tmp_path / 'package.json'} is left out: it is no result" in ended.err


def test_an_unknown_network_exits_2(command, runs, tmp_path):
    ended = command("report", runs, "-o", tmp_path / "r.html", "--network", "carrier-pigeon")
    assert ended.code == 2
    assert "there is no network 'carrier-pigeon'" in ended.err


@pytest.mark.long
def test_only_rank_0_writes_to_trackers(graph, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is missing: pip install tensorboard")
    if MPIRUN is None:
        pytest.skip("mpirun is missing: pip install mpich")
    track = ["--track", f"tensorboard:{tmp_path / 'board'}", "--json", str(tmp_path / "r.json")]
    ended = run_ranks(2, ["-m", "bulksample", "train", str(graph), *FLAGS, *track])
    assert ended.code == 0, ended
    assert len(list((tmp_path / "board").iterdir())) == 1
    assert json.loads((tmp_path / "r.json").read_text())["config"]["track"] == [track[1]]


def test_an_unknown_tracker_exits_2_before_training(command, graph, tmp_path):
    ended = command("train", graph, *FLAGS, "--track", "comet:x", "--json", tmp_path / "r.json")
    assert ended.code == 2
    assert "a tracker must be NAME:TARGET; got 'comet:x'" in ended.err
    assert not (tmp_path / "r.json").exists()


@pytest.mark.long
def test_trainers_that_join_a_run_write_to_no_tracker(command, graph, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is missing: pip install tensorboard")
    track = ["--track", f"tensorboard:{tmp_path / 'board'}"]
    apart = ["--method", "super-tma", "--tolerate-failures", "--trainers", "1", "--interval", "0.2s"]
    ended = command("train", graph, *FLAGS, *apart, *track)
    assert ended.code == 0, ended.err
    assert len(list((tmp_path / "board").iterdir())) == 1
