"""`bulksample partition`: the file and the numbers of every partitioner, and refusals."""

import numpy as np
import pytest
from communities import community_graph
from zoo import complete

from bulksample import CSR, Graph
from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.partition import Partition
from bulksample.methods.run import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four cliques of 24, with no edge between them, their vertices shuffled."""
    clique = complete(24)
    names = np.random.default_rng(0).permutation(96)
    ends = [np.concatenate([names[side + 24 * k] for k in range(4)]) for side in (clique.row_of_entry(), clique.indices)]
    path = tmp_path_factory.mktemp("graphs") / "cliques"
    store.save(Graph(CSR.from_edges(*ends, (96, 96))), path)
    return path


@pytest.mark.parametrize("by", ["block", "random", "metis", "super", "stream"])
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
    assert report["max_over_mean"] == pytest.approx({"vertices": sizes.max() / 24, "entries": sizes.max() / 24})  # all degrees are 23
    if by in ("metis", "super", "stream"):
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
        (["--parts", "4", "--by", "lottery"], "--by: got 'lottery'; use block, random, metis, super, stream"),
    ],
)
def test_bad_use_is_exit_code_2(command, folder, tmp_path, arguments, message):
    done = command("partition", folder, *arguments, "-o", tmp_path / "parts")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "parts").exists()


@pytest.mark.long
def test_a_folder_of_parts_takes_the_place_of_the_store(result, command, folder, tmp_path):
    parts = tmp_path / "P"
    report = result("partition", folder, "--parts", 4, "--by", "stream", "-o", f"{parts}/")
    info = result("data", "info", parts)
    assert (report["parts"], info["parts"], info["by"]) == (4, 4, "stream")
    assert (
        info["part_bytes"] == report["part_bytes"] == [sum(f.stat().st_size for f in p.glob("*.npy")) for p in sorted(parts.glob("part-*"))]
    )
    assert info["max_over_mean"]["entries"] == pytest.approx(report["max_over_mean"]["entries"])
    assert info["digest"] == result("data", "info", folder)["digest"]
    verified = result("data", "verify", parts)
    assert verified["ok"]
    assert sorted(verified["files"]) == sorted(str(path.relative_to(parts)) for path in parts.rglob("*.npy"))
    drawn = ("--fanouts", "3,2", "--batch-size", 16, "--digest")
    whole, own = result("sample", folder, *drawn), result("sample", parts, *drawn)
    assert (whole["graph"], own["graph"]) == ("replicated", "partitioned")
    assert whole["digest"] == own["digest"] == result("sample", parts, *drawn, "--graph", "replicated")["digest"]
    assert whole["read_bytes"] == [0]
    assert own["read_bytes"] == [96 * (2 * 4 + 8) + 4 * 96 * 23]  # two ids and a row pointer each, and the columns
    (parts / "part-00002" / "indices.npy").unlink()
    assert command("data", "info", parts).code == 65
    again = command("partition", folder, "--parts", 2, "-o", parts)  # it exists, so it is a folder
    assert again.code == 2
    assert "exists already" in again.err
    assert result("partition", folder, "--parts", 2, "-o", parts, "--overwrite")["part_bytes"]


def test_training_on_parts_is_training_on_the_store_with_their_partition(tmp_path):
    store.save(community_graph(n=120), tmp_path / "g")
    written = partition.stream(store.load(tmp_path / "g").adjacency, 2)
    write_parts(tmp_path / "g", tmp_path / "P", written, 2, "stream")
    Partition(2, written).save(tmp_path / "two.npz")
    options = {"fanouts": (4, 3), "hidden": 8, "batch_size": 16, "epochs": 2, "seed": 3, "quiet": True}

    def run(source, **placed):
        return on_threads(2, lambda comm: train(tmp_path / source, comm=comm, **options, **placed))[0]

    whole, parts = run("g", graph="partitioned", partition=str(tmp_path / "two.npz")), run("P")
    assert parts["graph"] == "partitioned"
    for name in ("train_loss", "val_accuracy", "test_accuracy"):
        assert parts[name] == whole[name], name
    assert parts["bytes_sent"]["features"] == whole["bytes_sent"]["features"]
    assert len(parts["read_bytes"]) == 2
    assert min(parts["read_bytes"]) > 0
