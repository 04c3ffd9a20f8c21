"""A run that is asked to stop, or that loses a rank while it starts: exit code 75, a message, nothing left behind."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from launch import ROOT, Ranks, run_fresh
from waiting import PATIENCE, until

from bulksample import samplers
from bulksample.training.checkpoint import load

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


def test_a_lost_terminal_ends_a_run_after_a_checkpoint(graph, tmp_path):
    """Its progress bar has nowhere to go then, and the kernel sends SIGHUP."""
    words = ["bulksample", "train", str(graph), *FLAGS[1:], "--epochs", "100000", "--checkpoint", str(tmp_path / "kept")]
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
        os.execv(sys.executable, [sys.executable, "-m", *words])
    os.set_blocking(terminal, False)

    def saved():
        with suppress(BlockingIOError):
            os.read(terminal, 2**16)
        return list((tmp_path / "kept").glob("step-*"))

    until(saved)
    last = max(int(path.name.removeprefix("step-")) for path in saved())
    os.close(terminal)
    until(lambda: os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == LOST
    newest = max(int(path.name.removeprefix("step-")) for path in (tmp_path / "kept").glob("step-*"))
    assert newest >= last
    assert load(tmp_path / "kept" / f"step-{newest:09d}")[1]["progress"]["steps"] == newest


CLOSED = {"2>&-": [2], ">&-": [1], "all": [0, 1, 2]}


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("good", [True, False])
def test_a_command_whose_streams_are_closed_does_its_work(graph, tmp_path, closed, good):
    """Lines that C libraries print must not land in a file of the run either."""
    source = graph if good else tmp_path / "nowhere"
    words = ["train", source, *FLAGS, "--epochs", "1", "--json", tmp_path / "r.json", "--checkpoint", tmp_path / "kept"]
    line = [sys.executable, "-m", "bulksample", *map(str, words)]
    program = f"import os; [os.close(n) for n in {CLOSED[closed]}]; os.execv({line[0]!r}, {line!r})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == (0 if good else 65), ended
    if good:
        assert json.loads((tmp_path / "r.json").read_text())["epochs"] == 1
        (step,) = (tmp_path / "kept").glob("step-*")
        assert load(step)[1]["progress"]["rounds"] == 1
    elif 2 not in CLOSED[closed]:
        assert "nowhere" in ended.stderr


@pytest.mark.parametrize("encoding", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_terminal_that_knows_ascii_alone_is_enough(graph, tmp_path, encoding):
    """A table has an ellipsis, and a page more."""
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    for words in (
        ["plan", "--from", graph, "--ranks", "2", "--fanouts", "3,3"],
        ["train", graph, *FLAGS[1:], "--epochs", "1", "--json", tmp_path / "r.json"],
        ["report", tmp_path / "r.json", "-o", tmp_path / "page.html", "--markdown", tmp_path / "t.md"],
    ):
        line = [sys.executable, "-m", "bulksample", *map(str, words)]
        ended = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **encoding})
        assert ended.returncode == 0, ended
    assert "·" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("to", [">&-", ">/dev/full"])
@pytest.mark.parametrize("words", [["info", "--json", "-"], ["plan", "--vertices", 9, "--edges", 9, "--feature-width", 8, "--ranks", 1]])
def test_a_result_that_cannot_be_printed_is_no_success(to, words):
    if words[0] == "plan" and to == ">&-":
        return  # a table that nobody wants to see
    line = " ".join(map(str, [sys.executable, "-m", "bulksample", *words, to]))
    ended = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 2, ended
    [said] = ended.stderr.splitlines()
    assert said.startswith("bulksample: UsageError: ")
    assert "cannot write to standard output: No space left" in said or "--json -: standard output is closed" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_not_a_training_says_which_signal_stopped_it(command, graph, monkeypatch, number):
    monkeypatch.setattr(samplers, "make", lambda *arguments, **options: signal.raise_signal(number))
    ended = command("sample", graph, "--fanouts", "3", "--batch-size", "8")
    assert ended.code == LOST, ended
    assert f"bulksample: stopped by {number.name}; run the same command again" in ended.err
