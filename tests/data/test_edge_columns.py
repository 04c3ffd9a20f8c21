"""Columns of edge lists against Python's csv, datetime and scipy: separators, headers, weights, times, compression."""

import bz2
import csv
import gzip
import lzma
from datetime import UTC, datetime

import numpy as np
import pytest
import scipy.sparse as sp

from bulksample import DataError, UsageError
from bulksample.data import edgelist, text
from bulksample.data.edges import EdgeTally

SEPARATORS = {"blank": " ", "tab": "\t", ",": ",", ";": ";", "|": "|"}
PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
STAMPS = ("2009-03-29", "1969-12-31T23:59:59", "1904-02-29T01:02", "2009-03-29T12:00:00.25", "2031-01-01T00:00:00.000001Z")
MICROSECONDS = {"D": 86400 * 10**6, "s": 10**6, "ms": 1000, "us": 1}


def write(path, rows, between=","):
    path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


def matrix_of(rows, n, separator=",", skip=0):
    """The adjacency of a file's text by csv and scipy: row v holds u; weights of repeated edges add up."""
    listed = [row for row in csv.reader(rows.splitlines(), delimiter=separator)][skip:]
    u, v, w = ([int(row[0]) for row in listed], [int(row[1]) for row in listed], [float((*row, "", 1)[2] or 1) for row in listed])
    return sp.coo_matrix((w, (v, u)), (n, n)).toarray()


def dense(graph):
    a = graph.adjacency
    values = np.ones(a.nnz) if a.values is None else a.values * graph.weight_unit
    return sp.csr_matrix((values, a.indices, a.indptr), a.shape).toarray()


def events(graph):
    """(source, target, time, weight) of the edges of a graph with times, by the ids of the file, in the order of the list."""
    relation = graph.relations[0]
    a, order = relation.adjacency, np.argsort(np.arange(relation.edges) if relation.edge_ids is None else relation.edge_ids)
    ids = graph.extra.get("original_ids", np.arange(graph.n)).tolist()
    weights = np.ones(a.nnz) if a.values is None else (a.values * relation.weight_unit).round(9)  # in fixed point
    rows = zip(a.indices.tolist(), a.row_of_entry().tolist(), relation.times.tolist(), weights.tolist(), strict=True)
    listed = [(ids[u], ids[v], time, weight) for u, v, time, weight in rows]
    return [listed[at] for at in order]


def counted(stamp, unit):
    """A date in whole units since 1970, by Python's datetime."""
    moment = datetime.fromisoformat(stamp)
    span = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((span.days * 86400 + span.seconds) * 10**6 + span.microseconds) // MICROSECONDS[unit]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("titled", [False, True])
def test_every_separator_header_and_compression(tmp_path, monkeypatch, separator, packed, weighted, titled):
    rng, n = np.random.default_rng(5), 20
    rows = [[u, v, w / 8][: 2 + weighted] for u, v, w in rng.integers(0, n, (90, 3)).tolist()] + [[n - 1, 0, 1][: 2 + weighted]]
    rows = [["Source", "Target", "Weight"][: 2 + weighted]] * titled + rows
    content = "".join(SEPARATORS[separator].join(map(str, row)) + "\n" for row in rows)
    path = tmp_path / f"e.csv{packed}"
    path.write_bytes(PACKED[packed](("# made by hand\n\n" + content).encode()))
    expected = matrix_of(content, n, SEPARATORS[separator], int(titled))
    monkeypatch.setattr(text, "_BLOCK", 100)
    for options in ({}, {"separator": separator}, {"header": titled}):
        tally = EdgeTally()
        graph = edgelist.read(path, vertices=n, duplicates="sum" if weighted else None, tally=tally, **options)
        np.testing.assert_allclose(dense(graph), expected if weighted else expected > 0)
        assert (graph.name, tally.edges_read) == ("e", 91)
        assert ("header in line 3" in tally.form) == titled


@pytest.mark.parametrize("separator", ["tab", ",", ";", "|"])
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("unit", MICROSECONDS)
def test_times_are_those_of_datetime(tmp_path, monkeypatch, separator, by_hand, unit):
    stamps = [stamp for stamp in STAMPS if counted(stamp, "us") % MICROSECONDS[unit] == 0]
    rows = [(at % 3 + 5, 2 * at, stamps[at % len(stamps)].replace("T", " T"[at % 2]), at / 4) for at in range(11)]
    path = write(tmp_path / "e.csv", [("from", "to", "when", "w"), *rows], SEPARATORS[separator])
    monkeypatch.setattr(text, "_BLOCK", 50)
    if by_hand:
        monkeypatch.setattr(text, "_parse", lambda *block: None)
    for columns in ("source=from,target=to,time=when,weight=w", "source,target,time,weight", "weight=4,time=3,target=2,source=1"):
        assert events(edgelist.read(path, columns=columns, time_unit=unit)) == [(u, v, counted(t, unit), w) for u, v, t, w in rows]
    turned = edgelist.read(path, columns="source=to,target=from,time=3", time_unit=unit)
    assert events(turned) == [(v, u, counted(t, unit), 1.0) for u, v, t, _ in rows]


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("between", [" ", "\t", ","])
def test_whole_times_keep_every_digit(tmp_path, monkeypatch, between, by_hand):
    times = [0, -5, 2**53 + 1, 10**17 + 1, 2**63 - 1, -(2**63) + 1]
    rows = [(at, 100 - at, "x", time) for at, time in enumerate(times)]
    if by_hand:
        monkeypatch.setattr(text, "_parse", lambda *block: None)
    path = write(tmp_path / "e.txt", rows, between)
    assert events(edgelist.read(path, columns="source,target,-,time")) == [(u, v, time, 1.0) for u, v, _, time in rows]
    small = write(tmp_path / "s.txt", rows[:4], between)
    assert events(edgelist.read(small, columns="source,target,-,time")) == [(u, v, time, 1.0) for u, v, _, time in rows[:4]]
    assert len(events(edgelist.read(path, columns="source,target,-,time", undirected=True))) == 2 * len(rows)


def test_fields_that_are_left_out_do_not_shift_the_others(tmp_path):
    """Empty, quoted, of many words, or letters with a byte that is a blank in Latin-1 (à in UTF-8 ends in A0)."""
    notes = ["", "two words", "à", '"a;b"', "#", "%"]
    rows = [(at, note, at + 1, at / 2) for at, note in enumerate(notes)]
    path = write(tmp_path / "e.csv", rows, ";")
    found = edgelist.read(path, columns="source,-,target,weight", vertices=9)
    expected = sp.coo_matrix(([w for *_, w in rows], ([v for _, _, v, _ in rows], [u for u, *_ in rows])), (9, 9)).toarray()
    np.testing.assert_allclose(dense(found), expected)
    path = write(tmp_path / "b.txt", [(1, "à5", 2, 7), (2, "é", 3, 8)], " ")
    assert events(edgelist.read(path, columns="source,-,target,time")) == [(1, 2, 7, 1.0), (2, 3, 8, 1.0)]


@pytest.mark.parametrize("quoted", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_names_as_csv_writes_them(tmp_path, quoted):
    rows = [("New York", "Smith, J"), ('the "old" one', "New York"), ("zoë", "x"), ("5", "6")]
    with open(tmp_path / "e.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=quoted).writerows([("when", "a", "b"), *((at, *row) for at, row in enumerate(rows))])
    graph = edgelist.read(tmp_path / "e.csv", ids="text", columns="source=a,target=b,time=when")
    assert events(graph) == [(*row, at, 1.0) for at, row in enumerate(rows)]


def test_features_and_options_of_timed_edges(tmp_path):
    path = write(tmp_path / "e.csv", [("source", "target", "time"), (1, 2, 5), (1, 2, 5), (3, 3, 6)])
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    tally = EdgeTally()
    graph = edgelist.read(path, edge_features=tmp_path / "x.npy", self_loops="drop", tally=tally)
    assert graph.relations[0].features.tolist() == [[0, 1], [2, 3]]
    assert (tally.edges_read, tally.self_loops, tally.duplicates) == (3, 1, 1)
    for rule in ("sum", "max"):
        with pytest.raises(UsageError, match=f"duplicates was '{rule}' for edges with times"):
            edgelist.read(path, duplicates=rule)
    with pytest.raises(DataError, match="edge 1, from 1 to 2 at time 5, was listed before"):
        edgelist.read(path, duplicates="error")
    for rows in ([("source", "target", "time")], []):
        empty = edgelist.read(write(tmp_path / "n.csv", rows), vertices=4, columns="source,target,time")
        assert (empty.n, empty.relations[0].times.tolist()) == (4, [])
    named = edgelist.read(write(tmp_path / "n.csv", [("source", "target", "time")]), vertices=4)
    assert (named.n, named.relations[0].times.tolist()) == (4, [])


TIMED = {"columns": "source,target,time"}
NANO = {**TIMED, "time_unit": "ns"}
REFUSED = {
    "separators disagree": ("1,2\n3;4\n", {}, r"line 2 has 1 column\(s\); use 2, separated by ','"),
    "a blank in a tabbed file": ("1\t2\n3 4\n", {}, r"line 2 has 1 column\(s\); use 2, separated by tabs"),
    "a column without a word": ("0 1 2009-03-29 12:00\n", {"columns": "source,target,time"}, "line 1 has 4 columns, and columns says"),
    "a header of users": ("user,item\nann,tea\n", {"ids": "text"}, "line 1 may name the columns or be an edge"),
    "two separators": ("1,2;3\n", {}, "line 1 may have its columns separated by ',' or ';'"),
    "a weight behind a blank": ("a,b 5\n", {"ids": "text"}, "line 1 may have its columns separated by ',' or blanks"),
    "names with blanks": ("a b;c\n", {"ids": "text"}, "line 1 may have its columns separated by ';' or blanks"),
    "an empty field": ("1,2\n3,\n", {}, "line 2: column 2 is empty"),
    "an empty weight": ("1,2,1\n3,4,\n", {}, "line 2: column 3 is empty"),
    "an empty time": ("1,2,1\n3,4,\n", TIMED, "line 2: column 3 is empty"),
    "four columns": ("1,2,3,4\n", {}, r"line 1 has 4 column\(s\); use 2 or 3, or say what they are"),
    "names alone": ("ann,bob\nbob,eve\n", {}, "line 2: 'bob' is not an integer .*ids='text' takes names"),
    "a second header": ("source,target\n1,2\nsource,target\n", {}, "line 3: 'source' is not an integer"),
    "no values": ("NA,NA\n1,2\n", {}, "line 1: 'NA' is not an integer"),
    "a header of names, perhaps": ("source,target\nann,bob\n", {"ids": "text"}, "line 1 may name the columns or .*; use header=True"),
    "names above numbers": ("ann,bob\n1,2\n", {"ids": "text"}, "line 1 may name the columns or be an edge"),
    "an unknown third column": ("source,target,year\n1,2,3\n", {}, "line 1 names columns whose use is not known: 'year'; say it"),
    "one end named elsewhere": ("target,id\n1,2\n", {"header": True}, "line 1 names columns whose use is not known: 'id'"),
    "an index of pandas": (",source,target\n0,1,2\n", {}, "line 1 names columns whose use is not known: ''"),
    "columns against the header": ("time,source,target\n1,2,3\n", TIMED, "line 1 calls column 2 'source'; columns has column 1"),
    "no such name": ("a,b\n1,2\n", {"columns": "source=a,target=c"}, "line 1 has no column 'c', or several"),
    "a name twice": ("a,b,b\n1,2,3\n", {"columns": "source=a,target=b"}, "line 1 has no column 'b', or several"),
    "no such number": ("1,2\n", {"columns": "source,target,time"}, "line 1 has no column '3'"),
    "a date for a weight": ("1 2 2020-01-01\n", {}, "line 1: weight '2020-01-01' .*columns='source,target,time'"),
    "a fraction for a time": ("1 2 3\n1 2 3.5\n", TIMED, "line 2: time '3.5' is not a whole number"),
    "a time beyond int64": ("1 2 9223372036854775808\n", TIMED, "line 1: time '9223372036854775808' is not a whole number that fits int64"),
    "a date among numbers": ("1 2 3\n1 2 2020-01-01\n", TIMED, "line 2: time '2020-01-01' is not a whole number .*as on the lines before"),
    "a number among dates": ("1 2 2020-01-01\n1 2 3\n", TIMED, "line 2: time '3' is not a date"),
    "no such day": ("1 2 2020-01-01\n1 2 2021-02-29\n", TIMED, "line 2: time '2021-02-29' is no date"),
    "an offset from UTC": ("1,2,2020-01-01\n1,2,2020-01-01T00:00+01:00\n", TIMED, "line 2: time .* is not a date"),
    "a finer date": ("1,2,2020-01-01\n1,2,2020-01-01T00:00:00.5\n", TIMED, "line 2: time .* is no whole number of the unit 's'"),
    "a date that wraps": ("1,2,2020-01-01T00:00:00.5\n1,2,3000-01-01\n", NANO, "line 2: time '3000-01-01' is no whole"),
    "a fraction that wraps": ("1,2,2020-01-01\n1,2,3000-01-01T00:00:00.123456789\n", NANO, "line 2: time .*fits int64"),
    "an early one that wraps": ("1,2,1500-01-01T00:00:00.000000001\n", {**TIMED, "time_unit": "us"}, "line 1: time '1500"),
    "quotes that go on": ('1,2\n"1,2\n', {}, "line 2: its quotes cannot be read"),
    "quotes that go on below a header": ('source,target\n"1,2\n', {}, "line 2: its quotes cannot be read"),
    "quotes that go on below names": ('a,b\n"c,d\n', {"ids": "text"}, "line 2: its quotes cannot be read"),
    "bz2 cut short": (bz2.compress(b"1,2\n" * 99)[:-5], {}, "cannot be read beyond line"),
    "xz cut short": (lzma.compress(b"1,2\n" * 99)[:-5], {}, "cannot be read beyond line"),
    "nothing": ("", {}, "lists no edge"), "a header alone": ("source,target\n", {}, "lists no edge"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_in_doubt_is_refused(tmp_path, case):
    content, options, words = REFUSED[case]
    (tmp_path / "e.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"^e\.csv: {words}"):
        edgelist.read(tmp_path / "e.csv", **options)


@pytest.mark.parametrize(("options", "words"), [
    ({"separator": "x"}, "separator was 'x'; use blank, tab"), ({"time_unit": "week"}, "time_unit was 'week'"),
    ({"columns": "source,target,foo"}, "columns: got 'foo'"), ({"columns": "source,source"}, "columns: got 'source'"),
    ({"columns": "source,weight"}, "columns: got 'source,weight'; use source and target"),
    ({"columns": "source=1,target=1"}, "gives one column of .* two uses"),
    ({"columns": "source=a,target=b", "header": False}, "needs a header; got header=False"),
    ({"columns": 5}, "columns was 5; use a string"), ({"separator": [","]}, r"separator was \[','\]; use a string"),
    ({"header": "no"}, "header must be true or false; got 'no'"),
])  # fmt: skip
def test_columns_that_cannot_be(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        edgelist.read(write(tmp_path / "e.csv", [(1, 2)]), **options)


@pytest.mark.parametrize(
    ("content", "options", "ids"),
    [
        ('"target","source"\n1,2\n', {}, ["1", "2"]),
        ("1,2\n1,4\n", {}, ["1", "2", "4"]),
        ("ann,bob\nann,eve\n", {"ids": "text"}, ["ann", "bob", "eve"]),
        ('"ann","bob"\nann,eve\n', {"ids": "text", "header": False}, ["ann", "bob", "eve"]),
        ("# a comment\nann,bob\n", {"ids": "text"}, ["ann", "bob"]),
        ("titles\nann,bob\n", {"ids": "text", "skip": 1}, ["ann", "bob"]),
    ],
)
def test_a_mark_of_byte_order_is_no_part_of_a_name(tmp_path, content, options, ids):
    (tmp_path / "e.csv").write_text(content, encoding="utf-8-sig", newline="\r\n")
    assert edgelist.read(tmp_path / "e.csv", **options).extra["original_ids"].astype(str).tolist() == ids


def test_columns_of_a_file_with_a_mark_of_byte_order_may_be_turned(tmp_path):
    (tmp_path / "e.csv").write_bytes(b'\xef\xbb\xbf"target","source"\r\n1,2\r\n')
    assert edgelist.read(tmp_path / "e.csv", vertices=3).adjacency.row_of_entry().tolist() == [1]


@pytest.mark.parametrize(
    ("content", "options", "ids"),
    [
        ("0\t1\t\n1\t2\n", {}, ["0", "1", "2"]),
        ("0 1\t\n1 2\n", {}, ["0", "1", "2"]),
        ("2,1\t\n1,3\n", {}, ["1", "2", "3"]),
        ("ann,bob\reve,5\r", {"ids": "text"}, ["5", "ann", "bob", "eve"]),
        ("ann,bob\r\neve,dan\r\n", {"ids": "text"}, ["ann", "bob", "dan", "eve"]),
        ("r\ta\tb\n\t#c\td\n", {"ids": "text", "separator": "tab", "columns": "-,source,target"}, ["a", "b"]),
        ('r\t"a"\tb\n\t#c\td\n', {"ids": "text", "separator": "tab", "columns": "-,source,target"}, ["a", "b"]),
    ],
)
def test_ends_of_lines_and_comments(tmp_path, content, options, ids):
    (tmp_path / "e.csv").write_bytes(content.encode())
    read = edgelist.read(tmp_path / "e.csv", **options)
    assert read.extra.get("original_ids", np.arange(read.adjacency.shape[0])).astype(str).tolist() == ids
