"""Ranks send the bytes that the benchmarks predict."""

import subprocess
import sys
from typing import get_args

import harness
import numpy as np
import pytest
import ranks
import sweep_grid
from foreseen import Foresight, busiest, over_ranks, together
from harness import RUNNER
from launch import MPIRUN
from ranks import EXCHANGES, Grid, Work, graph_in
from typer import BadParameter
from waiting import PATIENCE

from bulksample.distributed.comm.base import SentCount
from bulksample.errors import UsageError


@pytest.fixture(scope="module")
def foresight(tmp_path_factory):
    return Foresight(Work(graph_in(tmp_path_factory.mktemp("graph"), 600, 20, 8), "sage", (4, 3), 8, 2, 16))


@pytest.mark.long
@pytest.mark.parametrize("command", ["sample", "train"])
def test_ranks_send_what_was_foreseen(command):
    if MPIRUN is None:
        pytest.skip("no mpirun")
    options = ["--commands", command, "--train-exchanges", "owner,rows", "--ranks", "2", "--vertices", "600", "--features", "8"]
    done = subprocess.run([sys.executable, RUNNER, "grid", *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| equal |") == {"sample": 6, "train": 4}[command]
    assert "every byte as predicted, and the same minibatches on every grid" in done.stdout


def test_a_difference_is_a_fault():
    line = {"ranks": 2, "replication": 1, "exchange": "rows", "digest": "a", "foreseen": {"topology": 8, "features": 0, "gradients": 0}}
    lines = [line | {"sent": line["foreseen"]}, line | {"sent": line["foreseen"] | {"topology": 9}, "digest": "b"}]
    wrong, drawn = sweep_grid.faults({"sample": lines})
    assert wrong == "sample, p = 2, c = 1, rows: topology: 9 sent, 8 foreseen"
    assert "2 different epochs" in drawn


def test_a_failed_launch_is_a_fault_and_the_rest_is_kept(monkeypatch, capsys):
    def measure(command, grid, *_):
        if grid.replication == 2:
            raise RuntimeError("longer than 300 s")
        sent = dict.fromkeys(("topology", "features", "gradients"), 4)
        return {"sent": sent, "foreseen": sent, "seconds": {"median": 1.0}, "digest": "a", "peak_bytes": 10**6}

    kept = []
    monkeypatch.setattr(sweep_grid, "measure", measure)
    options = sweep_grid.GridOptions(commands=("sample",), ranks=(2,))
    for results in sweep_grid.sweep(None, None, options):
        kept.append(len(results["sample"]))
    assert kept == [1, 2, 3, 4, 5, 6]
    assert sweep_grid.faults(results) == [f"sample, p = 2, c = 2, {exchange}: longer than 300 s" for exchange in EXCHANGES]
    assert capsys.readouterr().out.count("| failed |") == 3


@pytest.mark.parametrize("text", ["", "2,", "2,x", "1.5"])
def test_what_is_no_list_of_numbers(text):
    with pytest.raises(BadParameter, match="use numbers such as 10,5"):
        harness.numbers(text)


def test_unknown_names_are_refused():
    read = get_args(harness.some_of("sample", "train"))[1].parser
    assert read("train,sample") == ("train", "sample")
    with pytest.raises(BadParameter, match="got 'plan'; use some of sample,train"):
        read("sample,plan")


def test_without_mpirun_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="pip install mpich"):
        ranks.mpirun()


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_stages_are_one_after_the_other(foresight, exchange):
    """Entries of `rows` travel in stages of one sender each, all else at once; `owner` has no stages, and one block row no traffic."""
    column = foresight.sampled(Grid(4, 1, exchange))
    path = foresight.sampling_path(Grid(4, 1, exchange))
    together_bytes = sum(traffic.bytes for rank in column for traffic in rank.values())
    if exchange == "owner":
        assert path == busiest(column)
    else:  # three of four words are entries
        assert max(2 * busiest(column).bytes, 0.75 * together_bytes) < path.bytes < together_bytes
    assert foresight.sampling_path(Grid(4, 4, exchange)) == busiest(foresight.sampled(Grid(4, 4, exchange)))


def test_parts_add_up():
    parts = [[{"topology": SentCount(1, 10)}, {"control": SentCount(2, 3)}], [{"topology": SentCount(1, 5)}, {"topology": SentCount(4, 7)}]]
    nothing = SentCount(0, 0)
    first = {"topology": SentCount(2, 15), "features": nothing, "gradients": nothing, "control": nothing}
    second = {"topology": SentCount(4, 7), "features": nothing, "gradients": nothing, "control": SentCount(2, 3)}
    assert together(*parts) == [first, second]
    assert over_ranks([first, second]) == {"topology": 22, "features": 0, "gradients": 0}
    assert busiest([first, second]) == (6, 15)


def test_every_seed_is_drawn_once(foresight):
    for p in (1, 3):
        calls = foresight.drawn(p, 0).calls
        drawn = np.concatenate([call.arguments[0].vertices for rank in calls for call in rank[:: len(foresight.work.fanouts)]])
        assert sorted(drawn) == np.flatnonzero(foresight.graph.masks["train"]).tolist()
