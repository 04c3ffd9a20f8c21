"""Edge lists against a slow reader that does what the docstring says, one line at a time."""

import gzip
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulksample import DataError, UsageError
from bulksample.data import edgelist, text
from bulksample.data.edges import EdgeTally


def edges_of(graph):
    """{(source id, target id): weight} of a graph, by the ids of the file."""
    a = graph.adjacency
    ids = graph.extra.get("original_ids", np.arange(graph.n)).tolist()
    values = [1.0] * a.nnz if a.values is None else (a.values * graph.weight_unit).tolist()
    rows = a.row_of_entry().tolist()
    return {(ids[u], ids[v]): weight for v, u, weight in zip(rows, a.indices.tolist(), values, strict=True)}


def slowly(lines, undirected=False, merge=sum):
    """The same by a dictionary."""
    listed = defaultdict(list)
    for u, v, weight in lines:
        listed[u, v].append(weight)
        if undirected and u != v:
            listed[v, u].append(weight)
    return {edge: merge(found) for edge, found in listed.items()}


def test_a_snap_file(tmp_path):
    path = tmp_path / "web-Small.txt"
    head = "# Directed graph: web-Small.txt\n# Nodes: 4 Edges: 5\n# FromNodeId\tToNodeId\n"
    path.write_text(head + "0\t11342\n0\t824020\n\n11342\t0\n7\t7\n0\t11342\n")
    tally = EdgeTally()
    graph = edgelist.read(path, tally=tally)
    assert graph.n == 4
    assert graph.name == "web-Small"
    assert graph.extra["original_ids"].tolist() == [0, 7, 11342, 824020]
    assert set(edges_of(graph)) == {(0, 11342), (0, 824020), (11342, 0), (7, 7)}
    assert (tally.edges_read, tally.self_loops, tally.duplicates) == (5, 1, 1)
    assert graph.adjacency.indices[graph.adjacency.indptr[2]] == 0, "row v holds u of the edge u -> v"


@pytest.mark.long
@given(data=st.data())
def test_any_list_is_read_as_the_slow_reader_does(tmp_path_factory, data):
    weighted, undirected = data.draw(st.booleans()), data.draw(st.booleans())
    ids = st.sampled_from([0, 1, 2, 3, 17, 400, 10**6, 2**63 - 1])
    weights = st.sampled_from([0.0, 0.25, 1.0, 3.5]) if weighted else st.just(1.0)
    lines = data.draw(st.lists(st.tuples(ids, ids, weights), min_size=1, max_size=25))
    merge = data.draw(st.sampled_from([sum, max])) if weighted else (lambda found: 1.0)
    between, end = data.draw(st.sampled_from([" ", "\t", ",", "  ", " , "])), data.draw(st.sampled_from(["\n", "\r\n", "\n\n", "\n%x\n"]))
    body = end.join(between.join([str(u), str(v), str(w)][: 3 if weighted else 2]) for u, v, w in lines)
    path = tmp_path_factory.mktemp("list") / "e.csv"
    path.write_text("# head 1 2 3 4\n" + body + data.draw(st.sampled_from(["", "\n"])))
    graph = edgelist.read(path, undirected=undirected, duplicates="max" if merge is max else "sum")
    expected = slowly(lines, undirected, merge)
    found = edges_of(graph)
    assert set(found) == set(expected)
    np.testing.assert_allclose([found[e] for e in expected], list(expected.values()), rtol=1e-9)


def test_blocks_of_any_size_give_one_graph(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    lines = rng.integers(0, 500, (400, 2))
    path = tmp_path / "e.txt"
    path.write_text("".join(f"{u} {v}\n" if u % 9 else f"# {u}\n{u}\t{v}\r\n" for u, v in lines))
    whole = edgelist.read(path)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(text, "_BLOCK", size)
        found = edgelist.read(path)
        np.testing.assert_array_equal(found.adjacency.indices, whole.adjacency.indices)
        np.testing.assert_array_equal(found.adjacency.indptr, whole.adjacency.indptr)


def test_a_fault_is_named_by_its_line_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 50)
    path = tmp_path / "e.txt"
    path.write_text("# head\n" + "1 2\n" * 99 + "3 x\n" + "1 2\n" * 99)
    with pytest.raises(DataError, match=r"e\.txt: line 101: 'x' is not an integer"):
        edgelist.read(path)
    monkeypatch.undo()
    path.write_text("1 2\n3 y\nx 4\n")
    with pytest.raises(DataError, match="line 2: 'y'"):  # the first line, though the fault is in the second column
        edgelist.read(path)


def test_gzip_is_recognised_by_its_first_bytes(tmp_path):
    path = tmp_path / "e.txt.gz"
    path.write_bytes(gzip.compress(b"5 9\n9 5\n"))
    graph = edgelist.read(path)
    assert edges_of(graph) == {(5, 9): 1.0, (9, 5): 1.0}
    assert graph.name == "e"
    (tmp_path / "noname").write_bytes(path.read_bytes())
    assert edges_of(edgelist.read(tmp_path / "noname")) == edges_of(graph)


def test_text_ids(tmp_path):
    path = tmp_path / "friends.csv"
    path.write_text("zoë,bob,2\nbob,alice,1\n10,9,4\n")
    graph = edgelist.read(path, ids="text")
    assert graph.extra["original_ids"].tolist() == ["10", "9", "alice", "bob", "zoë"]
    assert edges_of(graph) == {("zoë", "bob"): 2.0, ("bob", "alice"): 1.0, ("10", "9"): 4.0}


def test_ids_as_they_are(tmp_path):
    path = tmp_path / "e.txt"
    path.write_text("0 3\n3 0\n")
    graph = edgelist.read(path, vertices=6)
    assert (graph.n, graph.extra) == (6, {})
    with pytest.raises(DataError, match="line 1: vertex 3 is out of range; use 0 to 2"):
        edgelist.read(path, vertices=3)


def test_dense_ids_need_no_map(tmp_path):
    path = tmp_path / "e.txt"
    path.write_text("0 1\n2 1\n")
    assert edgelist.read(path).extra == {}


def test_self_loops_and_repetitions_by_option(tmp_path):
    path = tmp_path / "e.txt"
    path.write_text("1 1\n1 2\n2 1\n1 2\n")
    tally = EdgeTally()
    assert set(edges_of(edgelist.read(path, self_loops="drop", tally=tally))) == {(1, 2), (2, 1)}
    assert (tally.edges_read, tally.self_loops, tally.duplicates) == (4, 1, 1)
    tally = EdgeTally()
    assert len(edges_of(edgelist.read(path, undirected=True, tally=tally))) == 3
    assert (tally.edges_read, tally.self_loops, tally.duplicates) == (4, 1, 2)
    with pytest.raises(DataError, match="edge 0 joins 1 with itself"):
        edgelist.read(path, self_loops="error")
    with pytest.raises(DataError, match="edge 3, from 1 to 2, was listed before"):
        edgelist.read(path, duplicates="error")
    with pytest.raises(DataError, match="edge 2, from 2 to 1, was listed before"):
        edgelist.read(path, duplicates="error", undirected=True)


def test_titles_are_skipped(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("source,target\n1,2\n")
    assert set(edges_of(edgelist.read(path, skip=1))) == {(1, 2)}
    with pytest.raises(DataError, match="line 1: 'source' is not an integer"):
        edgelist.read(path)


def test_an_empty_list_is_a_graph_of_the_vertices_that_are_given(tmp_path):
    path = tmp_path / "e.txt"
    path.write_text("# nothing\n\n")
    with pytest.raises(DataError, match=r"e\.txt: lists no edge; use vertices=N for a graph of N"):
        edgelist.read(path)
    assert edgelist.read(path, vertices=3).n == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ids": "hex"}, "ids was 'hex'; use integer, text"), ({"self_loops": "x"}, "self_loops was 'x'; use keep, drop, error"),
        ({"duplicates": "x"}, "duplicates was 'x'; use sum, max, error"), ({"vertices": -1}, "got vertices = -1 with integer ids"),
        ({"vertices": 2, "ids": "text"}, "got vertices = 2 with text ids"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_bad_use(tmp_path, options, why):
    path = tmp_path / "e.txt"
    path.write_text("1 2\n")
    with pytest.raises(UsageError, match=why):
        edgelist.read(path, **options)


def test_a_folder_in_place_of_a_file_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^\.: is not a regular file"):
        edgelist.read(".")
