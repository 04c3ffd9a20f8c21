"""Ranks with different options, or in a wrong number, refuse together: exit code 2, one reason, no hang."""

import os
import subprocess
import sys

import pytest
from communities import community_graph
from launch import ROOT, run_ranks
from waiting import PATIENCE

from bulksample.data import store
from bulksample.version import __version__

LONG = pytest.mark.long
TRAIN_LONG = pytest.param("train", marks=LONG)  # as it imports torch
COMMANDS = {
    "train": ["train", "--fanouts", "3,3", "--hidden", "8", "--batch-size", "32", "--epochs", "2", "--threads", "1", "--quiet"],
    "sample": ["sample", "--fanouts", "3,3", "--batch-size", "32", "--threads", "1"],
    "sample partitioned": ["sample", "--fanouts", "3,3", "--batch-size", "32", "--threads", "1", "--graph", "partitioned"],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    place = tmp_path_factory.mktemp("graphs")
    for seed in (0, 1):
        store.save(community_graph(seed=seed), place / f"g{seed}")
    return place


def arguments(command, graph, *more):
    name, *options = COMMANDS[command]
    return [name, str(graph), *options, "--timeout", str(PATIENCE), *more]


def launched(p, usual, astray, before="pass", together=False):
    """Start p ranks with the usual arguments, the last one with others, after lines of its own; `together` if all are to be refused."""
    last = f"os.environ['PMI_RANK'] == '{p - 1}'"
    return run_ranks(p, f"""
import os, sys
from bulksample.distributed.comm import world
world._TOGETHER_SECONDS = {PATIENCE if together else 2.0}
if {last}:
    {before}
sys.argv = ["bulksample", *({astray!r} if {last} else {usual!r})]
from bulksample.cli import main
main()
""", fresh=before != "pass")  # fmt: skip


def refused(p, usual, astray, before="pass", together=False):
    """Check that all ranks exit with 2; return their standard error."""
    ended = launched(p, usual, astray, before, together)
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err, ended
    return ended.err


def reasons(err):
    """Return every error message that was printed."""
    return [line for line in err.splitlines() if line.startswith("bulksample: ") and "Error: " in line]


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "option", "value", "shown"),
    [
        pytest.param("train", "--lr", "0.5", "option lr: 0.003 on rank 0, 0.5 on rank 1", marks=LONG),
        pytest.param("train", "--sampler", "ladies", "option sampler: 'sage' on rank 0, 'ladies' on rank 1", marks=LONG),
        ("sample", "--batch-size", "16", "--batch-size: 32 on rank 0, 16 on rank 1"),
        pytest.param("sample partitioned", "--seed", "5", "seed: 0 on rank 0, 5 on rank 1", marks=LONG),
        pytest.param("sample partitioned", "--fanouts", "3,4", "fanouts: [3, 3] on rank 0, [3, 4] on rank 1", marks=LONG),
        pytest.param("sample partitioned", "--exchange", "rows", "exchange: 'owner' on rank 0, 'rows' on rank 1", marks=LONG),
    ],
)
def test_another_option_on_one_rank(stored, command, option, value, shown):
    err = refused(2, arguments(command, stored / "g0"), arguments(command, stored / "g0", option, value), together=True)
    assert len(reasons(err)) == 1, err
    assert f"the ranks do not agree on {shown}" in err, err


@LONG
@pytest.mark.parametrize("command", ["train", "sample", "sample partitioned"])
def test_another_graph_on_one_rank(stored, command):
    err = refused(3, arguments(command, stored / "g0"), arguments(command, stored / "g1"), together=True)
    assert len(reasons(err)) == 1, err
    assert "the ranks do not agree on graph: another on rank 2 than on rank 0" in err, err


@LONG
@pytest.mark.parametrize("command", ["train", "sample", "sample partitioned"])
def test_another_version_on_one_rank(stored, command):
    usual = arguments(command, stored / "g0")
    err = refused(2, usual, usual, "import bulksample.version; bulksample.version.__version__ = '0.0.0'", together=True)
    assert f"the ranks do not agree on version: {__version__!r} on rank 0, '0.0.0' on rank 1" in err, err
    assert len(reasons(err)) == 1, err


@LONG
def test_another_command_on_one_rank(stored):
    err = refused(2, arguments("sample", stored / "g0"), arguments("train", stored / "g0"))
    assert "the ranks do not agree on the command: rank 1 runs another one than rank 0" in err, err


@pytest.mark.parametrize(
    ("command", "option", "value", "shown"),
    [
        ("sample", "--sampler", "sgae", "--sampler: got 'sgae'"),
        pytest.param("train", "--model", "saeg", "--model: got 'saeg'; did you mean 'sage'?", marks=LONG),
    ],
)
def test_a_bad_option_on_one_rank(stored, command, option, value, shown):
    """The other ranks have joined the world, or wait there for this one."""
    err = refused(3, arguments(command, stored / "g0"), arguments(command, stored / "g0", option, value))
    assert shown in err, err
    assert "rank 2 of 3 failed; ending all ranks" in err, err


def test_one_rank_of_a_command_without_ranks(stored):
    """The other rank has ended, or does its own work: it never connects."""
    ended = launched(2, ["data", "info", str(stored / "g0")], ["data", "info", "nowhere"])
    assert ended.code == 65, ended
    assert [reason.partition(";")[0] for reason in reasons(ended.err)] == ["bulksample: DataError: nowhere: there is no such folder"], ended


@LONG
def test_one_rank_that_fails_late_ends_all_with_its_reason(stored):
    """The other ranks wait for longer than it takes to end a job that a rank has left."""
    late = """
    import time
    from bulksample.distributed.comm import processes
    from bulksample.distributed.matrix import open_graph
    from bulksample.errors import DataError
    def load_block(*_):
        time.sleep(processes.GRACE_SECONDS + 1)
        raise DataError("rows 3 to 4: damaged")
    open_graph.load_block = load_block"""
    usual = arguments("sample partitioned", stored / "g0")
    ended = launched(2, usual, usual, late)
    assert ended.code == 65, ended
    assert reasons(ended.err) == ["bulksample: DataError: rows 3 to 4: damaged"], ended


@LONG
@pytest.mark.parametrize(
    ("command", "options", "shown"),
    [
        pytest.param("sample", ("--exchange", "owners"), "--exchange: got 'owners'; did you mean 'owner'?", marks=LONG),
        (
            "sample",
            ("--replication", "2"),
            "got c = 2 with the topology replicated and features replicated: use --graph partitioned",
        ),
        ("train", ("--exchange", "rows"), "got rows with the topology replicated: use owner"),
        ("train", ("--graph", "whole"), "--graph: got 'whole'; use replicated, partitioned"),
    ],
)
def test_a_refusal_of_all_ranks_is_printed_once(stored, command, options, shown):
    usual = arguments(command, stored / "g0", *options)
    (said,) = reasons(refused(2, usual, usual, together=True))
    assert shown in said


@LONG
@pytest.mark.parametrize("command", ["train", "sample"])
def test_a_number_of_ranks_that_does_not_fit_the_grid(stored, command):
    grid = arguments(command, stored / "g0", "--graph", "partitioned", "--replication", "3")
    ended = launched(4, grid, grid, together=True)
    assert ended.code == 2, ended
    assert len(reasons(ended.err)) == 1, ended
    assert "got c = 3 with p = 4; use c in {1, 2, 4}" in ended.err, ended


@pytest.mark.parametrize("command", [TRAIN_LONG, "sample"])
def test_ranks_that_do_not_see_each_other(stored, command):
    """srun with another MPI than that of mpi4py starts every rank as rank 0 of 1."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "SLURM_", "OMPI_", "MV2_"))}
    line = [sys.executable, "-m", "bulksample", *arguments(command, stored / "g0")]
    environment = {**clean, "PYTHONPATH": str(ROOT), "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "SLURM_STEP_NUM_TASKS says that 4 ranks were started, but MPI sees one" in ended.stderr
    assert "Traceback" not in ended.stderr
