"""A run that goes on replaces the outputs that it wrote itself, and keeps those of other runs."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import bulksample
from bulksample import DataError, UsageError
from bulksample.training.overwrite import FILE, Outputs

SMALL = ["--fanouts", "3", "--hidden", "4", "--batch-size", "64", "--threads", "1", "--quiet"]


@pytest.fixture
def runs(command, graph, tmp_path):
    """Two runs, a and b, each with a folder of checkpoints, a report and lines; return a call that goes on with one of them."""

    def train(name, *more, epochs=1, report=None, lines=None):
        report, lines = report or f"{name}.json", lines or f"{name}.ndjson"
        files = ["--checkpoint", tmp_path / name, "--json", tmp_path / report, "--metrics", tmp_path / lines]
        return command("train", graph, *SMALL, "--epochs", epochs, "--resume", "auto", *files, *more)

    for name in "ab":
        ended = train(name)
        assert ended.code == 0, ended
    return train


def content(folder):
    return {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(
    ("more", "named"), [({"report": "b.json"}, "b.json"), ({"lines": "b.ndjson"}, "b.ndjson"), ({"report": "b2.json"}, "b2.config.yaml")]
)
def test_going_on_keeps_the_outputs_of_another_run(runs, tmp_path, more, named):
    shutil.copy(tmp_path / "b.config.yaml", tmp_path / "b2.config.yaml")
    before = content(tmp_path)
    ended = runs("a", epochs=2, **more)
    assert ended.code == 2, ended
    assert f"{tmp_path / named} exists already; use another file, or --overwrite" in ended.err
    assert content(tmp_path) == before
    ended = runs("a", "--overwrite", epochs=2, **more)
    assert ended.code == 0, ended
    assert (tmp_path / named).read_bytes() != before[tmp_path / named]
    assert runs("a", epochs=3, **more).code == 0  # from now on it is its own


def test_going_on_replaces_its_own_outputs(runs, tmp_path):
    for epochs in 2, 3:
        ended = runs("a", epochs=epochs)
        assert ended.code == 0, ended
        assert json.loads((tmp_path / "a.json").read_text())["config"]["epochs"] == epochs
        assert len((tmp_path / "a.ndjson").read_text().splitlines()) == epochs


def test_a_file_that_another_run_has_replaced_since_is_kept(runs, tmp_path):
    assert runs("b", "--overwrite", epochs=2, report="a.json").code == 0
    assert "a.json exists already" in runs("a", epochs=2).err
    assert json.loads((tmp_path / "a.json").read_text())["config"]["checkpoint"] == str(tmp_path / "b")


def test_a_checkpoint_without_a_record_goes_on_twice(runs, tmp_path):
    """An earlier version kept no record; the second time there is one, of the files that the first time began with."""
    (tmp_path / "a" / FILE).unlink()
    for epochs in 2, 3:
        assert runs("a", epochs=epochs).code == 0


def test_checkpoints_that_move_alone_keep_their_outputs(runs, tmp_path):
    (tmp_path / "scratch").mkdir()
    shutil.move(tmp_path / "a", tmp_path / "scratch" / "a")
    here = {"report": "a.json", "lines": "a.ndjson"}
    assert runs("scratch/a", epochs=2, **here).code == 0
    assert runs("scratch/a", epochs=3, **here).code == 0
    assert "b.json exists already" in runs("scratch/a", epochs=4, report="b.json", lines="a.ndjson").err
    shutil.copytree(tmp_path / "scratch", tmp_path / "copied" / "scratch")  # with its results, which it goes on with
    for end in ("json", "ndjson", "config.yaml"):
        shutil.copy(tmp_path / f"a.{end}", tmp_path / "copied")
    assert "exists already" in runs("copied/scratch/a", epochs=4, **here).err


def test_a_report_that_the_user_wrote_on_one_line_is_kept(runs, tmp_path):
    report = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps({**report, "remark": "the best one"}))
    assert "a.json exists already" in runs("a", epochs=2).err
    assert json.loads((tmp_path / "a.json").read_text())["remark"] == "the best one"


def test_a_run_that_fails_before_it_begins_leaves_the_record(runs, command, graph, tmp_path, monkeypatch):
    from bulksample.methods import run

    def fail(*_, **__):
        raise DataError("no labels")

    monkeypatch.setattr(run, "make_trainer", fail)
    assert "no labels" in runs("a", "--overwrite", "--resume", "no", report="b.json").err
    monkeypatch.undo()
    assert "b.json exists already" in runs("a", epochs=2, report="b.json").err
    assert runs("a", epochs=2).code == 0


@pytest.mark.parametrize("metrics", [False, True])
def test_going_on_with_a_pipe(graph, tmp_path, metrics):
    os.mkfifo(pipe := tmp_path / "pipe")
    files = ["--metrics", pipe] if metrics else ["--json", pipe]
    options = [*SMALL, "--checkpoint", tmp_path / "c", "--resume", "auto", *files]
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        for epochs in 1, 2:
            run = [sys.executable, "-m", "bulksample", "train", graph, *options, "--epochs", epochs]
            subprocess.run([*map(str, run)], check=True, timeout=120)
            found = json.loads(os.read(reader, 2**16))
            assert found["epoch"] == epochs - 1 if metrics else found["config"]["epochs"] == epochs
    finally:
        os.close(reader)


def test_python_keeps_them_too(graph, tmp_path):
    options = {"fanouts": [3], "layers": 1, "hidden": 4, "batch_size": 64, "threads": 1}

    def train(name, lines, epochs=1, **more):
        kept = {"checkpoint": str(tmp_path / name), "metrics": str(tmp_path / lines), "resume": "auto"}
        return bulksample.train(graph, **options, **kept, epochs=epochs, **more)

    train("a", "a.jsonl"), train("b", "b.jsonl")
    before = content(tmp_path)
    with pytest.raises(UsageError, match=r"b\.jsonl exists already; use another file, or overwrite=True"):
        train("a", "b.jsonl", 2)
    assert content(tmp_path) == before
    assert train("a", "a.jsonl", 2)["resumed"]
    assert train("a", "b.jsonl", 3, overwrite=True)["resumed"]


def test_a_file_is_known_by_its_place_and_how_it_begins(tmp_path):
    outputs, file = Outputs(tmp_path / "c"), tmp_path / "m.jsonl"
    for written, held in (
        ("", True),
        ('{"epo', True),
        ('{"epoch": 0, "lo', True),
        ("torn", False),
        ("line 1\n", True),
        ("line 1\nline 2\n", True),
        ("line 2\n", False),
        ("x\n", False),
    ):
        outputs.note(file, "line 1\n")
        file.write_text(written)
        assert Outputs(tmp_path / "c", goes_on=True).hold(file) == held
    (tmp_path / "copy").write_text("line 1\n")
    assert not outputs.hold(tmp_path / "copy")
    moved = (tmp_path / "moved").resolve()
    moved.mkdir()
    shutil.copytree(tmp_path / "c", moved / "c"), (moved / "m.jsonl").write_text("line 1\n")
    assert Outputs(moved / "c", goes_on=True).hold(moved / "m.jsonl")
    file.write_text("line 1\n")
    for number in range(2, 5):  # killed before each write, or the disk is full
        outputs.note(file, f"line {number}\n")
        assert outputs.hold(file)


@pytest.mark.parametrize("text", ["{", "[]", '{"m": 1}', '{"m": [[1]]}', '{"m": [["x", "y"]]}'])
def test_a_record_that_cannot_be_read_is_not_taken_for_none(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match="cannot be read"):
        Outputs(tmp_path, goes_on=True)
    assert not Outputs(tmp_path).recorded
