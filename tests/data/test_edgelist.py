"""Edge lists against a slow reader that does what the docstring says, one line at a time."""

import gzip
import math
import re
from collections import defaultdict
from itertools import product

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


def by_the_docstring(rows):
    """The ids, weights and line numbers of rows of tokens (None is a blank line or a comment), or the line that is wrong."""
    ids, weights, lines, columns = [], [], [], None
    for line, row in enumerate(rows, 1):
        if row is None:
            continue
        columns = columns or len(row)
        good = columns in (2, 3) and len(row) == columns and all(re.fullmatch("[0-9]{1,19}", token) for token in row[:2])
        if (
            not good
            or max(map(int, row[:2])) >= 2**63
            or not all(math.isfinite(weight) and weight >= 0 for weight in map(as_float, row[2:]))
        ):
            return line
        ids.append([int(token) for token in row[:2]])
        weights += map(float, row[2:])
        lines.append(line)
    return ids, weights, lines


def as_float(token):
    try:
        return float(token)
    except ValueError:
        return math.nan


IDS = ["0", "1", "007", "12345678901", str(2**63 - 1)]
WEIGHTS = ["1", "0.1", "1e-7", ".5", "5.", "+1", "-0", "1_0", "4.9e-324", "0.12345678901234567890123", "9007199254740993"]
BAD_IDS = [
    str(2**63),
    "9" * 19,
    str(2**64 + 1),
    "0" * 20,
    "1.0",
    "1e3",
    "+1",
    "-1",
    "-0",
    "1_0",
    "0x1",
    "nan",
    "x",
    "1#2",
    "1;2",
    '"1"',
    "é",
    "1\0",
]
BAD_WEIGHTS = ["nan", "inf", "-1", "1e999", "x", "1e", ".", "1-2", "1.5.5", "0x1", "1d5", "1__0"]
NOISE = ["", " ", ",", "# a b", " %1 2", "#"]


def check(path, rows, content):
    """The exact numbers and lines of the oracle, or an error that names its line."""
    path.write_bytes(content)
    expected = by_the_docstring(rows)
    if isinstance(expected, int):
        with pytest.raises(DataError, match=rf"e\.csv: line {expected}\b"):
            list(text.tables(path))
        return
    tables = list(text.tables(path))
    assert [ids for table in tables for ids in table.ids.tolist()] == expected[0]
    assert [weight for table in tables if table.weights is not None for weight in table.weights.tolist()] == expected[1]
    assert [line for table in tables for line in table.lines] == expected[2]
    assert all(table.ids.dtype == np.int64 and (table.weights is None or table.weights.dtype == np.float64) for table in tables)


@pytest.mark.long
@given(data=st.data())
def test_any_list_is_read_as_the_docstring_says(tmp_path_factory, data):
    """By numpy or by hand, in blocks of any size."""
    k = data.draw(st.sampled_from([2, 3]))
    kinds = [st.sampled_from(IDS)] * 2 + [st.sampled_from(WEIGHTS)] * (k - 2)
    rows = data.draw(st.lists(st.one_of(st.tuples(*kinds).map(list), st.none()), max_size=15))
    if data.draw(st.booleans()) and any(rows):
        row, column = data.draw(st.sampled_from([row for row in rows if row])), data.draw(st.integers(0, k))
        row[column : column + 1] = [data.draw(st.sampled_from([*BAD_IDS, *BAD_WEIGHTS] if column < 2 else BAD_WEIGHTS))]
    between, end = data.draw(st.sampled_from([" ", "\t", ",", "  ", " , ", "\r", "\v"])), data.draw(st.sampled_from(["\n", "\r\n", " \n"]))
    text_rows = [data.draw(st.sampled_from(NOISE)) if row is None else between.join(row) for row in rows]
    content = (end.join(text_rows) + data.draw(st.sampled_from(["", end]))).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_BLOCK", data.draw(st.sampled_from([1, 7, 40, 2**20])))
        if data.draw(st.booleans()):
            patch.setattr(text, "_parse", lambda *block: None)
        path = tmp_path_factory.mktemp("list") / "e.csv"
        check(path, rows, gzip.compress(content) if data.draw(st.booleans()) else content)


def test_every_odd_token_is_read_or_refused_alike(tmp_path, monkeypatch):
    for parse in (text._parse, lambda *block: None):
        monkeypatch.setattr(text, "_parse", parse)
        for good, odd in (["1", "2"], IDS + BAD_IDS), (["1", "2", "0.5"], IDS + BAD_IDS + WEIGHTS + BAD_WEIGHTS):
            for column, token in product(range(len(good)), odd):
                rows = [good, [*good[:column], token, *good[column + 1 :]], good]
                check(tmp_path / "e.csv", rows, "".join(" ".join(row) + "\n" for row in rows).encode())


def test_an_undirected_weighted_list_adds_up_as_a_dictionary_does(tmp_path):
    rng = np.random.default_rng(3)
    lines = [(int(u), int(v), float(w)) for u, v, w in zip(*rng.integers(0, 6, (2, 60)), rng.integers(0, 9, 60) / 4, strict=True)]
    path = tmp_path / "e.txt"
    path.write_text("".join(f"{u} {v} {w}\n" for u, v, w in lines), encoding="utf-8")
    for undirected in (False, True):
        for rule, merge in (("sum", sum), ("max", max)):
            found, expected = edges_of(edgelist.read(path, undirected=undirected, duplicates=rule)), slowly(lines, undirected, merge)
            assert set(found) == set(expected)
            np.testing.assert_allclose([found[e] for e in expected], list(expected.values()), rtol=1e-9)


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
    assert set(edges_of(edgelist.read(path))) == {(1, 2)}
    with pytest.raises(DataError, match="line 1: 'source' is not an integer"):
        edgelist.read(path, header=False)


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
