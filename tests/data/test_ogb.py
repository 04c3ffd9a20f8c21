"""OGB sets in both raw layouts, written here as OGB writes them, and read without `ogb`."""

import gzip

import numpy as np
import pytest
from ogb_layouts import gz

from bulksample import DataError, UsageError
from bulksample.data import ogb
from bulksample.data.edges import EdgeTally

N = 6
EDGES = np.array([[0, 1, 2, 4, 4], [1, 2, 0, 3, 3]])  # one edge twice, vertex 5 isolated
FEATURES = np.array([[0.5, -1.25, 3e-7]] * N, np.float32) * np.arange(1, N + 1, dtype=np.float32)[:, None]
LABELS = np.array([2, 0, 1, 2, 0, 1])
SPLIT = {"train": [0, 3], "valid": [1], "test": [2, 4]}


def write_csv(root, scheme="sales_ranking"):
    """The layout of ogbn-products and ogbn-arxiv."""
    raw = root / "raw"
    gz(raw / "edge.csv.gz", EDGES.T)
    gz(raw / "num-node-list.csv.gz", [N])
    gz(raw / "num-edge-list.csv.gz", [EDGES.shape[1]])
    gz(raw / "node-feat.csv.gz", FEATURES)
    gz(raw / "node-label.csv.gz", LABELS)
    gz(raw / "node_year.csv.gz", 2000 + np.arange(N))
    write_split(root, scheme)
    (root / "RELEASE_v1.txt").write_text("# Release note\n")
    return root


def write_split(root, scheme):
    for name, members in SPLIT.items():
        gz(root / "split" / scheme / f"{name}.csv.gz", members)


def write_binary(root, **changes):
    """The layout of ogbn-papers100M."""
    (root / "raw").mkdir(parents=True)
    arrays = {
        "edge_index": EDGES, "num_nodes_list": np.array([N]), "num_edges_list": np.array([EDGES.shape[1]]),
        "node_feat": FEATURES, "node_year": (2000 + np.arange(N)).reshape(-1, 1), "edge_reltype": np.zeros((5, 1), np.int64), **changes,
    }  # fmt: skip
    np.savez_compressed(root / "raw" / "data.npz", **arrays)
    labels = LABELS.astype(np.float32).reshape(-1, 1)
    labels[5] = np.nan
    np.savez_compressed(root / "raw" / "node-label.npz", node_label=labels)
    write_split(root, "time")
    return root


@pytest.mark.parametrize(("name", "both_ways"), [("ogbn_products", True), ("products", True), ("ogbn_arxiv", False), ("ogbn-arxiv", False)])
def test_csv_layout_goes_both_ways_where_ogb_does(tmp_path, name, both_ways):
    tally = EdgeTally()
    graph = ogb.read(write_csv(tmp_path / name), tally=tally)
    expected = np.zeros((N, N), int)
    expected[EDGES[1], EDGES[0]] = 1  # row v holds u of the edge u -> v
    if both_ways:
        expected |= expected.T
    np.testing.assert_array_equal(graph.adjacency.to_scipy().toarray(), expected)
    np.testing.assert_array_equal(graph.features, FEATURES)
    assert graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.labels, LABELS)
    assert graph.num_classes == 3
    assert {split: np.flatnonzero(mask).tolist() for split, mask in graph.masks.items()} == {"train": [0, 3], "val": [1], "test": [2, 4]}
    np.testing.assert_array_equal(graph.extra["node_year"], 2000 + np.arange(N))
    assert graph.extra["node_year"].dtype == np.int64
    assert (tally.edges_read, tally.duplicates) == (5, 1)


def test_one_may_say_otherwise(tmp_path):
    arxiv = write_csv(tmp_path / "ogbn_arxiv")
    assert ogb.read(arxiv, undirected=True).adjacency.nnz == 8
    assert ogb.read(arxiv, undirected=False).adjacency.nnz == 4


def test_an_unknown_set_must_say(tmp_path):
    root = write_csv(tmp_path / "ogbn_mine")
    with pytest.raises(UsageError, match="use undirected=True or undirected=False"):
        ogb.read(root)
    assert ogb.read(root, undirected=True).name == "ogbn-mine"


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_binary_layout(tmp_path, on_disk, compressed):
    root = write_binary(tmp_path / "ogbn_papers100M")
    if not compressed:
        with np.load(root / "raw" / "data.npz") as arrays:
            loaded = dict(arrays)
        np.savez(root / "raw" / "data.npz", **loaded)
    tally = EdgeTally()
    graph = ogb.read(root, tally=tally, scratch=tmp_path if on_disk else None)
    expected = np.zeros((N, N), int)
    expected[EDGES[1], EDGES[0]] = 1
    np.testing.assert_array_equal(graph.adjacency.to_scipy().toarray(), expected)
    np.testing.assert_array_equal(graph.features, FEATURES)
    assert graph.labels.tolist() == [2, 0, 1, 2, 0, -1], "no label is NaN there and -1 here"
    assert graph.masks["test"].sum() == 2
    np.testing.assert_array_equal(graph.extra["node_year"], 2000 + np.arange(N))
    assert tally.ignored == "edge_reltype"


def test_structure_alone(tmp_path):
    for root in (write_binary(tmp_path / "ogbn_papers100M"), write_csv(tmp_path / "ogbn_arxiv")):
        assert ogb.read(root, features=False).features is None


def test_labels_may_be_missing_in_text_too(tmp_path):
    root = write_csv(tmp_path / "ogbn_arxiv")
    (root / "raw" / "node-label.csv.gz").write_bytes(gzip.compress(b"2\n0\n1\n2.0\nnan\n\n"))
    gz(root / "split" / "sales_ranking" / "test.csv.gz", [2])
    assert ogb.read(root).labels.tolist() == [2, 0, 1, 2, -1, -1]


TASKS = np.arange(N * 4).reshape(N, 4) % 3 % 2
OF_EDGES = np.arange(5 * 8, dtype=np.float32).reshape(5, 8) / 64


def write_proteins(root, rows=TASKS):
    """The layout of ogbn-proteins: labels of several tasks, features of edges, none of vertices."""
    write_csv(root, scheme="species")
    (root / "raw" / "node-feat.csv.gz").unlink()
    gz(root / "raw" / "node-label.csv.gz", rows)
    gz(root / "raw" / "edge-feat.csv.gz", OF_EDGES)
    return root


def test_many_tasks_are_labels_and_edges_give_vertices_their_features(tmp_path):
    tally = EdgeTally()
    graph = ogb.read(write_proteins(tmp_path / "ogbn_proteins"), tally=tally)
    assert (graph.target, graph.labels.dtype, graph.num_classes) == ("multilabel", np.int8, 4)
    np.testing.assert_array_equal(graph.labels, TASKS)
    assert (tally.ignored, tally.derived) == ("", "features: the mean of the edge features over the edges into each vertex")
    into = [[e for e in range(5) for way in (0, 1) if EDGES[way, e] == v] for v in range(N)]  # both ways, as ogb adds the inverse edges
    expected = [OF_EDGES[edges].mean(0) if edges else np.zeros(8) for edges in into]
    np.testing.assert_allclose(graph.features, expected, rtol=1e-6)
    without = ogb.read(tmp_path / "ogbn_proteins", features=False)
    assert (without.features, without.edge_features) == (None, None)


def of_entries(graph):
    """The edge features by (source, destination)."""
    a = graph.adjacency
    return {(u, v): row for u, v, row in zip(a.indices.tolist(), a.row_of_entry().tolist(), graph.edge_features.tolist(), strict=True)}


def expected_of_entries(both_ways):
    """The same from the listed edges; those of a repeated edge add up."""
    expected = {}
    for (u, v), row in zip(EDGES.T.tolist(), OF_EDGES, strict=True):
        for edge in {(u, v), (v, u)} if both_ways else {(u, v)}:
            expected[edge] = expected.get(edge, 0) + row
    return {edge: row.tolist() for edge, row in expected.items()}


def test_features_of_edges_are_kept_by_entry(tmp_path, monkeypatch):
    monkeypatch.setattr("bulksample.data.ogb_raw.PIECE_ROWS", 2)
    root, tally = write_proteins(tmp_path / "ogbn_proteins"), EdgeTally()
    assert of_entries(ogb.read(root)) == expected_of_entries(True)
    assert of_entries(ogb.read(root, undirected=False)) == expected_of_entries(False)
    alone = ogb.read(root, vertex_means=False, tally=tally)
    assert (alone.features, alone.num_edge_features, tally.derived) == (None, 8, "")
    means = ogb.read(root, edge_features=False, tally=tally)
    assert (means.num_features, means.edge_features, tally.ignored) == (8, None, "edge-feat.csv.gz")
    gz(root / "raw" / "node-feat.csv.gz", FEATURES)
    both = ogb.read(root)
    np.testing.assert_array_equal(both.features, FEATURES)
    assert of_entries(both) == expected_of_entries(True)


def test_missing_tasks_stay_missing(tmp_path):
    graph = ogb.read(write_proteins(tmp_path / "ogbn_proteins", [["0", "nan"], ["1", "0"], ["nan", "nan"]] * 2))
    assert graph.labels.tolist() == [[0, -1], [1, 0], [-1, -1]] * 2
    assert graph.masks["test"].sum() == 2, "a vertex of a split need not have all labels, nor any"
    numbers = ogb.read(write_proteins(tmp_path / "other" / "ogbn_proteins", [[0.5, 2]] * N))
    assert (numbers.target, numbers.labels.dtype) == ("regression", np.float32)


@pytest.mark.parametrize(("rows", "message"), [(4, "edge-feat: has 4 rows; there are 5 edges"), (6, "edge-feat.csv.gz: has more rows")])
def test_features_of_edges_fit_the_edges(tmp_path, rows, message):
    root = write_proteins(tmp_path / "ogbn_proteins")
    gz(root / "raw" / "edge-feat.csv.gz", np.ones((rows, 2)))
    with pytest.raises(DataError, match=message):
        ogb.read(root)


def test_features_of_edges_in_the_binary_layout(tmp_path, monkeypatch):
    monkeypatch.setattr("bulksample.data.ogb_raw.PIECE_ROWS", 2)
    root = write_binary(tmp_path / "mine", edge_feat=OF_EDGES)
    with np.load(root / "raw" / "data.npz") as arrays:
        np.savez(root / "raw" / "data.npz", **{name: arrays[name] for name in arrays.files if name != "node_feat"})
    expected = [OF_EDGES[EDGES[1] == v].mean(0) if (EDGES[1] == v).any() else np.zeros(8) for v in range(N)]
    graph, mapped = ogb.read(root), ogb.read(root, scratch=tmp_path)
    np.testing.assert_allclose(graph.features, expected, rtol=1e-6)
    assert of_entries(graph) == of_entries(mapped) == expected_of_entries(False)


def test_one_of_several_schemes(tmp_path):
    root = write_csv(tmp_path / "ogbn_arxiv")
    write_split(root, "time")
    with pytest.raises(UsageError, match="scheme='sales_ranking' or scheme='time'"):
        ogb.read(root)
    assert ogb.read(root, scheme="time").masks["train"].sum() == 2
    with pytest.raises(UsageError, match="no split scheme 'random'"):
        ogb.read(root, scheme="random")


def test_a_pickled_split_is_named_and_not_read(tmp_path):
    root = write_csv(tmp_path / "ogbn_arxiv")
    for file in (root / "split" / "sales_ranking").iterdir():
        file.unlink()
    (root / "split" / "sales_ranking" / "split_dict.pt").write_bytes(b"\x80\x04")
    with pytest.raises(DataError, match=r"split_dict\.pt: is a pickle"):
        ogb.read(root)


def test_the_wrong_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="has no folder raw"):
        ogb.read(tmp_path)


@pytest.mark.parametrize("write", [write_csv, write_binary])
def test_the_layouts_are_those_that_ogb_itself_reads(tmp_path, write):
    theirs = pytest.importorskip("ogb.io.read_graph_raw", reason="the ogb extra is not installed")
    read = theirs.read_csv_graph_raw if write is write_csv else theirs.read_binary_graph_raw
    (graph,) = read(str(write(tmp_path / "ogbn_arxiv") / "raw"), add_inverse_edge=False)
    ours = ogb.read(tmp_path / "ogbn_arxiv")
    assert graph["num_nodes"] == ours.n
    np.testing.assert_array_equal(graph["node_feat"], ours.features)
    edges = set(zip(*graph["edge_index"].tolist(), strict=True))
    assert edges == {(u, v) for v, u in zip(ours.adjacency.row_of_entry().tolist(), ours.adjacency.indices.tolist(), strict=True)}
