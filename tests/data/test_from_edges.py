"""Graphs from arrays: every column arrives, and every bad input is refused by name."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from samples import assert_same

import bulksample as bs
from bulksample.data import npz
from bulksample.data.columns import read_columns

SOURCE, DESTINATION = [0, 1, 2, 2], [1, 2, 0, 1]
TRAIN = np.array([True, True, False, False])


def from_edges(**changes):
    settings = {
        "source": SOURCE, "destination": DESTINATION, "num_nodes": 4, "weights": [1.0, 2.0, 3.0, 4.0], "x": np.eye(4), "y": [0, 1, 2, -1],
        "train_mask": TRAIN, "test_mask": np.array([False, False, True, False]), **changes,
    }  # fmt: skip
    return bs.from_edges(settings.pop("source"), settings.pop("destination"), **settings)


def test_row_v_lists_the_sources_of_the_edges_into_v():
    graph = from_edges()
    rows = [graph.adjacency.indices[a:b].tolist() for a, b in zip(graph.adjacency.indptr, graph.adjacency.indptr[1:], strict=False)]
    assert rows == [[2], [0, 2], [1], []]
    weights = graph.adjacency.values * graph.weight_unit
    np.testing.assert_allclose(weights, [3, 1, 4, 2], rtol=1e-9)


def test_columns_arrive():
    graph = from_edges(name="mine")
    assert (graph.n, graph.name, graph.num_features, graph.num_classes) == (4, "mine", 4, 3)
    assert graph.features.dtype == np.float32
    assert graph.labels.tolist() == [0, 1, 2, -1]
    assert {split: mask.tolist() for split, mask in graph.masks.items()} == {
        "train": [True, True, False, False],
        "test": [False, False, True, False],
    }


def test_half_precision_stays_and_an_empty_mask_goes():
    graph = from_edges(x=np.eye(4, dtype=np.float16), val_mask=np.zeros(4, bool), num_classes=7)
    assert graph.features.dtype == np.float16
    assert set(graph.masks) == {"train", "test"}
    assert graph.num_classes == 7


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({}, 3),
        ({"x": np.zeros((5, 1))}, 5),
        ({"y": [0] * 6}, 6),
        ({"y": [0] * 4, "train_mask": TRAIN}, 4),
        ({"num_nodes": 9}, 9),
        ({"num_nodes": np.int32(3)}, 3),
    ],
)
def test_the_number_of_vertices(changes, n):
    assert bs.from_edges(SOURCE, DESTINATION, **changes).n == n


def test_nothing_is_a_graph_too():
    assert bs.from_edges([], []).n == 0
    assert bs.from_edges([], [], num_nodes=2).adjacency.nnz == 0


def test_options_of_edges():
    assert from_edges(undirected=True, weights=None).adjacency.degrees.tolist() == [2, 2, 2, 0]
    doubled = {"source": SOURCE * 2, "destination": DESTINATION * 2}
    assert from_edges(**doubled, weights=None).adjacency.nnz == 4
    sums = from_edges(**doubled, weights=[1.0] * 8)
    assert (sums.adjacency.values * sums.weight_unit).tolist() == [2.0] * 4
    with pytest.raises(bs.DataError, match="joins 2 with itself"):
        from_edges(destination=[1, 2, 0, 2], self_loops="error")


def test_tensors_are_taken():
    tensors = {"weights": torch.tensor([1.0, 2, 3, 4], requires_grad=True), "x": torch.eye(4), "y": torch.tensor([0, 1, 2, -1])}
    graph = from_edges(source=torch.tensor(SOURCE), destination=torch.tensor(DESTINATION), train_mask=torch.from_numpy(TRAIN), **tensors)
    assert_same(graph, from_edges())


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.eye(4).to_sparse(), r"x: got a sparse matrix of shape \(4, 4\); use a dense array: .to_dense\(\)"),
        (torch.eye(4).to_sparse_csr(), r"x: got a sparse matrix of shape \(4, 4\)"),
        (scipy.sparse.eye_array(4).tocsr(), r"x: got a sparse matrix of shape \(4, 4\); use a dense array: .to_dense\(\) or .toarray\(\)"),
        (torch.eye(4, dtype=torch.bfloat16), r"x: got bfloat16 of shape \(4, 4\), which numpy lacks; use .float\(\) or .half\(\)"),
    ],
    ids=["coordinates", "rows", "scipy", "bfloat16"],
)
def test_features_that_are_no_dense_array_are_refused(x, message):
    with pytest.raises(bs.DataError, match=message):
        from_edges(x=x)


@pytest.mark.parametrize("column", ["x", "y", "train_mask"])
def test_a_short_column_is_blamed_and_not_the_edges(column):
    short = {"x": np.eye(3), "y": [0, 1, 2], "train_mask": [True, False, False]}
    with pytest.raises(bs.DataError, match=f"{column}: has 3 rows, but an edge names vertex 3; use one row for each vertex, 4 or more"):
        bs.from_edges([0, 1, 2], [1, 2, 3], **{column: short[column]})


def test_a_label_may_be_high_if_the_classes_are_counted():
    with pytest.raises(bs.DataError, match="y: entry 1 is 1099511627776; use classes from 0 to 65535, or give num_classes"):
        bs.from_edges([0], [1], y=[0, 2**40])
    with pytest.warns(UserWarning, match="65534 of the 65536 classes have no vertex"):
        assert bs.from_edges([0], [1], y=[0, 65535]).num_classes == 65536
    assert bs.from_edges([0], [1], y=[0, 70000], num_classes=80000).num_classes == 80000


BAD = {
    "float ids": ({"source": [0.0, 1.0, 2.0, 2.0]}, r"source: got float64 of shape \(4,\); use int64"),
    "boolean ids": ({"destination": [True] * 4}, "destination: got bool"),
    "ids of a pair": ({"source": [SOURCE, DESTINATION]}, r"source: got int64 of shape \(2, 4\)"),
    "text": ({"source": list("abcd")}, "source: got <U1"),
    "ragged": ({"x": [[1], [1, 2]]}, "x: cannot be read"),
    "negative ids": ({"source": [0, -1, 2, 2]}, "edge 1 names source -1; vertices run from 0 to 3"),
    "high ids": ({"destination": [1, 2, 0, 4]}, "edge 3 names target 4; vertices run from 0 to 3"),
    "ids beyond int64": ({"source": np.array([2**63] * 4, np.uint64)}, "source: entry 0 is 9223372036854775808"),
    "lengths": ({"source": [0, 1]}, "one entry for each edge; got 2 and 4"),
    "vertices": ({"num_nodes": -1}, "num_nodes: got -1"),
    "a fraction of a vertex": ({"num_nodes": 4.0}, "num_nodes: got 4.0"),
    "vertices beyond int32": ({"num_nodes": 2**31}, "do not fit int32"),
    "weights": ({"weights": [1.0]}, r"weights: got shape \(1,\); use one number for each of the 4 edges"),
    "a negative weight": ({"weights": [1.0, -1, 1, 1]}, "weight 1 is -1.0"),
    "no weight": ({"weights": [1.0, np.nan, 1, 1]}, "weight 1 is nan"),
    "features of some": ({"x": np.eye(3)}, r"features must have 4 rows; got shape \(3, 3\)"),
    "features of one number": ({"x": np.ones(4)}, r"x: got float64 of shape \(4,\); use float32 with 2 dimension"),
    "infinite features": ({"x": np.full((4, 1), np.inf)}, "features: row 0 is not finite"),
    "labels of some": ({"y": [0, 1]}, r"labels must be int64 of shape \(4,\)"),
    "float labels": ({"y": [0.0, 1, 2, 3]}, "y: got float64"),
    "labels of several classes": ({"y": 2 * np.eye(4, dtype=int)}, "y: row 0 holds 2; use 0, 1, or nothing"),
    "several classes as one": ({"y": np.eye(4), "target": "class"}, r"y: got float64 of shape \(4, 4\); a class is one number"),
    "a label below": ({"y": [0, 1, 2, -2]}, "y: row 3 holds -2; use classes from 0"),
    "a label above": ({"num_classes": 2}, "num_classes: got 2, and entry 2 of y is class 2; use a whole number, 3 or more"),
    "a fraction of a class": ({"num_classes": 3.5}, "num_classes: got 3.5, and entry 2 of y is class 2; use a whole number"),
    "classes in words": ({"num_classes": "3"}, "num_classes: got '3'"),
    "classes as a truth": ({"y": [0, 0, 0, 0], "num_classes": True}, "num_classes: got True"),
    "a mask of some": ({"train_mask": TRAIN[:3]}, r"train mask must be bool of shape \(4,\)"),
    "a mask of ids": ({"train_mask": [0, 1]}, r"train mask: got int64 of shape \(2,\); use bool"),
    "several masks": ({"train_mask": np.ones((4, 10), bool)}, r"train mask: got bool of shape \(4, 10\)"),
    "masks that overlap": ({"val_mask": TRAIN}, "val mask: row 0 is in another split too"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    changes, message = BAD[case]
    with pytest.raises(bs.DataError, match=message):
        from_edges(**changes)


def saved(folder, **arrays):
    """The paths of arrays, each saved as `.npy`; a dict becomes an `.npz`."""
    paths = {}
    for name, value in arrays.items():
        paths[name] = folder / f"{name}.{'npz' if isinstance(value, dict) else 'npy'}"
        np.savez(paths[name], **value) if isinstance(value, dict) else np.save(paths[name], value)
    return paths


def bare():
    return bs.from_edges(SOURCE, DESTINATION, num_nodes=4)


@pytest.mark.parametrize(
    "split", [{"train": np.array([0, 1]), "test": np.array([2])}, {"train_mask": TRAIN, "test_mask": np.array([False, False, True, False])}]
)
def test_columns_are_read_from_files(tmp_path, split):
    files = saved(tmp_path, features=np.eye(4), labels=np.array([[0], [1], [2], [-1]], np.int16), split=split)
    assert_same(read_columns(bare(), **files), from_edges(weights=None))


def test_labels_that_are_there_stay_as_they_are(tmp_path):
    numbers = replace(bare(), labels=np.array([[0], [1], [2], [np.nan]], np.float32), num_classes=1)
    graph = read_columns(numbers, **saved(tmp_path, features=np.eye(4)))
    np.testing.assert_array_equal(graph.labels, numbers.labels)  # whole floats, which the file of a user could not hold


def test_features_of_a_file_stay_there(tmp_path):
    graph = read_columns(bare(), **saved(tmp_path, features=np.eye(4, dtype=np.float32)))
    assert isinstance(graph.features, np.memmap)


BAD_FILES = {
    "rows": ({"features": np.eye(3)}, "features.npy: has 3 rows; the graph has 4 vertices"),
    "labels": ({"labels": np.zeros(5, int)}, "labels.npy: has 5 rows"),
    "a single label": ({"labels": np.array(3)}, r"labels.npy: y: got int64 of shape \(\)"),
    "float labels": ({"labels": np.zeros(4)}, "labels.npy: y: got float64"),
    "text": ({"features": np.array([["a"]] * 4)}, "features.npy: x: got <U1"),
    "objects": ({"features": np.array([[None]] * 4)}, "pickled objects are never read"),
    "a split of another name": ({"labels": np.zeros(4, int), "split": {"dev": [0]}}, "split.npz: dev: is not a split"),
    "a split twice": ({"labels": np.zeros(4, int), "split": {"val": [0], "val_mask": [0]}}, "val_mask: is not a split, or is there twice"),
    "a short mask": ({"labels": np.zeros(4, int), "split": {"train": np.ones(3, bool)}}, r"split.npz: train: got bool of shape \(3,\)"),
    "a vertex above": ({"labels": np.zeros(4, int), "split": {"val": [0, 4]}}, "split.npz: val: entry 1 is vertex 4; use 0 to 3"),
    "a vertex below": ({"labels": np.zeros(4, int), "split": {"val": [-1]}}, "split.npz: val: entry 0 is vertex -1"),
    "float ids": ({"labels": np.zeros(4, int), "split": {"val": [0.5]}}, "split.npz: val: got float64"),
    "an overlap": ({"labels": np.zeros(4, int), "split": {"train": [0, 1], "val": [1]}}, "val mask: row 1 is in another split too"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_refused_by_name(tmp_path, case):
    arrays, message = BAD_FILES[case]
    with pytest.raises(bs.DataError, match=message):
        read_columns(bare(), **saved(tmp_path, **arrays))


def test_a_file_that_is_missing_or_no_array(tmp_path):
    with pytest.raises(bs.DataError, match=r"x\.npy: cannot be read"):
        read_columns(bare(), features=tmp_path / "x.npy")
    (tmp_path / "x.npy").write_text("0 1 2")
    with pytest.raises(bs.DataError, match=r"x\.npy: not a \.npy array"):
        read_columns(bare(), features=tmp_path / "x.npy")
    with pytest.raises(bs.DataError, match=r"x\.npy: not an \.npz archive"):
        read_columns(bare(), split=tmp_path / "x.npy")


def test_features_of_yes_and_no_are_ones_and_zeros(tmp_path):
    """Booleans may be features of vertices and of edges, in arrays and in files."""
    yes = np.array([[True, False], [False, False], [True, True]])
    right = np.array([[1, 0], [0, 0], [1, 1]], np.float32)
    np.savez(tmp_path / "g.npz", indptr=[0, 0, 1, 2], indices=[0, 1], x=yes, edge_attr=yes[:2])
    for graph in (bs.from_edges([0, 1], [1, 2], num_nodes=3, x=yes, edge_attr=yes[:2]), npz.read(tmp_path / "g.npz")):
        assert graph.features.dtype == graph.edge_features.dtype == np.float32
        assert np.array_equal(graph.features, right)
        assert np.array_equal(graph.edge_features, right[:2])


def test_edges_with_times_are_those_of_a_relation():
    """The oracle is `relation_from_edges`, and dates are counted as numpy counts them."""
    u, v, dates = [0, 1, 1, 2], [1, 2, 2, 0], np.array(["2009-03-29", "2009-04-05", "2009-04-04", "2010-01-01"], "M8[D]")
    graph = bs.from_edges(u, v, 4, [1.0, 2, 3, 4], x=np.eye(4), edge_attr=[[1], [2], [3], [4]], times=dates, time_unit="s", name="dated")
    kind = bs.VertexType("node", 4)
    seconds, rows = dates.astype("M8[s]").astype(np.int64), np.float32([[1], [2], [3], [4]])
    expected = bs.relation_from_edges(kind, "to", kind, u, v, weights=[1.0, 2, 3, 4], times=seconds, features=rows)
    (relation,) = graph.relations
    for name in ("times", "features", "edge_ids"):
        np.testing.assert_array_equal(getattr(relation, name), getattr(expected, name))
    np.testing.assert_array_equal(relation.adjacency.values, expected.adjacency.values)
    assert (graph.name, graph.features.shape, graph.plain) == ("dated", (4, 4), False)
    with pytest.raises(bs.DataError, match=r"times: row 0 is 2009-03-29T12:00.*no whole number of the unit 'D'"):
        bs.from_edges([0], [1], times=np.array(["2009-03-29T12:00"], "M8[m]"), time_unit="D")
    with pytest.raises(bs.DataError, match=r"times: got int64 of shape \(1,\); use int64 or datetime64 of shape \(2,\)"):
        bs.from_edges([0, 1], [1, 0], times=[1])
    with pytest.raises(bs.UsageError, match="time_unit was 'week'; use D, h, m, s, ms, us, ns"):
        bs.from_edges([0], [1], times=dates[:1], time_unit="week")
    again = ([0, 0, 1], [1, 1, 0])
    assert bs.from_edges(*again, times=[1, 2, 1], duplicates="error").num_edges == 3
    with pytest.raises(bs.DataError, match="edge 1, from 0 to 1 at time 1, was listed before"):
        bs.from_edges(*again, times=[1, 1, 1], duplicates="error")
    with pytest.raises(bs.DataError, match="edge 2, from 1 to 0 at time 1, was listed before"):
        bs.from_edges(*again, times=[1, 2, 1], duplicates="error", undirected=True)
    with pytest.raises(bs.DataError, match="edge 0 joins 1 with itself"):
        bs.from_edges([1], [1], times=[1], self_loops="error")
