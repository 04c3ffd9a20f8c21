"""Edge features are stored by entry of the adjacency, whatever order the edges came in."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import bulksample as bs
from bulksample.data import edgelist, matrixmarket
from bulksample.data.link_split import hold_out
from bulksample.sparse import CSR

RNG = np.random.default_rng(7)
N = 40


def by_edge(graph):
    """The edge features by (source, destination)."""
    a = graph.adjacency
    return {(u, v): row for u, v, row in zip(a.indices.tolist(), a.row_of_entry().tolist(), graph.edge_features.tolist(), strict=True)}


def listed(m=300, distinct=True):
    edges = RNG.integers(0, N, (2, m))
    edges = RNG.permutation(np.unique(edges, axis=1), axis=1) if distinct else edges
    return *edges, RNG.integers(0, 99, (edges.shape[1], 3)).astype(np.float32)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.5])
def test_entries_are_found_where_a_dense_matrix_has_them(density):
    dense = RNG.random((20, 30)) < density
    matrix = CSR.from_edges(*np.nonzero(dense), dense.shape)
    rows, columns = RNG.integers(0, 20, 500), RNG.integers(0, 30, 500)
    place = np.where(dense, np.cumsum(dense).reshape(dense.shape) - 1, -1)
    np.testing.assert_array_equal(matrix.find(rows, columns), place[rows, columns])


def test_features_follow_their_edges():
    u, v, rows = listed()
    expected = {(a, b): row for a, b, row in zip(u.tolist(), v.tolist(), rows.tolist(), strict=True)}
    assert by_edge(bs.from_edges(u, v, N, edge_attr=rows)) == expected
    assert by_edge(bs.from_edges(u, v, N, edge_attr=rows.astype(np.float16), weights=np.arange(len(u)) + 1)) == expected
    data = Data(edge_index=torch.from_numpy(np.stack([u, v])), edge_attr=torch.from_numpy(rows), num_nodes=N)
    assert by_edge(bs.from_pyg(data)) == expected
    dropped = by_edge(bs.from_edges(u, v, N, edge_attr=rows, self_loops="drop"))
    assert dropped == {edge: row for edge, row in expected.items() if edge[0] != edge[1]}


@pytest.mark.parametrize(("duplicates", "merged"), [("sum", np.sum), ("max", np.max)])
@pytest.mark.parametrize("undirected", [False, True])
def test_an_edge_that_is_listed_again_merges_its_features(duplicates, merged, undirected):
    u, v, rows = listed(2000, distinct=False)
    expected = {}
    for a, b, row in zip(u.tolist(), v.tolist(), rows, strict=True):
        for edge in {(a, b), (b, a)} if undirected else {(a, b)}:
            expected.setdefault(edge, []).append(row)
    graph = bs.from_edges(u, v, N, edge_attr=rows, undirected=undirected, duplicates=duplicates)
    assert by_edge(graph) == {edge: merged(own, axis=0).tolist() for edge, own in expected.items()}


def test_a_store_and_an_npz_keep_them(tmp_path):
    u, v, rows = listed()
    graph = bs.from_edges(u, v, N, edge_attr=rows)
    graph.save(tmp_path / "g")
    again = bs.load(tmp_path / "g")
    np.testing.assert_array_equal(again.edge_features, graph.edge_features)
    assert again.num_edge_features == 3
    assert bs.load(tmp_path / "g", features=False).edge_features is None
    from bulksample.data import npz

    a = graph.adjacency
    np.savez(tmp_path / "g.npz", indptr=a.indptr, indices=a.indices, edge_attr=graph.edge_features)
    np.testing.assert_array_equal(npz.read(tmp_path / "g.npz").edge_features, graph.edge_features)


LISTED = [(30, 7), (7, 20), (20, 20), (7, 30), (30, 7)]  # a repeated edge, its reverse, a self loop


@pytest.mark.parametrize("kind", ["edgelist", "mtx"])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("piece", [2, 2**18])
def test_rows_of_a_file_follow_the_edges_of_a_text(tmp_path, monkeypatch, kind, undirected, piece):
    monkeypatch.setattr("bulksample.data.edge_rows.PIECE_ROWS", piece)
    rows = np.arange(10, dtype=np.float32).reshape(5, 2) + 1
    np.save(tmp_path / "rows.npy", rows)
    lines = "".join(f"{u} {v}\n" for u, v in LISTED)
    head = f"%%MatrixMarket matrix coordinate pattern general\n30 30 {len(LISTED)}\n" if kind == "mtx" else ""
    (tmp_path / "edges").write_text(head + lines)
    read = {"edgelist": edgelist.read, "mtx": matrixmarket.read}[kind]
    options = {"transpose": True} if kind == "mtx" else {}
    graph = read(tmp_path / "edges", undirected=undirected, edge_features=tmp_path / "rows.npy", **options)
    names = graph.extra["original_ids"] if kind == "edgelist" else np.arange(1, 31)
    expected = {}
    for (u, v), row in zip(LISTED, rows, strict=True):
        for edge in {(u, v), (v, u)} if undirected else {(u, v)}:
            expected[edge] = expected.get(edge, 0) + row
    found = {(names[u], names[v]): row for (u, v), row in by_edge(graph).items()}
    assert found == {edge: row.tolist() for edge, row in expected.items()}
    dropped = read(tmp_path / "edges", undirected=undirected, self_loops="drop", edge_features=tmp_path / "rows.npy", **options)
    assert dropped.edge_features.sum() == sum(row.sum() for (u, v), row in expected.items() if u != v)


@pytest.mark.parametrize(("rows", "message"), [
    (np.ones((4, 2)), r"rows\.npy: has 4 rows; the file lists 5 edges: use one row for each"),
    (np.ones((5, 2, 1)), r"rows\.npy: got float64 of shape \(5, 2, 1\); use numbers of shape \(5, d\)"),
    (np.array(["a"] * 5), r"rows\.npy: got <U1 of shape \(5,\); use numbers of shape \(5, d\)"),
    (np.array([1, 2, 3, np.inf, 5]), r"rows\.npy: row 3 is not finite"),
])  # fmt: skip
def test_a_file_of_other_rows_is_refused_by_its_name(tmp_path, rows, message):
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "edges").write_text("".join(f"{u} {v}\n" for u, v in LISTED))
    with pytest.raises(bs.DataError, match=message):
        edgelist.read(tmp_path / "edges", edge_features=tmp_path / "rows.npy")


def test_edges_that_are_held_out_take_their_rows_along():
    u, v, rows = listed()
    graph = bs.from_edges(u, v, N, edge_attr=rows)
    kept = hold_out(graph, "to", 0.1, 0.2, 3, seed=1)
    out = {tuple(pair) for pairs in kept.held_out.pairs.values() for pair in pairs.tolist()}
    assert by_edge(kept.validate()) == {edge: row for edge, row in by_edge(graph).items() if edge not in out}


def test_a_wrong_number_of_rows_is_refused():
    with pytest.raises(bs.DataError, match=r"edge_attr: got shape \(3, 1\); use one row for each of the 2 edges"):
        bs.from_edges([0, 1], [1, 0], edge_attr=np.ones((3, 1)))
    with pytest.raises(bs.DataError, match="edge features: row 0 is not finite"):
        bs.from_edges([0, 1], [1, 0], edge_attr=[[1.0], [np.nan]])
