"""Forms of `.npz` files that other programs write, against those programs: scipy, and torch_geometric's reader of the GNN benchmark."""

# ruff: noqa: E501 (a case is a line)

import json

import numpy as np
import pytest
import scipy.sparse as sp
from samples import UNPICKLED, Bomb, changed, refused
from typer.testing import CliRunner

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.cli.data import app
from bulksample.data import npz, store
from bulksample.data.edges import EdgeTally

N = 12
REAL = (sp.random(N, N, 0.25, random_state=3) + sp.diags([0.5] * 2 + [0.0] * (N - 2))).tocsr()  # of 2 self loops, and not symmetric
REAL.eliminate_zeros()
ONES = (REAL > 0).astype(np.float64).tocsr()
FORMATS = ("csr", "csc", "coo", "bsr", "dia")


def dense(graph):
    """The adjacency of a graph as numpy: row v holds the weights of the edges into v."""
    matrix = np.zeros((graph.n, graph.n))
    np.add.at(matrix, (graph.adjacency.row_of_entry(), graph.adjacency.indices), graph.adjacency.entries() * graph.weight_unit)
    return matrix


def saved(folder, form, matrix=REAL, kind=None):
    made = matrix.tobsr((3, 2)) if form == "bsr" else matrix.asformat(form)
    sp.save_npz(folder / "s.npz", kind(made) if kind else made)
    return folder / "s.npz"


def imported(path, *options):
    """The summary that `data import npz` prints, and what it writes on standard error."""
    ended = CliRunner().invoke(
        app, ["import", "npz", str(path), "-o", str(path.parent / "g"), "--overwrite", *map(str, options), "--json", "-"]
    )
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout), ended.stderr


# --- scipy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_a_matrix_of_scipy_is_the_adjacency(tmp_path, form):
    path, tally = saved(tmp_path, form), EdgeTally()
    whole = sp.load_npz(path).toarray()
    np.testing.assert_allclose(dense(npz.read(path, tally=tally)), whole, rtol=1e-9)
    assert (tally.edges_read, tally.self_loops) == (REAL.nnz, np.count_nonzero(REAL.diagonal()))
    assert tally.form == f"scipy.sparse {form}: entry (i, j) is the edge j -> i"
    np.testing.assert_allclose(dense(npz.read(path, transpose=True)), whole.T, rtol=1e-9)
    both = npz.read(path, undirected=True, duplicates="max", self_loops="drop")
    np.testing.assert_allclose(dense(both), np.maximum(whole, whole.T) * (1 - np.eye(N)), rtol=1e-9)


def test_the_arrays_of_scipy_are_read_as_its_matrices(tmp_path):
    np.testing.assert_allclose(dense(npz.read(saved(tmp_path, "coo", kind=sp.coo_array))), REAL.toarray(), rtol=1e-9)


@pytest.mark.parametrize("kind", [np.float64, np.int8, bool])
@pytest.mark.parametrize("form", FORMATS)
def test_a_matrix_of_ones_has_no_weights(tmp_path, form, kind):
    graph = npz.read(saved(tmp_path, form, ONES.astype(kind)))
    assert graph.adjacency.values is None
    np.testing.assert_array_equal(dense(graph), ONES.toarray())


def test_entries_of_one_place_add_up_as_in_scipy(tmp_path):
    places = [0, 0, 1, 2], [1, 1, 2, 0]
    sp.save_npz(tmp_path / "s.npz", sp.coo_matrix(([1.0, 1, 1, 1], places), (3, 3)))
    np.testing.assert_allclose(dense(npz.read(tmp_path / "s.npz")), sp.load_npz(tmp_path / "s.npz").toarray())
    assert npz.read(tmp_path / "s.npz", duplicates="max").adjacency.values is None
    both = sp.load_npz(tmp_path / "s.npz").toarray()
    for options in ({}, {"duplicates": "sum"}):
        np.testing.assert_allclose(dense(npz.read(tmp_path / "s.npz", undirected=True, **options)), both + both.T)


@pytest.mark.parametrize("n", [3, [3]])
def test_a_matrix_may_say_its_number_of_vertices(tmp_path, n):
    matrix = sp.coo_matrix(([1.0, 1], ([0, 1], [1, 2])), (3, 3))
    sp.save_npz(tmp_path / "s.npz", matrix)
    arrays = dict(np.load(tmp_path / "s.npz"))
    np.savez(tmp_path / "n.npz", **arrays, num_nodes=n)
    np.testing.assert_allclose(dense(npz.read(tmp_path / "n.npz")), matrix.toarray())
    np.savez(tmp_path / "n.npz", **arrays, num_nodes=4)
    with pytest.raises(DataError, match="num_nodes: is 4, and the adjacency has 3 rows"):
        npz.read(tmp_path / "n.npz")


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_vertices_may_have_any_width(tmp_path, kind):
    np.savez(tmp_path / "u.npz", edge_index=np.array([[0, 1, 2], [1, 2, 0]], kind), node_time=np.arange(5))
    graph = npz.read(tmp_path / "u.npz")
    assert graph.n == 5  # the rows of node_time
    assert sorted(zip(graph.types[0].times.tolist(), range(5), strict=True)) == [(i, i) for i in range(5)]
    assert sorted(zip(graph.relations[0].adjacency.indices, graph.relations[0].adjacency.row_of_entry(), strict=True)) == [
        (0, 1),
        (1, 2),
        (2, 0),
    ]


def test_stored_zeros_of_lists_are_edges_and_those_of_blocks_are_none(tmp_path):
    matrix = sp.csr_matrix((np.array([0.0, 2.0]), ([0, 1], [1, 0])), (2, 2))
    found = {
        form: npz.read(saved(tmp_path, form, matrix) if form != "bsr" else _of_blocks(tmp_path, matrix)).adjacency.nnz for form in FORMATS
    }
    assert found == {"csr": 2, "csc": 2, "coo": 2, "bsr": 1, "dia": 1}


def _of_blocks(folder, matrix):
    sp.save_npz(folder / "s.npz", matrix.tobsr((2, 2)))
    return folder / "s.npz"


def test_columns_may_lie_beside_the_file(tmp_path):
    path = saved(tmp_path, "csc")
    np.save(tmp_path / "x.npy", np.eye(N))
    np.save(tmp_path / "y.npy", np.arange(N) % 3)
    np.savez(tmp_path / "split.npz", train=[0, 1], test=[5])
    made, _ = imported(
        path, "--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--split", tmp_path / "split.npz", "--undirected"
    )
    assert (made["features"], made["classes"], made["splits"], made["weighted"]) == (N, 3, ["train", "test"], True)
    assert made["read"]["form"] == "scipy.sparse csc: entry (i, j) is the edge j -> i"
    assert store.load(tmp_path / "g").adjacency.nnz == np.count_nonzero(REAL.toarray() + REAL.toarray().T)


CSR = {"format": np.array(b"csr"), "shape": np.array([N, N]), "data": REAL.data, "indices": REAL.indices, "indptr": REAL.indptr}
COO = {"format": np.array(b"coo"), "shape": np.array([N, N]), "data": REAL.data, "row": REAL.tocoo().row, "col": REAL.tocoo().col}
BSR = {**CSR, "format": np.array(b"bsr"), "data": REAL.data[:, None, None]}
DIA = {"format": np.array(b"dia"), "shape": np.array([N, N]), "data": REAL.todia().data, "offsets": REAL.todia().offsets}
SCIPY = {
    **{f"csr without {key}": (CSR, {key: None}, f"has no {key}") for key in ("data", "indices", "indptr")},
    **{f"coo without {key}": (COO, {key: None}, f"has no {key}") for key in ("data", "row", "col")},
    **{f"csr with {key} of floats": (CSR, {key: CSR[key].astype(float)}, f"{key}: got float64") for key in ("indices", "indptr", "shape")},
    **{f"csr with {key} of objects": (CSR, {key: np.array([Bomb()])}, f"{key}: holds '.O'") for key in ("data", "indices", "indptr", "shape")},
    **{f"{name} with short data": (arrays, {"data": arrays["data"][:-1]}, "data: got float64") for name, arrays in (("csr", CSR), ("coo", COO), ("bsr", BSR), ("dia", DIA))},
    **{f"{name} with text for data": (arrays, {"data": arrays["data"].astype(str)}, "data: got <U") for name, arrays in (("csr", CSR), ("coo", COO), ("bsr", BSR), ("dia", DIA))},
    "an unknown format": (CSR, {"format": np.array(b"cst")}, "format: is 'cst'; did you mean 'cs"),
    "a list of lists": (CSR, {"format": np.array(b"lil")}, "format: is 'lil'; use csr, csc, coo, bsr, dia"),
    "not square": (CSR, {"shape": np.array([N, N + 1])}, r"shape: is \[12, 13\]; the adjacency of a graph is square"),
    "one side": (CSR, {"shape": np.array([N])}, r"shape: is \[12\]"),
    "a negative shape": (CSR, {"shape": np.array([-1, -1])}, "shape: -1 vertices"),
    "a shape beyond int32": (COO, {"shape": np.array([2**40] * 2)}, "shape: 1099511627776 vertices do not fit int32"),
    "a shape beyond the file": (COO, {"shape": np.array([2**31 - 1] * 2)}, "shape promises 2147483647 vertices"),
    "another shape": (CSR, {"shape": np.array([N + 1] * 2)}, "indptr: has 13 entries; use 14"),
    "row pointers fall": (CSR, {"indptr": changed(REAL.indptr, 3, 0)}, "indptr: row pointers must not fall: row 2"),
    "row pointers begin late": (CSR, {"indptr": changed(REAL.indptr, 0, 1)}, "indptr: must run from 0"),
    "row pointers end late": (CSR, {"indptr": changed(REAL.indptr, -1, 99)}, "indptr: must run from 0 to the number of entries"),
    "a column out of range": (CSR, {"indices": changed(REAL.indices, 4, N)}, "column 12 of entry 4"),
    "a row out of range": (COO, {"row": changed(COO["row"], 4, -1)}, "row -1 of entry 4"),
    "a row too few": (COO, {"row": COO["row"][:-1]}, rf"col: has {REAL.nnz} entries, and row has {REAL.nnz - 1}"),
    "a weight is NaN": (CSR, {"data": changed(REAL.data, 6, np.nan)}, "weight 6 is nan"),
    "a weight is negative": (CSR, {"data": changed(REAL.data, 6, -0.5)}, "weight 6 is -0.5"),
    "a complex weight": (CSR, {"data": REAL.data.astype(complex)}, "data: holds '<c16'"),
    "a block that does not fit": (BSR, {"data": np.ones((len(REAL.data), 5, 1))}, r"data: holds blocks of shape \(5, 1\)"),
    "a block of nothing": (BSR, {"data": np.ones((len(REAL.data), 0, 1))}, r"data: holds blocks of shape \(0, 1\)"),
    "a block out of range": (BSR, {"indices": changed(REAL.indices, 2, N)}, "indices: entry 2 is block column 12"),
    "a diagonal twice": (DIA, {"offsets": changed(DIA["offsets"], 0, DIA["offsets"][1])}, "offsets: names a diagonal twice"),
    "a diagonal outside": (DIA, {"offsets": changed(DIA["offsets"].astype(np.int64), 0, -(2**63))}, "offsets: entry 0 is -9223372036854775808"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCIPY)
def test_damaged_matrices_are_refused_by_array(tmp_path, case):
    arrays, change, names = SCIPY[case]
    np.savez(tmp_path / "bad.npz", **{name: array for name, array in {**arrays, **change}.items() if array is not None})
    refused(rf"bad\.npz.*({names})", npz.read, tmp_path / "bad.npz")
    assert not UNPICKLED.exists()


# --- the GNN benchmark ----------------------------------------------------------------------------------------

ATTRIBUTES = sp.random(N, 7, 0.4, random_state=5, format="csr", dtype=np.float32)
NAMES = {
    "node_names": np.array([f"paper {i}" for i in range(N)], object),
    "attr_names": np.array([Bomb()] * 7),
    "class_names": np.array(["a", "b", "c"], object),
}
BENCHMARK = {
    **{f"adj_{part}": getattr(ONES, part) for part in ("data", "indices", "indptr")}, "adj_shape": np.array([N, N]),
    **{f"attr_{part}": getattr(ATTRIBUTES, part) for part in ("data", "indices", "indptr")}, "attr_shape": np.array([N, 7]),
    "labels": np.arange(N) % 3, **NAMES,
}  # fmt: skip


def benchmark(path, **change):
    np.savez(path, **{name: array for name, array in {**BENCHMARK, **change}.items() if array is not None})
    return path


def test_a_file_of_the_benchmark_is_read_as_torch_geometric_reads_it(tmp_path):
    read_npz = pytest.importorskip("torch_geometric.io").read_npz
    path, tally = benchmark(tmp_path / "b.npz"), EdgeTally()
    graph, theirs = npz.read(path, undirected=True, self_loops="drop", tally=tally), read_npz(path)
    matrix = np.zeros((N, N))
    matrix[theirs.edge_index[1], theirs.edge_index[0]] = 1
    np.testing.assert_array_equal(dense(graph), matrix)
    assert isinstance(graph.features, bs.CSR)
    np.testing.assert_array_equal(graph.features.to_scipy().toarray() > 0, theirs.x.numpy() > 0)
    np.testing.assert_array_equal(graph.features.to_scipy().toarray(), ATTRIBUTES.toarray())
    np.testing.assert_array_equal(graph.labels, theirs.y)
    assert tally.form == "GNN benchmark: entry (i, j) is the edge j -> i"
    assert tally.warnings == [
        "node_names, attr_names, class_names: left out, because they hold Python objects, which only unpickling could read"
    ]
    assert not UNPICKLED.exists()


def test_the_result_of_the_command_says_what_it_took_and_left_out(tmp_path):
    made, err = imported(benchmark(tmp_path / "b.npz"), "--transpose")
    assert (made["read"]["form"], made["feature_kind"], made["weighted"]) == (
        "GNN benchmark: entry (i, j) is the edge i -> j",
        "sparse",
        False,
    )
    assert made["warnings"] == [line.removeprefix("bulksample: warning: ") for line in err.splitlines()] != []
    np.testing.assert_array_equal(dense(store.load(tmp_path / "g")), ONES.toarray().T)


def test_features_in_any_order_are_put_in_order_and_added(tmp_path):
    indices, values = ATTRIBUTES.indices.copy(), ATTRIBUTES.data
    first, last = ATTRIBUTES.indptr[:2]
    indices[first:last] = indices[first]
    graph = npz.read(benchmark(tmp_path / "b.npz", attr_indices=indices))
    theirs = sp.csr_matrix((values, indices, ATTRIBUTES.indptr), (N, 7)).toarray()
    np.testing.assert_allclose(graph.features.to_scipy().toarray(), theirs, rtol=1e-6)


def test_dense_features_labels_of_several_classes_and_names_as_text(tmp_path):
    sparse = dict.fromkeys(("attr_data", "attr_indices", "attr_indptr", "attr_shape"))
    labels, tally = np.eye(N, 4, dtype=np.int8), EdgeTally()
    text = {name: np.array([str(i) for i in range(len(array))]) for name, array in NAMES.items()}
    graph = npz.read(benchmark(tmp_path / "b.npz", **sparse, attr_matrix=ATTRIBUTES.toarray(), labels=labels, **text), tally=tally)
    np.testing.assert_array_equal(graph.features, ATTRIBUTES.toarray())
    np.testing.assert_array_equal(graph.labels, labels)
    assert (graph.target, list(graph.extra), tally.ignored, tally.warnings) == ("multilabel", ["node_names"], "class_names, attr_names", [])


OF_BENCHMARK = {
    **{f"without {key}": ({key: None}, f"has no {key}") for key in BENCHMARK if key.startswith(("adj", "attr")) and key != "attr_names"},
    **{f"{key} of objects": ({key: np.array([Bomb()])}, f"{key}: holds '.O'") for key in BENCHMARK if key not in NAMES},
    **{f"{key} one short": ({key: BENCHMARK[key][:-1]}, key[:4] if key[0] == "a" else "labels must be int64 of shape") for key in BENCHMARK if key not in NAMES},
    "a column of features out of range": ({"attr_indices": changed(ATTRIBUTES.indices, 3, 7)}, "attr_indices: entry 3 is 7; columns run from 0 to 6"),
    "features of other vertices": ({"attr_indptr": ATTRIBUTES.indptr[:-2], "attr_shape": np.array([N - 2, 7])}, "attr_(indptr|shape)|must have 12 rows"),
    "a feature is NaN": ({"attr_data": changed(ATTRIBUTES.data, 0, np.nan)}, "features: row .* holds nan"),
    "dense and sparse features": ({"attr_matrix": np.eye(N)}, "attr_matrix: there are dense features, and attr_data"),
    "a weight is NaN": ({"adj_data": changed(ONES.data, 2, np.nan)}, "weight 2 is nan"),
    "edges twice": ({"edge_index": np.zeros((2, 3), int)}, "holds the edges twice, as edge_index and as GNN benchmark"),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_BENCHMARK)
def test_damaged_files_of_the_benchmark_are_refused_by_array(tmp_path, case):
    change, names = OF_BENCHMARK[case]
    refused(rf"bad\.npz.*({names})", npz.read, benchmark(tmp_path / "bad.npz", **change))
    assert not UNPICKLED.exists()


# --- edge_index -----------------------------------------------------------------------------------------------

ENDS = np.array([[0, 1, 1, 2, 3, 3], [1, 2, 2, 0, 3, 0]])  # 1 -> 2 twice, 3 -> 3
LIST = {
    "edge_index": ENDS, "edge_weight": np.array([1.0, 2, 3, 4, 5, 6]), "edge_attr": np.arange(12.0).reshape(6, 2), "x": np.eye(5),
    "y": np.array([0, 1, 2, -1, 0]), "train_mask": np.arange(5) < 2, "val_mask": np.arange(5) == 2, "year": np.arange(5),
}  # fmt: skip


def listed(path, **change):
    np.savez(path, **{name: array for name, array in {**LIST, **change}.items() if array is not None})
    return path


def test_edges_of_torch_geometric_are_those_of_from_pyg(tmp_path):
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    theirs = data.Data(**{name: torch.from_numpy(array) for name, array in LIST.items() if name != "year"})
    expected, tally = bs.from_pyg(theirs, name="l"), EdgeTally()
    graph = npz.read(listed(tmp_path / "l.npz"), tally=tally)
    assert (graph.name, graph.n, tally.edges_read, tally.self_loops, tally.duplicates) == ("l", 5, 6, 1, 1)
    np.testing.assert_array_equal(dense(graph), dense(expected))
    for name in ("features", "labels", "edge_features"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(expected, name))
    assert {split: mask.tolist() for split, mask in graph.masks.items()} == {split: mask.tolist() for split, mask in expected.masks.items()}
    assert graph.extra["year"].tolist() == list(range(5))
    assert tally.form == "edge_index: sources, destinations"


def test_edges_with_times_stay_apart(tmp_path):
    times, born = np.array([50, 40, 30, 20, 10, 0]), np.arange(5) * 7
    path = listed(tmp_path / "l.npz", edge_time=times, node_time=born)
    made, _ = imported(path)
    graph = store.load(tmp_path / "g", check="full")
    (relation,) = graph.relations
    found = sorted(zip(relation.adjacency.indices, relation.adjacency.row_of_entry(), relation.times, relation.features[:, 0], strict=True))
    assert [tuple(map(int, row)) for row in found] == sorted(zip(*ENDS.tolist(), times.tolist(), range(0, 12, 2), strict=True))
    np.testing.assert_array_equal(graph.types[0].times, born)
    assert made["relations"]["node to node"] == {"edges": 6, "weighted": True, "times": True, "edge_features": 2}
    both = npz.read(path, undirected=True, self_loops="drop").relations[0]
    back = [(v, u, t) for u, v, t in zip(*ENDS.tolist(), times.tolist(), strict=True) if u != v]
    assert sorted(zip(both.adjacency.indices, both.adjacency.row_of_entry(), both.times, strict=True)) == sorted(
        [*back, *((v, u, t) for u, v, t in back)]
    )


@pytest.mark.parametrize(
    ("change", "n"),
    [
        ({}, 5),
        ({"num_nodes": np.array(9), "x": None, "y": None, "train_mask": None, "val_mask": None, "year": None}, 9),
        ({"num_nodes": np.array([5])}, 5),
        ({"x": None, "y": None, "train_mask": None, "val_mask": None, "year": None}, 4),
    ],
)
def test_the_number_of_vertices(tmp_path, change, n):
    assert npz.read(listed(tmp_path / "l.npz", **change)).n == n


EDGES = {
    "by rows": ({"edge_index": ENDS.T}, r"edge_index: got int64 of shape \(6, 2\); use integers of shape \(2, m\)"),
    "of floats": ({"edge_index": ENDS + 0.5}, "edge_index: got float64"),
    "of objects": ({"edge_index": ENDS.astype(object)}, "edge_index: holds '.O'"),
    "a negative vertex": ({"edge_index": ENDS - 1}, "edge 0 names source -1"),
    "a vertex beyond the features": ({"edge_index": ENDS + 2}, "x: has 5 rows, but an edge names vertex 5; use one row for each vertex, 6 or more"),
    "a vertex beyond num_nodes": ({"num_nodes": np.array(3)}, "num_nodes: is 3, and the edges need 4"),
    "two numbers of vertices": ({"num_nodes": np.array([5, 5])}, r"num_nodes: is \[5, 5\]"),
    "a vertex beyond 63 bits": ({"edge_index": ENDS.astype(np.uint64) + np.uint64(2**63)}, "edge_index: names a vertex of 2\\*\\*63"),
    "a vertex beyond the file": ({"edge_index": ENDS + 2**31 - 8, "x": None, "y": None, "train_mask": None, "val_mask": None, "year": None}, "edge_index promises 2147483644 vertices"),
    "short weights": ({"edge_weight": np.ones(5)}, r"edge_weight: got float64 of shape \(5,\); use one number for each of the 6 edges"),
    "weights of text": ({"edge_weight": np.array(["a"] * 6)}, "edge_weight: got <U1"),
    "a NaN weight": ({"edge_weight": changed(LIST["edge_weight"], 3, np.nan)}, "edge_weight: entry 3 is nan"),
    "a negative weight": ({"edge_weight": changed(LIST["edge_weight"], 3, -1)}, "edge_weight: entry 3 is -1.0"),
    "short features of edges": ({"edge_attr": np.ones((5, 2))}, r"edge_attr: got shape \(5, 2\); use one row for each of the 6 edges"),
    "a NaN feature of an edge": ({"edge_attr": np.full((6, 2), np.nan)}, "edge features: row 0 is not finite"),
    "short times": ({"edge_time": np.arange(5)}, "edge_time: got int64 of shape"),
    "times of floats": ({"edge_time": np.arange(6.0)}, "edge_time: got float64"),
    "short features of timed edges": ({"edge_time": np.arange(6), "edge_attr": np.ones((5, 2))}, r"edge_attr: got shape \(5, 2\)"),
    "times of whom": ({"time": np.arange(6)}, "time: may be of vertices or of edges; name it node_time or edge_time"),
    "short labels": ({"y": np.zeros(4, int)}, r"labels must be int64 of shape \(5,\)"),
    "a short mask": ({"train_mask": np.ones(4, bool)}, r"train mask must be bool of shape \(5,\)"),
    "masks of several splits": ({"train_mask": np.ones((5, 10), bool)}, r"train_mask: got bool of shape \(5, 10\)"),
    "a short column": ({"year": np.zeros(3)}, "year must have 5 rows"),
    "a matrix too": ({"indptr": np.arange(6), "indices": np.arange(5)}, "holds the edges twice, as edge_index and as indptr and indices"),
}  # fmt: skip


@pytest.mark.parametrize("case", EDGES)
def test_damaged_lists_are_refused_by_array(tmp_path, case):
    change, names = EDGES[case]
    refused(rf"bad\.npz.*({names})", npz.read, listed(tmp_path / "bad.npz", **change))
    assert not UNPICKLED.exists()


# --- options --------------------------------------------------------------------------------------------------


def test_the_adjacency_of_a_file_is_turned_and_mirrored(tmp_path):
    matrix = sp.csr_matrix(REAL)
    arrays = {"indptr": matrix.indptr, "indices": matrix.indices, "weights": matrix.data, "edge_attr": matrix.data[:, None]}
    np.savez(tmp_path / "g.npz", **arrays, x=np.eye(N), names=np.array([Bomb()] * N))
    whole, tally = REAL.toarray(), EdgeTally()
    graph = npz.read(tmp_path / "g.npz", tally=tally)
    np.testing.assert_allclose(dense(graph), whole, rtol=1e-9)
    assert (tally.self_loops, tally.form) == (np.count_nonzero(np.diag(whole)), "indptr and indices: entry (i, j) is the edge j -> i")
    assert tally.warnings == ["names: left out, because they hold Python objects, which only unpickling could read"]
    turned = npz.read(tmp_path / "g.npz", transpose=True)
    np.testing.assert_allclose(dense(turned), whole.T, rtol=1e-9)
    np.testing.assert_allclose(turned.edge_features[:, 0], turned.adjacency.values * turned.weight_unit, rtol=1e-6)
    np.testing.assert_allclose(
        dense(npz.read(tmp_path / "g.npz", undirected=True, duplicates="sum")), whole + whole.T * (1 - np.eye(N)), rtol=1e-9
    )
    refused("joins", npz.read, tmp_path / "g.npz", self_loops="error")
    assert not UNPICKLED.exists()


TYPES = {"node_types": np.array(["a"]), "num_nodes": np.array([2]), "edge_types": np.zeros((0, 3), "U1")}


@pytest.mark.parametrize(
    ("arrays", "options", "why"),
    [
        (LIST, {"transpose": True}, "holds edge_index, and row 0 of edge_index are the sources: transpose does not apply"),
        (TYPES, {"undirected": True, "duplicates": "max"}, "holds several vertex types.*: undirected, duplicates does not apply"),
        ({**LIST, "edge_time": np.arange(6)}, {"duplicates": "sum"}, "duplicates was 'sum' for edges with times, which stay apart; use keep, error"),
        (LIST, {"duplicates": "keep"}, "duplicates was 'keep'; use sum, max, error"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_are_refused(tmp_path, arrays, options, why):
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(UsageError, match=why):
        npz.read(tmp_path / "g.npz", **options)
