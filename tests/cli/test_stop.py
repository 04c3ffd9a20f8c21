"""A run that is asked to stop, or that loses a rank while it starts: exit code 75, a message, nothing left behind."""

import json
import signal

import pytest
from launch import ROOT, Ranks, run_fresh
from waiting import until

from bulksample import samplers

FLAGS = ["--quiet", "--fanouts", "3,3", "--hidden", "8", "--batch-size", "16", "--threads", "1"]
LOST = 75


@pytest.mark.long  # the same request ends one process in tests/cli/test_train.py every time
def test_ctrl_c_under_mpirun_ends_all_ranks_after_a_checkpoint(graph, tmp_path):
    ranks = Ranks(2, ["-m", "bulksample", "train", str(graph), *FLAGS, "--epochs", "100000", "--checkpoint", str(tmp_path)])
    until(lambda: list(tmp_path.glob("step-*")))
    ranks.process.send_signal(signal.SIGINT)
    ended = ranks.wait()
    assert ended.code == LOST, ended
    assert "stopped by a signal after step" in ended.err, ended
    last = max(int(path.name.removeprefix("step-")) for path in tmp_path.glob("step-*"))
    assert f"after step {last};" in ended.err, ended


@pytest.mark.parametrize(
    ("act", "module", "said"),
    [
        ("kill", "typer", "was killed by signal 9"),
        pytest.param("terminate", "typer", "was stopped by SIGTERM", marks=pytest.mark.long),
        pytest.param("kill", "torch", "was killed by signal 9", marks=pytest.mark.long),
        pytest.param("terminate", "mpi4py", "was ended by signal 15", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_ends_while_it_starts_is_named(graph, act, module, said):
    fault = json.dumps({"rank": 1, "act": act, "where": ["import", module]})
    ended = run_fresh(2, [str(ROOT / "tests" / "faults.py"), fault, "train", str(graph), *FLAGS])
    assert ended.code == LOST, ended
    assert "bulksample: rank 1 of 2 (process" in ended.err, ended
    assert said in ended.err, ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_not_a_training_says_which_signal_stopped_it(command, graph, monkeypatch, number):
    monkeypatch.setattr(samplers, "make", lambda *arguments, **options: signal.raise_signal(number))
    ended = command("sample", graph, "--fanouts", "3", "--batch-size", "8")
    assert ended.code == LOST, ended
    assert f"bulksample: stopped by {number.name}; run the same command again" in ended.err
