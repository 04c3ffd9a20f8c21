"""`bulksample plan`: choices for graphs of papers, sizes and rates from files, and refusals."""

import json
import re

import numpy as np
import pytest
from uniform import DEGREE, N, digraph

from bulksample import Graph
from bulksample.data import store

PAPERS = ["--vertices", 111059956, "--edges", 1615685872, "--feature-width", 128, "--seeds", 1207179, "--classes", 172]
SMALL = ["--vertices", 1000, "--edges", 9000, "--feature-width", 10]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "uniform"
    labels, train = np.arange(N) % 7, np.arange(N) % 4 == 0
    features = np.zeros((N, 6), np.float16)
    store.save(Graph(digraph(), features=features, labels=labels, num_classes=7, masks={"train": train}), path)
    return path


def test_papers100m_on_128_a100(result):
    found = result("plan", *PAPERS, "--ranks", 128, "--device", "a100-80gb", "--eval-every", 1000)
    chosen = next(row for row in found["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"], chosen["largest_bulk"]) == (32, "partitioned", 10)
    # by hand: a quarter of 111,059,956 rows of 128 floats; 1,179 minibatches of 928,449 inputs, 3/4 of them elsewhere
    assert chosen["memory"]["features"] == 111059956 * 128 * 4 / 4
    assert chosen["bytes_sent"]["features"] == pytest.approx(1179 * 928_449 * 3 / 4 * 512, rel=1e-5)
    assert chosen["memory"]["total"] < found["usable_bytes"] == 72e9
    assert "c = 64 needs" in found["explanation"][0]


def test_papers100m_on_8_h200(result):
    found = result("plan", *PAPERS, "--ranks", 8, "--device", "h200")
    chosen = next(row for row in found["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"], chosen["largest_bulk"], chosen["bulk_size"]) == (2, "partitioned", 148, 32)
    alone = result("plan", *PAPERS, "--ranks", 8, "--device", "h200", "--evaluate", "none")
    chosen = next(row for row in alone["rows"] if row["chosen"])
    assert (chosen["replication"], chosen["graph"]) == (8, "replicated")
    assert chosen["bytes_sent"]["total"] == chosen["bytes_sent"]["gradients"]


def test_the_table_marks_one_choice_for_each_p_and_is_not_cut_off(command, tmp_path):
    done = command("plan", *PAPERS, "--ranks", "16,64", "--json", tmp_path / "plan.json")
    assert done.code == 0, done.err
    assert len(re.findall(r"^ *\* +\d+ +\d+ ", done.out, re.MULTILINE)) == 2  # grids
    assert len(re.findall(r"^ *\* +\d+ +[rp]", done.out, re.MULTILINE)) == 2  # placements
    assert "…" not in done.out
    assert "published, " in done.out
    assert "assumed, " in done.out
    assert json.loads((tmp_path / "plan.json").read_text())["minibatches"] == 1179


def test_a_plan_that_nothing_fits_exits_2_with_an_alternative(command):
    done = command("plan", *PAPERS, "--ranks", "4", "--device-memory", "10GB")
    assert done.code == 2
    assert "nothing fits into 9 GB" in done.err
    assert "use a device of" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "--vertices, --edges, --feature-width must be given"),
        (["--vertices", -5, "--edges", 9, "--feature-width", 1], 2, "vertices"),
        ([*SMALL, "--ranks", "4,x"], 2, "use 4,8,16"),
        ([*SMALL, "--ranks", "6", "--replication", "4"], 2, "use c in {1, 2, 3, 6}"),
        ([*SMALL, "--device", "abacus"], 2, "use a100-80gb, h200, cpu"),
        ([*SMALL, "--device-memory", "lots"], 2, "80GB"),
        ([*SMALL, "--network", "string"], 2, "perlmutter"),
        ([*SMALL, "--network", __file__], 65, "is no result of `mpirun -n 4 bulksample info --network"),
        ([*SMALL, "--fanouts", "3,y"], 2, "use 15,10,5"),
        ([*SMALL, "--sampler", "labor"], 2, "sampler"),
        ([*SMALL, "--rates", "/no/such/file"], 65, "cannot be read"),
        (["--from", "/no/such/folder"], 65, "no such folder"),
    ],
)
def test_bad_use_and_bad_data(command, arguments, code, message):
    done = command("plan", *arguments)
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.long
def test_sizes_come_from_a_store_and_measurements_from_a_run(command, result, folder, tmp_path):
    options = ["--from", folder, "--ranks", 4, "--fanouts", "8,5", "--batch-size", 100, "--device", "cpu"]
    expected = result("plan", *options)
    asked = expected["request"]
    assert (asked["vertices"], asked["edges"], asked["feature_width"], asked["classes"]) == (N, N * DEGREE, 6, 7)
    assert (asked["feature_bytes"], asked["seeds"], asked["weighted"]) == (2, N // 4, False)
    sampled = tmp_path / "sampled.json"
    assert command("sample", folder, "--fanouts", "8,5", "--batch-size", 100, "--json", sampled).code == 0
    measured = result(
        "plan", "--from", folder, "--ranks", 4, "--fanouts", "8,5", "--batch-size", 100, "--device", "cpu", "--measured", sampled
    )
    run_of = json.loads(sampled.read_text())
    assert measured["minibatch"]["inputs"] == run_of["input_vertices"] / run_of["minibatches"]
    assert measured["minibatch"]["inputs"] == pytest.approx(expected["minibatch"]["inputs"], rel=0.02)  # a graph like the model's
    assert measured["rates"]["sampling"]["source"] == "sampled.json"
    assert result("plan", "--from", folder, "--seeds", 100, "--ranks", 4)["request"]["seeds"] == 100


def test_a_run_with_other_fanouts_is_refused(command, folder, tmp_path):
    sampled = tmp_path / "sampled.json"
    assert command("sample", folder, "--fanouts", "3", "--minibatches", 1, "--json", sampled).code == 0
    done = command("plan", "--from", folder, "--measured", sampled)
    assert done.code == 2
    assert "fanouts [3], the plan is for [15, 10, 5]" in done.err
