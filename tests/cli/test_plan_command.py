"""`bulksample plan`, as a user runs it."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from uniform import DEGREE, N, digraph

from bulksample import Graph
from bulksample.data import store

PAPERS = ["--vertices", 111059956, "--edges", 1615685872, "--features", 128, "--seeds", 1207179, "--classes", 172]
SMALL = ["--vertices", 1000, "--edges", 9000, "--features", 10]


def run(*arguments):
    command = [sys.executable, "-m", "bulksample", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "80"})


def result(*arguments):
    done = run("plan", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "uniform"
    labels, train = np.arange(N) % 7, np.arange(N) % 4 == 0
    features = np.zeros((N, 6), np.float16)
    store.save(Graph(digraph(), features=features, labels=labels, num_classes=7, masks={"train": train}), path)
    return path


def test_papers100m_on_128_a100():
    found = result(*PAPERS, "--ranks", 128, "--device", "a100-80gb")
    chosen = next(row for row in found["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"], chosen["largest_bulk"]) == (32, "partitioned", 10)
    # by hand: a quarter of 111,059,956 rows of 128 floats; 1,179 minibatches of 928,449 inputs, 3/4 of them elsewhere
    assert chosen["memory"]["features"] == 111059956 * 128 * 4 / 4
    assert chosen["bytes_sent"]["features"] == pytest.approx(1179 * 928_449 * 3 / 4 * 512, rel=1e-5)
    assert chosen["memory"]["total"] < found["usable_bytes"] == 72e9
    assert "c = 64 would need" in found["explanation"][0]


def test_papers100m_on_8_h200():
    found = result(*PAPERS, "--ranks", 8, "--device", "h200")
    chosen = next(row for row in found["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"], chosen["largest_bulk"], chosen["bulk_size"]) == (2, "partitioned", 148, 32)
    alone = result(*PAPERS, "--ranks", 8, "--device", "h200", "--no-evaluation")
    chosen = next(row for row in alone["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"]) == (8, "replicated")
    assert chosen["bytes_sent"]["total"] == chosen["bytes_sent"]["gradients"]


def test_the_table_marks_one_choice_for_each_p_and_fits_a_file(tmp_path):
    done = run("plan", *PAPERS, "--ranks", "16,64", "--json", tmp_path / "plan.json")
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^ *\* +\d+ ", done.stdout, re.MULTILINE)) == 2
    assert "…" not in done.stdout
    assert "published, " in done.stdout
    assert "assumed, " in done.stdout
    assert json.loads((tmp_path / "plan.json").read_text())["minibatches"] == 1179


def test_nothing_fits_is_exit_code_2_and_says_what_would():
    done = run("plan", *PAPERS, "--ranks", "4", "--device-memory", "10GB")
    assert done.returncode == 2
    assert "nothing fits into 9 GB" in done.stderr
    assert "would fit" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "--vertices, --edges, --features must be given"),
        (["--vertices", -5, "--edges", 9, "--features", 1], 2, "vertices"),
        ([*SMALL, "--ranks", "4,x"], 2, "4,8,16 would fit"),
        ([*SMALL, "--ranks", "6", "--replication", "4"], 2, "c in {1, 2, 3, 6} would fit"),
        ([*SMALL, "--device", "abacus"], 2, "a100-80gb, h200, cpu would fit"),
        ([*SMALL, "--device-memory", "lots"], 2, "80GB"),
        ([*SMALL, "--network", "string"], 2, "perlmutter"),
        ([*SMALL, "--fanouts", "3,y"], 2, "15,10,5 would fit"),
        ([*SMALL, "--sampler", "labor"], 2, "sampler"),
        ([*SMALL, "--rates", "/no/such/file"], 65, "cannot be read"),
        (["--from", "/no/such/folder"], 65, "no such folder"),
    ],
)
def test_bad_use_and_bad_data(arguments, code, message):
    done = run("plan", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_sizes_come_from_a_store_and_figures_from_a_run(folder, tmp_path):
    expected = result("--from", folder, "--ranks", 4, "--fanouts", "8,5", "--batch-size", 100, "--device", "cpu")
    asked = expected["request"]
    assert (asked["vertices"], asked["edges"], asked["features"], asked["classes"]) == (N, N * DEGREE, 6, 7)
    assert (asked["feature_bytes"], asked["seeds"], asked["weighted"]) == (2, N // 4, False)
    sampled = tmp_path / "sampled.json"
    assert run("sample", folder, "--fanouts", "8,5", "--batch-size", 100, "--json", sampled).returncode == 0
    measured = result("--from", folder, "--ranks", 4, "--fanouts", "8,5", "--batch-size", 100, "--device", "cpu", "--measured", sampled)
    run_of = json.loads(sampled.read_text())
    assert measured["minibatch"]["inputs"] == run_of["input_vertices"] / run_of["minibatches"]
    assert measured["minibatch"]["inputs"] == pytest.approx(expected["minibatch"]["inputs"], rel=0.02)  # a graph like the model's
    assert measured["rates"]["sampling"]["source"] == "sampled.json"
    assert result("--from", folder, "--seeds", 100, "--ranks", 4)["request"]["seeds"] == 100


def test_a_run_with_other_fanouts_is_refused(folder, tmp_path):
    sampled = tmp_path / "sampled.json"
    assert run("sample", folder, "--fanouts", "3", "--minibatches", 1, "--json", sampled).returncode == 0
    done = run("plan", "--from", folder, "--measured", sampled)
    assert done.returncode == 2
    assert "fanouts [3], the plan is for [15, 10, 5]" in done.stderr
