"""`bulksample partition`: the file and the numbers of every partitioner, and refusals."""

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


@pytest.mark.parametrize("by", ["block", "random", "metis", "super"])
def test_the_file_matches_the_report(result, folder, tmp_path, by):
    if by in ("metis", "super"):
        pytest.importorskip("pymetis", reason="the partition extra is not installed")
    report = result("partition", folder, "--parts", 4, "--by", by, "--clusters", 4, "-o", tmp_path / "parts")
    made = Partition.load(tmp_path / "parts")
    sizes = np.bincount(made.assignment, minlength=4)
    assert (report["parts"], report["vertices"]) == (made.parts, made.n) == (4, 96)
    assert (report["smallest_part"], report["largest_part"]) == (sizes.min(), sizes.max())
    assert report["edges_kept"] == pytest.approx(1 - report["crossing_share"])
    assert report["label_distance"] == 0  # of a graph without labels
    if by in ("metis", "super"):
        assert report["isolated"] == 0
        assert report["crossing_edges"] == 0  # the cliques are found
    else:
        assert 0.5 < report["crossing_share"] < 0.9
        assert sizes.max() - sizes.min() <= 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "0"], "--parts"),
        (["--parts", "97"], "--parts: got 97 parts of 96 vertices; use at most 96"),
        (["--parts", "4", "--by", "lottery"], "--by: got 'lottery'; use block, random, metis, super"),
    ],
)
def test_bad_use_is_exit_code_2(command, folder, tmp_path, arguments, message):
    done = command("partition", folder, *arguments, "-o", tmp_path / "parts")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "parts").exists()
