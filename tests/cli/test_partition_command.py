"""`bulksample partition`, as a user runs it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from zoo import complete

from bulksample import CSR, Graph
from bulksample.data import store
from bulksample.distributed.matrix.partition import Partition


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four cliques of 24, with no edge between them, their vertices shuffled."""
    clique = complete(24)
    names = np.random.default_rng(0).permutation(96)
    ends = [np.concatenate([names[side + 24 * k] for k in range(4)]) for side in (clique.row_of_entry(), clique.indices)]
    path = tmp_path_factory.mktemp("graphs") / "cliques"
    store.save(Graph(CSR.from_edges(*ends, (96, 96))), path)
    return path


def run(*arguments):
    command = [sys.executable, "-m", "bulksample", "partition", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("by", ["block", "random", "metis", "super"])
def test_the_file_holds_what_is_reported(folder, tmp_path, by):
    if by in ("metis", "super"):
        pytest.importorskip("pymetis", reason="the partition extra is not installed")
    done = run(folder, "--parts", 4, "--by", by, "--clusters", 4, "-o", tmp_path / "parts", "--json", "-")
    assert done.returncode == 0, done.stderr
    told, made = json.loads(done.stdout), Partition.load(tmp_path / "parts")
    sizes = np.bincount(made.assignment, minlength=4)
    assert (told["parts"], told["vertices"]) == (made.parts, made.n) == (4, 96)
    assert (told["smallest_part"], told["largest_part"]) == (sizes.min(), sizes.max())
    assert told["edges_kept"] == pytest.approx(1 - told["crossing_share"])
    assert told["label_distance"] == 0  # of a graph without labels
    if by in ("metis", "super"):
        assert told["isolated"] == 0
        assert told["crossing_edges"] == 0  # the cliques are found
    else:
        assert 0.5 < told["crossing_share"] < 0.9
        assert sizes.max() - sizes.min() <= 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "0"], "--parts"),
        (["--parts", "4", "--by", "luck"], "there is no partitioner 'luck'; use block, random, metis, super"),
    ],
)
def test_bad_use_is_exit_code_2(folder, tmp_path, arguments, message):
    done = run(folder, *arguments, "-o", tmp_path / "parts")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "parts").exists()
