"""Results are kept, and outputs that cannot be written are refused, before the work."""

import json
import os
import re
import shutil
import threading

import pytest

from bulksample import UsageError
from bulksample.data import result_places
from bulksample.methods.run import train
from bulksample.training import checkpoint

SMALL = ["--fanouts", "3", "--hidden", "4", "--batch-size", "64", "--epochs", "1", "--threads", "1", "--quiet"]
PLAN = ["--vertices", 1000, "--edges", 9000, "--feature-width", 8, "--ranks", 1, "--evaluate", "none"]
# Commands that write, by name: the words without outputs, and the flags of its outputs
WRITERS = {
    "info": (["info"], ["--json"]),
    "plan": (["plan", *PLAN], ["--json"]),
    "data info": (["data", "info", "GRAPH"], ["--json"]),
    "data verify": (["data", "verify", "GRAPH"], ["--json"]),
    "data make": (["data", "make", "rmat", "--scale", 4], ["-o", "--json"]),
    "data split-edges": (["data", "split-edges", "GRAPH"], ["-o", "--json"]),
    "partition": (["partition", "GRAPH", "--parts", 2], ["-o", "--json"]),
    "sample": (["sample", "GRAPH", "--fanouts", 3, "--minibatches", 1], ["--json"]),
    "train": (["train", "GRAPH", *SMALL], ["--json", "--metrics"]),
    "compare": (["compare", "GRAPH", "--methods", "sync"], ["--json"]),
    "report": (["report", "RUNS"], ["-o", "--markdown", "--csv"]),
}


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """Whatever would do the work of a command fails the test; the checks come first."""

    def work(*_, **__):
        raise AssertionError("the work began before the outputs were checked")

    for name in (
        "bulksample.data.rmat.rmat", "bulksample.data.link_split.hold_out", "bulksample.data.store.load", "bulksample.data.store.verify",
        "bulksample.distributed.matrix.verify.verify_together", "bulksample.methods.run.make_trainer", "bulksample.report.reading.read",
        "bulksample.report.compare.compare", "bulksample.cli.info.available", "bulksample.cli.plan.make_plan", "bulksample.data.store.info",
    ):  # fmt: skip
        monkeypatch.setattr(name, work)


def words(name, graph, tmp_path, flag, target):
    """The command with one output at `target` and the others at new places."""
    given, flags = WRITERS[name]
    line = [{"GRAPH": graph, "RUNS": tmp_path}.get(word, word) for word in given]
    for other in flags:
        line += [other, target if other == flag else tmp_path / f"free{other}"]
    return line + (["-o", tmp_path / "compared"] if name == "compare" else [])


CASES = [(name, flag) for name, (_, flags) in WRITERS.items() for flag in flags]


@pytest.mark.parametrize(("name", "flag"), CASES, ids=map(" ".join, CASES))
def test_every_output_of_every_command_is_checked_before_the_work(name, flag, command, graph, tmp_path):
    (tmp_path / "mine").write_text("precious")
    for target, why in (("mine", "exists already|is not a store"), ("mine/below", "cannot write .*Not a directory")):
        ended = command(*words(name, graph, tmp_path, flag, tmp_path / target))
        assert ended.code == 2, ended
        [line] = ended.err.splitlines()
        assert line.startswith("bulksample: UsageError: ")
        assert any(part.split(".*")[0] in line for part in why.split("|")), line
        assert str(tmp_path / target) in line
    assert (tmp_path / "mine").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["mine"]
    with pytest.raises(AssertionError, match="the work began"):
        command(*words(name, graph, tmp_path, flag, tmp_path / "new" / "place"))
    if flag != "-o" or name in ("partition", "report"):
        with pytest.raises(AssertionError, match="the work began"):
            command(*words(name, graph, tmp_path, flag, tmp_path / "mine"), "--overwrite")
        with pytest.raises(AssertionError, match="the work began"):
            command(*words(name, graph, tmp_path, flag, os.devnull))


@pytest.mark.parametrize(("name", "flag"), CASES, ids=map(" ".join, CASES))
def test_every_output_of_every_command_is_held_by_one_run(name, flag, command, graph, tmp_path):
    target, held, free = tmp_path / "mine", threading.Event(), threading.Event()

    def hold():
        with result_places.holding(target):
            held.set()
            free.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(60)
    try:
        ended = command(*words(name, graph, tmp_path, flag, target))
        assert ended.code == 2
        assert f"{target} is held by another thread of this process" in ended.err
    finally:
        free.set()
        other.join()
    assert os.listdir(tmp_path) == []


def test_a_folder_of_checkpoints_is_held_by_one_run(command, graph, tmp_path, monkeypatch):
    """Also the second of two runs in one process is refused, before it reads the checkpoints of the first."""
    said = []

    def second(*_, **__):
        monkeypatch.setattr("bulksample.training.checkpoint.newest", lambda _: pytest.fail("it was read"))
        thread = threading.Thread(target=lambda: said.append(refusal(lambda: train(graph, **options))))
        thread.start()
        thread.join()
        raise UsageError("enough")

    options = {"checkpoint": str(tmp_path / "kept"), "resume": "auto", "epochs": 1}
    monkeypatch.setattr("bulksample.methods.run.make_trainer", second)
    ended = command("train", graph, *SMALL, "--checkpoint", tmp_path / "kept", "--resume", "auto")
    assert "enough" in ended.err
    [text] = said
    assert text.startswith(f"{tmp_path / 'kept'} is held by another thread of this process")


def refusal(call):
    """Return the message with which a call is refused."""
    with pytest.raises(UsageError, match="is held by") as refused:
        call()
    return str(refused.value)


def test_what_lies_beside_the_json_is_kept_too(command, graph, tmp_path):
    for beside in ("r.config.yaml", "r.jsonl"):
        (tmp_path / beside).write_text("of an earlier run")
        ended = command("train", graph, *SMALL, "--json", tmp_path / "r.json")
        assert ended.code == 2
        assert f"{beside} exists already" in ended.err
        (tmp_path / beside).unlink()


def test_two_results_need_two_files(tmp_path):
    with pytest.raises(UsageError, match="two results would be written to"):
        result_places.check_outputs(False, tmp_path / "a", tmp_path / "b" / ".." / "a")


def test_a_folder_of_figures_that_holds_something_is_kept(tmp_path):
    result_places.check_folder(False, tmp_path / "new")
    result_places.check_folder(False, tmp_path)
    (tmp_path / "x.png").write_text("")
    with pytest.raises(UsageError, match="exists already and is not empty"):
        result_places.check_folder(False, tmp_path)
    result_places.check_folder(True, tmp_path)


def test_a_folder_is_no_place_for_a_file_and_a_loop_of_links_is_none(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for target in (tmp_path, tmp_path / "loop" / "x", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="cannot write"):
            result_places.check_outputs(True, target)


def test_checkpoints_of_another_run_are_kept(command, graph, tmp_path):
    (tmp_path / "kept" / "step-000000009").mkdir(parents=True)
    ended = command("train", graph, *SMALL, "--checkpoint", tmp_path / "kept")
    assert ended.code == 2
    assert "holds checkpoints of an earlier run; use --resume auto" in ended.err
    with pytest.raises(UsageError, match="holds checkpoints of an earlier run"):
        train(graph, checkpoint=str(tmp_path / "kept"))
    for more in ("--resume", "auto"), ("--overwrite",):
        with pytest.raises(AssertionError, match="the work began"):
            command("train", graph, *SMALL, "--checkpoint", tmp_path / "kept", *more)


@pytest.mark.parametrize(
    ("resumed", "said"),
    [
        ("other", "of a run other than"),
        ("other/step-000000007", "of a run other than"),
        ("kept/step-000000003", "holds step-000000009, after"),
        ("kept/step-000000009", None),
        ("kept", None),
    ],
)
def test_resuming_a_folder_keeps_later_checkpoints_and_those_of_other_runs(command, graph, tmp_path, resumed, said):
    """The first checkpoint of the resumed run would remove them."""
    for folder in ("kept/step-000000003", "kept/step-000000009", "other/step-000000007"):
        (tmp_path / folder).mkdir(parents=True)
    line = ["train", graph, *SMALL, "--checkpoint", tmp_path / "kept", "--resume", tmp_path / resumed]
    if said:
        ended = command(*line)
        assert ended.code == 2
        assert said in ended.err
        assert "--overwrite" in ended.err
        with pytest.raises(UsageError, match=said):
            train(graph, checkpoint=str(tmp_path / "kept"), resume=str(tmp_path / resumed))
        line.append("--overwrite")
    with pytest.raises(AssertionError, match="the work began"):
        command(*line)


@pytest.mark.parametrize("flag", ["--json", "--metrics"])
def test_resuming_nothing_replaces_no_results(command, graph, tmp_path, flag):
    """A run that has begun keeps its configuration before its first checkpoint, so a job that is put back into its queue goes on.

    It then has no report, and at most the line of its first epoch.
    """
    (tmp_path / "mine").write_text("precious")
    line = ["train", graph, *SMALL, "--checkpoint", tmp_path / "kept", "--resume", "auto", flag, tmp_path / "mine"]
    ended = command(*line)
    assert ended.code == 2
    assert "mine exists already; use another file, or --overwrite" in ended.err
    for begun in "config.yaml", "step-000000009/state.json":
        (tmp_path / "kept" / begun).parent.mkdir(parents=True)
        (tmp_path / "kept" / begun).write_text("{}")
        if begun == "config.yaml":
            assert "mine exists already" in command(*line).err
            (tmp_path / "mine").write_text('{"epoch": 0, "loss": 1.0}\n')
        if (begun, flag) != ("config.yaml", "--json"):
            with pytest.raises(AssertionError, match="the work began"):
                command(*line)
        shutil.rmtree(tmp_path / "kept")
    with pytest.raises(AssertionError, match="the work began"):
        command(*line, "--overwrite")


def test_a_new_run_removes_the_checkpoints_that_it_replaces(tmp_path):
    """They have later steps; `--resume auto` would take them for its own."""
    for number in (8, 9, 2, 4, 6):
        checkpoint.save(tmp_path, number, {}, {})
    assert sorted(os.listdir(tmp_path)) == ["step-000000004", "step-000000006"]


def test_a_result_that_cannot_be_written_in_the_end_is_printed(tmp_path, capsys):
    from bulksample.cli.output import emit

    with pytest.raises(UsageError, match="cannot write"):
        emit({"score": 1}, tmp_path, "t")
    assert json.loads(capsys.readouterr().out) == {"score": 1}


ENDINGS = {  # option of a command: a name that promises another format, and what is suggested
    ("info", "--json"): ("r.csv", "r.json"), ("plan", "--json"): ("r.yaml", "r.json"), ("data info", "--json"): ("r.txt", "r.json"),
    ("data verify", "--json"): ("r.npz", "r.json"), ("data make", "--json"): ("r.html", "r.json"), ("data make", "-o"): ("g.npz", "g"),
    ("data split-edges", "-o"): ("g.parquet", "g"), ("data split-edges", "--json"): ("r.jsonl", "r.json"),
    ("partition", "-o"): ("p.csv", "p.npz"), ("partition", "--json"): ("r.md", "r.json"),
    ("sample", "--json"): ("r.h5", "r.json"),
    ("train", "--json"): ("r.jsonl", "r.json"), ("train", "--metrics"): ("m.csv", "m.jsonl"), ("compare", "--json"): ("r.csv", "r.json"),
    ("report", "-o"): ("page.pdf", "page.html"), ("report", "--markdown"): ("t.html", "t.md"), ("report", "--csv"): ("t.parquet", "t.csv"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "flag"), CASES, ids=map(" ".join, CASES))
def test_no_output_is_written_under_a_name_of_another_format(name, flag, command, graph, tmp_path):
    given, suggested = ENDINGS[name, flag]
    for spelled in (given, given.upper()):
        ended = command(*words(name, graph, tmp_path, flag, tmp_path / spelled))
        assert ended.code == 2, ended
        [line] = ended.err.splitlines()
        assert spelled in line
        assert suggested.lower() in line.lower()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        (["report", "RUNS", "--png", "figures.png"], "figures"),
        (["compare", "GRAPH", "--methods", "sync", "-o", "all.json"], "all"),
        (["train", "GRAPH", *SMALL, "--checkpoint", "model.pt"], "model"),
        (["predict", "GRAPH", "--checkpoint", "RUNS", "-o", "p"], "p.npz or .*p.csv or .*p.parquet"),
        (["predict", "GRAPH", "--checkpoint", "RUNS", "-o", "p.parquet.gz"], "p.parquet\n"),
        (["predict", "GRAPH", "--checkpoint", "RUNS", "-o", "p.json.gz"], "p.npz or .*p.csv or .*p.parquet"),
        (["predict", "GRAPH", "--checkpoint", "RUNS", "-o", "lr0.5"], "lr0.5.npz or .*lr0.5.csv"),
        (["compare", "GRAPH", "--methods", "sync", "-o", "all.tar.gz"], "all\n"),
        (["predict", "GRAPH", "--checkpoint", "RUNS", "-o", "p.json"], "p.npz or .*p.csv or .*p.parquet"),
    ],
)
def test_nor_is_a_folder_made_under_the_name_of_a_file(line, suggested, command, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = command(*[{"GRAPH": graph, "RUNS": tmp_path}.get(word, word) for word in line])
    assert ended.code == 2, ended
    assert re.search(rf": use .*{suggested}|; use {suggested}", ended.err), ended.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["r", "r.JSON", "lr0.5", "v1.25"])
def test_a_name_that_promises_nothing_fits(name, tmp_path):
    result_places.check_ending("--json", tmp_path / name, ".json")
    if name != "r.JSON":
        result_places.check_ending("-o", tmp_path / name)
