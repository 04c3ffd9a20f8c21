"""The options of what a run leaves behind and prints: files with what a dense or an unbroken run holds, lines that are counted."""

import io
import json
import logging
import sys

import pytest
import torch
from commands import command, train
from plain import TINY, graph, trained, without_scores
from safetensors.torch import load_file

import bulksample
from bulksample import UsageError
from bulksample.config.file import read
from bulksample.methods.config import TrainConfig
from bulksample.training import checkpoint


def test_checkpoint_holds_the_newest_weights(tmp_path):
    """Without validation the newest weights are the result, so the file holds the model that the run ends with."""
    report, _, made = trained(without_scores(), checkpoint=str(tmp_path / "kept"), epochs=2)
    folders = sorted(path.name for path in (tmp_path / "kept").glob("step-*"))
    assert folders == [f"step-{report['steps'] * epoch // 2:09d}" for epoch in (1, 2)]
    held = load_file(tmp_path / "kept" / folders[-1] / "tensors.safetensors")
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(held[f"model.{name}"], tensor)


def test_checkpoint_every_counts_steps(tmp_path, monkeypatch):
    """Every second step, and the end of both epochs."""
    steps, save = [], checkpoint.save

    def saved(directory, number, *state):
        steps.append(number)
        return save(directory, number, *state)

    monkeypatch.setattr(checkpoint, "save", saved)
    options = {"batch_size": 6, "epochs": 2, "checkpoint": str(tmp_path / "kept"), "checkpoint_every": 2}
    whole = trained(without_scores(), **options)[0]["steps"]
    assert sorted(set(steps)) == sorted({*range(2, whole + 1, 2), whole // 2, whole})


def test_resume_goes_on_where_a_run_ended(tmp_path):
    """Two epochs and two more have the losses and the weights of four."""
    kept = {"checkpoint": str(tmp_path / "kept"), "lr": 0.05}
    _, unbroken, whole = trained(without_scores(), **{**kept, "checkpoint": None, "epochs": 4})
    trained(without_scores(), **kept, epochs=2)
    _, rest, made = trained(without_scores(), **kept, epochs=4, resume="auto")
    assert rest.losses == unbroken.losses[len(unbroken.losses) // 2 :]
    for one, other in zip(made.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_metrics_is_a_file_of_one_line_an_epoch(folder, tmp_path):
    train(folder, "--epochs", 3, "--metrics", tmp_path / "lines.jsonl")
    file = tmp_path / "lines.jsonl"
    assert file.exists()
    assert [json.loads(line)["epoch"] for line in file.read_text().splitlines()] == [0, 1, 2]


def test_track_sends_every_epoch_to_a_tracker(folder, tmp_path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(folder, "--epochs", 3, "--track", f"tensorboard:{tmp_path / 'board'}")
    assert (tmp_path / "board").exists()
    board = reading.EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert [scalar.step for scalar in board.Scalars("loss")] == [0, 1, 2]


def test_quiet_prints_nothing(folder, capfd):
    train(folder)
    assert "test_accuracy" in capfd.readouterr().out
    train(folder, "--quiet")
    assert capfd.readouterr() == ("", "")


def test_what_the_command_line_writes_python_writes_too(tmp_path, capfd):
    """Lines of epochs, also beside checkpoints, a tracker, and progress; each alone, and nothing of it without the option."""
    options = {**TINY, "epochs": 2}
    assert bulksample.train(graph(), **options)["epochs"] == 2
    assert capfd.readouterr() == ("", "")
    bulksample.train(graph(), **options, metrics=str(tmp_path / "lines.jsonl"))
    bulksample.train(graph(), **options, checkpoint=str(tmp_path / "kept"))
    for file in (tmp_path / "lines.jsonl", tmp_path / "kept" / "metrics.jsonl"):
        assert [json.loads(line)["epoch"] for line in file.read_text().splitlines()] == [0, 1]
    with pytest.raises(UsageError, match=r"lines\.jsonl exists already"):
        bulksample.train(graph(), **options, metrics=str(tmp_path / "lines.jsonl"))
    assert capfd.readouterr() == ("", "")
    pytest.importorskip("tensorboard", reason="tensorboard is missing: pip install tensorboard")
    bulksample.train(graph(), **options, track=[f"tensorboard:{tmp_path / 'board'}"])
    assert any((tmp_path / "board").iterdir())
    with pytest.raises(UsageError, match="nonsense"):
        bulksample.train(graph(), **options, track=["nonsense:x"])


@pytest.mark.parametrize("logged", [False, True])
def test_python_shows_progress_if_asked(caplog, monkeypatch, logged):
    """By the logger; where the program has set up no logging, as lines on standard error."""
    log = logging.getLogger("bulksample")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "level", logging.NOTSET)
    if not logged:
        monkeypatch.setattr(log, "propagate", False)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    bulksample.train(graph(), **TINY | {"epochs": 2}, quiet=False)
    told = caplog.text if logged else stream.getvalue()
    assert [f"epoch {epoch} ({epoch + 1} of 2)" in told for epoch in (0, 1)] == [True, True]
    stream.truncate(0), caplog.clear()
    bulksample.train(graph(), **TINY | {"epochs": 1}, quiet=True)
    assert (stream.getvalue(), caplog.text) == ("", "")


def test_options_of_sampling_are_told_of_where_nothing_is_sampled(capsys):
    options = {key: value for key, value in TINY.items() if key not in ("fanouts", "batch_size", "epochs", "layers")}
    bulksample.train(graph(), **options, layers=2, method="full", epochs=1)
    assert "warning" not in capsys.readouterr().err
    bulksample.train(graph(), **options, method="full", epochs=1, fanouts=(3, 2), batch_size=4)
    said = capsys.readouterr().err
    assert "bulksample: warning: method 'full' samples nothing; without effect: " in said
    assert "fanouts" in said
    assert "batch_size" in said
    assert "of fanouts it reads how many there are, its layers" in said


def test_json_is_the_report_in_a_file(folder, tmp_path):
    file = tmp_path / "result.json"
    train(folder, "--json", file)
    assert file.exists()
    options = {**TINY, "dropout": 0.5}  # the default of the command line
    report = trained(graph(), **options)[0]
    assert json.loads(file.read_text())["train_loss"] == report["train_loss"]


def test_config_is_read(folder, tmp_path):
    """Five epochs by the file, and a learning rate; the width of the command line goes before that of the file."""
    (tmp_path / "run.yaml").write_text("epochs: 5\nhidden: 32\nlr: 0.1\n")
    result = tmp_path / "result.json"
    command("train", folder, "--fanouts", "3,2", "--hidden", 4, "--threads", 1, "--config", tmp_path / "run.yaml", "--json", result)
    report = json.loads(result.read_text())
    assert report["epochs"] == 5
    assert report["parameters"] == 2 * 8 * 4 + 4 + 2 * 4 * 3 + 3
    assert read(tmp_path / "result.config.yaml", TrainConfig)["lr"].value == "0.1"


def test_verbose_shows_every_entry(folder, capfd):
    train(folder)
    short = capfd.readouterr().out
    train(folder, "--verbose")
    assert "held_bytes" not in short
    assert "held_bytes" in capfd.readouterr().out


def test_log_level_decides_which_lines_are_printed(folder, capfd):
    """Debug: a line for each of the steps; info: one for each of two epochs; warning: none."""
    lines = {}
    for level in ("debug", "info", "warning"):
        train(folder, "--epochs", 2, "--batch-size", 10_000, "--log-level", level)
        printed = [line for line in capfd.readouterr().err.splitlines() if "epoch" in line]
        lines[level] = len([line for line in printed if "step" in line]), len([line for line in printed if "step" not in line])
    assert lines == {"debug": (2, 2), "info": (0, 2), "warning": (0, 0)}
