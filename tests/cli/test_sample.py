"""`bulksample sample` and `bulksample info`: results, refusals, and digests on several ranks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launch import run_ranks
from waiting import PATIENCE
from zoo import random_matrix

from bulksample import CSR, Graph
from bulksample.config.options import fanout_list, sampler_options
from bulksample.data import store
from bulksample.errors import UsageError

REPORTED = {
    "sampled_edges",
    "sampled_edges_per_second",
    "minibatches",
    "input_vertices",
    "seconds",
    "digest",
    "backend",
    "threads",
    "bulk_size",
    "peak_memory_bytes",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "random"
    train = np.arange(300) % 3 == 0
    labels = np.arange(300) % 5
    store.save(Graph(random_matrix(300, 5000, 1), labels=labels, num_classes=5, masks={"train": train}), path)
    return path


def test_it_reports_what_it_promises_and_repeats(result, folder):
    first = result("sample", folder, "--fanouts", "5,5", "--batch-size", 16, "--seed", 3)
    assert set(first) >= REPORTED
    assert first["minibatches"] == 7
    assert first["sampled_edges"] > first["input_vertices"] > 100
    settings = [("--bulk-size", 2), ("--threads", 1, "--bulk-size", 100), ("--backend", "reference")]
    for setting in settings:
        again = result("sample", folder, "--fanouts", "5-5", "--batch-size", 16, "--seed", 3, *setting)
        assert again["digest"] == first["digest"]
        assert again["sampled_edges"] == first["sampled_edges"]
    assert result("sample", folder, "--fanouts", "5,5", "--batch-size", 16, "--seed", 4)["digest"] != first["digest"]
    assert result("sample", folder, "--fanouts", "5,5", "--batch-size", 16, "--seed", 3, "--epoch", 1)["digest"] != first["digest"]


@pytest.mark.parametrize("sampler", ["ladies", "fastgcn", "labor", "full", "shadow", "saint"])
def test_every_sampler_runs(result, folder, sampler):
    got = result("sample", folder, "--sampler", sampler, "--fanouts", "4,4", "--batch-size", 64, "--seeds", "all", "--minibatches", 2)
    assert got["minibatches"] == 2
    assert got["sampled_edges"] > 0


def test_an_epoch_of_groups_is_cut_short_like_any_other(result, folder):
    """Seven mini-batches come from two groups, in rounds of two: three of them are a round and a half."""
    got = result("sample", folder, "--fanouts", "4,4", "--batch-size", 64, "--seeds", "all", "--seed-locality", 2, "--minibatches", 3)
    assert got["minibatches"] == 3


def test_options_reach_the_sampler(command, folder, tmp_path):
    file = tmp_path / "out.json"
    done = command("sample", folder, "--options", "replace=true", "--fanouts", "30", "--batch-size", 100, "--json", file)
    assert done.code == 0, done.err
    assert "sampled_edges" in done.out
    graph = store.load(folder)
    drawn = 30 * int((graph.adjacency.degrees[graph.seeds("train")] > 0).sum())
    assert json.loads(file.read_text())["sampled_edges"] == drawn


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--sampler", "sgae"], 2, "--sampler: got 'sgae'"),
        (["--fanouts", "5,x"], 2, "use 15,10,5"),
        (["--fanouts", "-7"], 2, "fanout must be in 1 .. 1048575, or -1 for all neighbors"),
        (["--bulk-size", "many"], 2, "--bulk-size must be"),
        (["--bulk-size", "0"], 2, "--bulk-size must be"),
        (["--batch-size", "0"], 2, "batch-size"),
        (["--seeds", "dev"], 2, "--seeds: got 'dev'; use train, val, test, all"),
        (["--backend", "abacus"], 2, "backend 'abacus'"),
        (["--options", "weighted=true"], 2, "no edge weights"),
        (["--options", "wieghted=true"], 2, "did you mean 'weighted'"),
        (["--options", "replace"], 2, "NAME=VALUE"),
        (["--no-such-flag"], 2, "No such option"),
        (["--seed", "-1"], 2, "--seed"),
    ],
)
def test_bad_use_exits_2_with_an_alternative(command, folder, arguments, code, message):
    done = command("sample", folder, *arguments)
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


def test_bad_data_is_exit_code_65(command, tmp_path):
    assert command("sample", tmp_path / "nowhere").code == 65
    (tmp_path / "empty").mkdir()
    done = command("sample", tmp_path / "empty")
    assert done.code == 65
    assert "Traceback" not in done.err


def test_fanouts_and_options_are_parsed_in_every_form():
    assert fanout_list("15,10,5") == fanout_list("15-10-5") == (15, 10, 5)
    assert fanout_list("-1") == (-1,)
    assert fanout_list("-1,5") == (-1, 5)
    assert sampler_options("replace=true,walk-length=3,importance=squared_sum") == {
        "replace": True,
        "walk_length": 3,
        "importance": "squared_sum",
    }
    assert sampler_options(None) == {}
    with pytest.raises(UsageError, match="fanouts must be whole numbers joined by commas; got ''"):
        fanout_list("")


def test_info_lists_versions_and_missing_parts(result):
    got = result("info")
    assert got["backends"][0] == "reference"
    assert set(got) >= {"version", "backends", "native", "extras"}
    assert all(isinstance(version, str) for version in got["extras"].values())


@pytest.mark.long
def test_info_gives_the_reason_for_a_missing_native_back_end(tmp_path):
    """The reference back end serves where the extension cannot be imported."""
    hide = "import sys; sys.modules['bulksample._native'] = None; from bulksample.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", hide, "info", "--json", "-"], capture_output=True, text=True, timeout=PATIENCE)
    got = json.loads(done.stdout)
    assert got["backends"] == ["reference"]
    assert got["native"].startswith("missing: ")


def test_a_weighted_graph_is_sampled_by_weight(result, tmp_path):
    matrix = random_matrix(100, 2000, 2, weighted=True)
    store.save(Graph(CSR(matrix.indptr, matrix.indices, matrix.values, matrix.shape), weight_unit=2.0**-40), tmp_path / "w")
    got = result("sample", tmp_path / "w", "--options", "weighted=true", "--fanouts", "3", "--batch-size", 50)
    assert got["minibatches"] == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        (2, "--graph partitioned --partition random"),
        *(
            pytest.param(4, layout, marks=pytest.mark.long)
            for layout in (
                "--graph replicated",
                "--graph partitioned --replication 2",
                "--graph partitioned --replication 4",
                "--graph partitioned --exchange rows --replication 2",
                "--graph partitioned --exchange rows-oblivious",
                "--graph partitioned --partition random",
                "--graph partitioned --replication 2 --exchange rows --partition metis",
            )
        ),
    ],
)
def test_ranks_and_grids_give_the_digest_of_one_process(result, folder, ranks, layout):
    options = ["sample", str(folder), "--sampler", "ladies", "--fanouts", "20,20", "--batch-size", "16", "--json", "-"]
    alone = result(*options[:-2])
    ended = run_ranks(ranks, ["-m", "bulksample", *options, *layout.split()])
    assert ended.code == 0, ended
    spread = json.loads(ended.out)
    for key in ("digest", "minibatches", "sampled_edges", "input_vertices"):
        assert spread[key] == alone[key]
    assert spread["ranks"] == ranks
    alone_in_column = "replicated" in layout or "replication 4" in layout  # c = p holds the whole graph everywhere
    assert (spread["bytes_sent"]["topology"] == 0) == alone_in_column


@pytest.mark.long
def test_a_grid_that_does_not_fit_ends_all_ranks_with_2(folder):
    ended = run_ranks(4, ["-m", "bulksample", "sample", str(folder), "--graph", "partitioned", "--replication", "3"])
    assert ended.code == 2, ended
    assert "use c in {1, 2, 4}" in ended.err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts the process that started a program")
def test_peak_memory_is_that_of_the_program_alone():
    child = "from bulksample.cli.process import peak_memory; print(peak_memory())"
    parent = f"import subprocess, sys; held = bytearray(400 << 20); subprocess.run([sys.executable, '-c', {child!r}])"
    ran = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert 10 << 20 < int(ran.stdout) < 200 << 20
