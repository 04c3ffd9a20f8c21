"""A set in the layout of ogbn-proteins, from import to predictions; labels of a file by --target; gaps in class numbers."""

import gzip

import numpy as np
import pytest
from communities import community_graph, dense_features

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads

SMALL = ["--fanouts", "5,5", "--hidden", "8", "--batch-size", "32", "--epochs", "6", "--lr", "0.05", "--dropout", "0", "--threads", "1"]


def gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join("" if cell != cell else f"{cell:g}" for cell in np.atleast_1d(row)) for row in rows)
    path.write_bytes(gzip.compress((text + "\n").encode()))


@pytest.fixture
def proteins(tmp_path):
    """150 vertices with labels of three tasks, one in ten missing; the edges alone have features, which tell the tasks."""
    graph = community_graph(n=150, noise=0.5)
    raw, n = tmp_path / "ogbn_proteins" / "raw", graph.n
    targets, sources = graph.adjacency.row_of_entry(), graph.adjacency.indices
    x = dense_features(graph)
    tasks = (np.round(x[:, :3]) > 0).astype(float)
    tasks[np.random.default_rng(0).random(tasks.shape) < 0.1] = np.nan
    gz(raw / "edge.csv.gz", np.stack([sources, targets], axis=1))
    gz(raw / "edge-feat.csv.gz", np.abs(x[targets]))
    gz(raw / "num-node-list.csv.gz", [n])
    gz(raw / "num-edge-list.csv.gz", [len(sources)])
    (raw / "node-label.csv.gz").write_bytes(
        gzip.compress("".join(",".join("nan" if cell != cell else f"{cell:g}" for cell in row) + "\n" for row in tasks).encode())
    )
    gz(raw / "node_species.csv.gz", np.arange(n) % 8 * 10000 + 3702)
    for name, mask in (("train", "train"), ("valid", "val"), ("test", "test")):
        gz(tmp_path / "ogbn_proteins" / "split" / "species" / f"{name}.csv.gz", np.flatnonzero(graph.masks[mask]))
    return tasks


@pytest.mark.long
def test_ogbn_proteins_in_its_layout_from_import_to_predictions(proteins, tmp_path, command, result):
    made = result("data", "import", "ogb", tmp_path / "ogbn_proteins", "-o", tmp_path / "g")
    assert (made["target"], made["classes"], made["features"], made["edge_features"]) == ("multilabel", 3, 8, 8)
    assert made["read"]["derived"].startswith("features: the mean of the edge features")
    report = result("train", tmp_path / "g", *SMALL, "--checkpoint", tmp_path / "kept")
    assert (report["metric"], report["data"]["classes"]) == ("rocauc", 3)
    assert report["test_rocauc"] > 0.6
    ap = result("train", tmp_path / "g", *SMALL, "--metric", "ap", "--seed", "1")
    assert 0 < ap["test_ap"] <= 1
    told = result("predict", tmp_path / "g", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "out.npz")
    assert told["test_rocauc"] == pytest.approx(report["test_rocauc"])
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["logits"].shape == proteins.shape
    info = result("data", "info", tmp_path / "g", "--statistics")
    assert info["labelled"] == int((~np.isnan(proteins)).any(axis=1).sum())
    assert info["known_labels"] == pytest.approx(float((~np.isnan(proteins)).mean()))
    refused = command("train", tmp_path / "g", *SMALL, "--label", "node_species")
    assert refused.code == 65
    assert "node_species: entry 7 is 73702; use classes from 0 to 65535" in refused.err


@pytest.mark.usefixtures("proteins")
def test_batches_of_ranks_carry_the_features_of_the_edges_of_ogbn_proteins(tmp_path, result):
    """Against the listed edges, read once more by numpy; an edge and its reverse that are both listed add up."""
    result("data", "import", "ogb", tmp_path / "ogbn_proteins", "--no-vertex-means", "-o", tmp_path / "g")
    info = result("data", "info", tmp_path / "g")
    assert (info["features"], info["edge_features"]) == (0, 8)
    raw, expected = tmp_path / "ogbn_proteins" / "raw", {}
    edges, rows = (np.loadtxt(raw / f"{name}.csv.gz", delimiter=",", dtype=np.float32) for name in ("edge", "edge-feat"))
    for (u, v), row in zip(edges.astype(int).tolist(), rows, strict=True):
        for edge in {(u, v), (v, u)}:
            expected[edge] = expected.get(edge, 0) + row

    def rank(comm):
        seen = 0
        for batch in bs.Loader(bs.load(tmp_path / "g", world=comm), fanouts=[5, 5], batch_size=16, seed=1, threads=1, out="numpy"):
            for block, rows in zip(batch.blocks, batch.edge_attr, strict=True):
                into = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                ends = zip(batch.vertices[block.indices].tolist(), batch.vertices[into].tolist(), strict=True)
                np.testing.assert_allclose(rows, [expected[edge] for edge in ends], rtol=1e-6)
                seen += len(rows)
        return seen

    assert min(on_threads(2, rank)) > 100


def test_labels_of_a_file_are_what_target_says(tmp_path, result, command):
    (tmp_path / "e.txt").write_text("0 1\n1 2\n2 0\n")
    np.save(tmp_path / "y.npy", np.array([1.0, 0.0, 2.0]))
    asked = ["data", "import", "edgelist", tmp_path / "e.txt", "--labels", tmp_path / "y.npy"]
    refused = command(*asked, "-o", tmp_path / "none")
    assert refused.code == 65
    assert "y.npy: y: got float64 of whole numbers, which may be classes or numbers" in refused.err
    assert result(*asked, "--target", "class", "-o", tmp_path / "classes")["target"] == "class"
    made = result(*asked, "--target", "regression", "-o", tmp_path / "numbers")
    assert (made["target"], made["classes"]) == ("regression", 1)


def test_gaps_in_class_numbers_are_counted(tmp_path, command, result):
    np.savez(tmp_path / "gap.npz", indptr=[0, 1, 2], indices=[1, 0], y=[0, 7])
    made = command("data", "import", "npz", tmp_path / "gap.npz", "-o", tmp_path / "g")
    assert made.code == 0
    assert "warning: 6 of the 8 classes have no vertex" in made.err
    assert result("data", "info", tmp_path / "g", "--statistics")["classes_without_vertex"] == 6
    np.savez(tmp_path / "million.npz", indptr=[0, 1, 2], indices=[1, 0], y=[0, 10**6])
    refused = command("data", "import", "npz", tmp_path / "million.npz", "-o", tmp_path / "none")
    assert refused.code == 65
    assert "y: entry 1 is 1000000; use classes from 0 to 65535, or give num_classes" in refused.err
