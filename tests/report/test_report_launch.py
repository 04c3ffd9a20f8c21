"""A launch leaves no process behind, however it ends."""

import os
import signal
import subprocess
import sys

import pytest
from launch import ROOT, alive
from waiting import PATIENCE, until

from bulksample.errors import UsageError
from bulksample.report import launch

# A launcher that does not end when asked to, and a rank in a session of its own that would outlive it.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print("here", flush=True)
time.sleep(10_000)
"""
MARK = f"STUBBORN={os.getpid()}"  # of the processes that this run of the tests starts


def stubborn(monkeypatch):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(launch, "_KILLED_SECONDS", PATIENCE)
    monkeypatch.setenv(*MARK.split("="))
    return [sys.executable, "-c", STUBBORN]


def others():
    """Return the marked processes, except this one."""
    return [pid for pid in alive(MARK) if pid != os.getpid()]


def test_a_launch_returns_code_and_output(tmp_path):
    ended = launch.launch([sys.executable, "-c", "import sys; print(7, flush=True); sys.exit('why')"], tmp_path / "log", PATIENCE)
    assert (ended.code, ended.late, ended.printed.split()) == (1, False, ["7", "why"])
    assert (tmp_path / "log").read_text() == ended.printed


def test_a_missing_launcher_is_bad_use(tmp_path):
    with pytest.raises(UsageError, match=r"no-such-launcher cannot be started: .*No such file"):
        launch.launch([str(tmp_path / "no-such-launcher")], tmp_path / "log", PATIENCE)


def test_the_time_limit_ends_all_processes(tmp_path, monkeypatch):
    wait, limit, log = subprocess.Popen.wait, 12.5, tmp_path / "log"

    def once_both_are_there(process, seconds=None):
        if seconds == limit:
            until(lambda: log.read_text().count("here") == 2)
        return wait(process, min(seconds, 0.1))

    monkeypatch.setattr(subprocess.Popen, "wait", once_both_are_there)
    ended = launch.launch(stubborn(monkeypatch), log, limit)
    assert ended.late
    assert ended.code == -signal.SIGKILL
    assert "here" in ended.printed
    assert others() == []


def test_processes_that_a_launcher_leaves_behind_are_ended(tmp_path, monkeypatch):
    monkeypatch.setenv(*MARK.split("="))
    leaves = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, b"apart")
    time.sleep(10_000)
os.read(read, 5)"""
    ended = launch.launch([sys.executable, "-c", leaves], tmp_path / "log", PATIENCE)
    assert (ended.code, ended.late) == (0, False)
    assert others() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_processes(tmp_path, number):
    code = f"""
import os, sys
from pathlib import Path
from bulksample.report import launch
launch._GRACE_SECONDS, launch._KILLED_SECONDS = 0.2, {PATIENCE}
killpg = os.killpg
def impatient(*which):
    os.kill(os.getpid(), {int(number)})  # a second signal does no harm
    killpg(*which)
os.killpg = impatient
try:
    with launch.stoppable():
        launch.launch([sys.executable, "-c", {STUBBORN!r}], Path({str(tmp_path / "log")!r}), {PATIENCE})
except launch.Stopped as stopped:
    sys.exit(str(stopped))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict([MARK.split("=")])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("here") == 2)
    assert len(others()) == 3
    process.send_signal(number)
    assert process.communicate(timeout=PATIENCE)[1].strip() == number.name
    assert others() == []


def test_a_signal_that_comes_while_a_process_starts_ends_it_too(tmp_path):
    """The child sends it before it runs its program, when it has neither a mark nor a number that the parent knows."""
    code = f"""
import os, signal, subprocess, sys, time
from functools import partial
from pathlib import Path
from bulksample.report import launch
launch._GRACE_SECONDS = 0.2
def slow():
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.5)
launch.subprocess.Popen = partial(subprocess.Popen, preexec_fn=slow)
try:
    with launch.stoppable():
        launch.launch([sys.executable, "-c", "import time; time.sleep(10_000)"], Path({str(tmp_path / "log")!r}), {PATIENCE})
except launch.Stopped as stopped:
    time.sleep(1)  # the child has begun its program by now, if it lives
    sys.exit(str(stopped))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict([MARK.split("=")])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.stderr.strip() == "SIGTERM"
    assert others() == []


def test_variables_of_an_outer_launcher_can_be_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "4")
    show = [sys.executable, "-c", "import os; print(os.environ.get('SLURM_NTASKS'))"]
    assert launch.launch(show, tmp_path / "log", PATIENCE).printed.strip() == "4"
    assert launch.launch(show, tmp_path / "log", PATIENCE, alone=True).printed.strip() == "None"


def test_ranks_are_started_by_mpirun_and_one_rank_by_nothing(monkeypatch, tmp_path):
    assert launch.starter(1, None) == []
    assert launch.starter(3, "srun --mpi=pmi2 -n {ranks}") == ["srun", "--mpi=pmi2", "-n", "3"]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="3 ranks need mpirun"):
        launch.starter(3, None)
    (tmp_path / "mpirun").touch(mode=0o755)
    assert launch.starter(3, None) == [str(tmp_path / "mpirun"), "-n", "3"]
    with pytest.raises(UsageError, match="must contain"):
        launch.starter(3, "mpirun")


@pytest.mark.parametrize(("variable", "refused"), [("PMI_SIZE", True), ("OMPI_COMM_WORLD_SIZE", True), ("SLURM_NTASKS", False)])
def test_it_refuses_to_run_inside_a_launch(monkeypatch, variable, refused):
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "4")
    if refused:
        with pytest.raises(UsageError, match=f"{variable} says that it was started 4 times"):
            launch.refuse_inside_a_launch()
    else:
        launch.refuse_inside_a_launch()
