"""Foreign files that are wrong: each is refused by name, with the line, the array or the row."""

# ruff: noqa: E501 (a case is a line)

import gzip
import os
import re
import shutil
import zipfile

import numpy as np
import pytest
from samples import UNPICKLED, Bomb, N, as_arrays, changed, npy_bytes, refused, small_graph
from test_malformed_stores import CONTENTS
from test_ogb import gz, write_binary, write_csv

from bulksample.data import edgelist, matrixmarket, npz, ogb

GRAPH, SPARSE = small_graph(weighted=False), small_graph(weighted=False, sparse=True)
A, X = GRAPH.adjacency, SPARSE.features

# --- .npz -----------------------------------------------------------------------------------------------------

DENSE, THIN = as_arrays(GRAPH), as_arrays(SPARSE)
NPZ = {
    **{f"without {key}": (DENSE, {key: None}, f"has no {key}") for key in ("indptr", "indices")},
    **{f"without {key}": (THIN, {key: None}, f"{key}: is missing") for key in ("x_indptr", "x_indices", "x_data", "x_shape")},
    **{f"{key} as float": (DENSE, {key: DENSE[key].astype(float)}, f"{key}: got float64") for key in ("indptr", "indices", "y", "num_classes")},
    **{f"{key} as text": (DENSE, {key: np.array(["a"])}, f"{key}: got <U1") for key in ("indptr", "indices", "x", "y", "num_classes", "train_mask")},
    **{f"{key} as a table": (DENSE, {key: np.zeros((N, 2, 2), DENSE[key].dtype)}, f"{key}: got") for key in ("indptr", "indices", "x", "y", "train_mask")},
    **{f"{key} of objects": (DENSE, {key: np.array([Bomb()])}, f"{key}: holds '.O'") for key in ("indptr", "x", "y", "train_mask")},
    **{f"{key} one short": (DENSE, {key: DENSE[key][:-1]}, names) for key, names in (
        ("indptr", "features must have 7 rows"), ("indices", "number of entries, 10"), ("y", "labels must be int64 of shape"),
        ("train_mask", "train mask must be bool of shape"), ("year", "year must have 8 rows"),
    )},
    **{f"{case}": (DENSE, {role: array}, names) for case, (kind, role, array, names) in CONTENTS.items() if kind == "dense" and role in ("indptr", "indices")},
    "features one short": (DENSE, {"x": DENSE["x"][:-1]}, "features must have 8 rows"),
    "a column beyond int32": (DENSE, {"indices": changed(DENSE["indices"].astype(np.int64), 3, 2**31)}, "indices: entry 3 is 2147483648"),
    "a row pointer beyond int64": (DENSE, {"indptr": changed(DENSE["indptr"].astype(np.uint64), 3, 2**63)}, "indptr: entry 3 is"),
    "an empty indptr": (DENSE, {"indptr": np.zeros(0, np.int64)}, "does not fit int32|indptr"),
    "classes negative": (DENSE, {"num_classes": np.array(-1)}, "num_classes: is -1"),
    "classes too few": (DENSE, {"num_classes": np.array(2)}, "num_classes: got 2, and entry 2 of y is class 2"),
    "a class below -1": (DENSE, {"y": changed(DENSE["y"], 4, -2)}, "y: row 4 holds -2"),
    "a feature is NaN": (DENSE, {"x": changed(DENSE["x"], (1, 1), np.nan)}, "features: row 1 is not finite"),
    "a feature beyond float32": (DENSE, {"x": changed(DENSE["x"].astype(float), (2, 1), 1e300)}, "features: row 2 is not finite"),
    "features dense and sparse": (THIN, {"x": DENSE["x"]}, "x: there are dense features, and x_indptr"),
    "sparse row pointers fall": (THIN, {"x_indptr": changed(X.indptr, 5, 1)}, "features: row pointers"),
    "sparse row pointers of another graph": (THIN, {"x_indptr": X.indptr[:-1]}, "x: indptr must have 9 entries"),
    "a sparse column is out of range": (THIN, {"x_indices": changed(X.indices, 1, 9)}, "features: row .* names column 9"),
    "a sparse feature is infinite": (THIN, {"x_data": changed(X.values, 1, np.inf)}, "features: row .* holds inf"),
    "sparse values one short": (THIN, {"x_data": X.values[:-1]}, "x: values must be"),
    "a shape with one side": (THIN, {"x_shape": np.array([8])}, r"x_shape: is \[8\]"),
    "a negative shape": (THIN, {"x_shape": np.array([8, -2])}, r"x_shape: is \[8, -2\]"),
    "a shape beyond int32": (THIN, {"x_shape": np.array([8, 2**40])}, "x_shape"),
    "a shape of another graph": (THIN, {"x_shape": np.array([9, 2])}, "x: indptr must have 10 entries"),
    "splits overlap": (DENSE, {"val_mask": DENSE["train_mask"]}, "val mask: row 0"),
    "a mask as integers": (DENSE, {"val_mask": np.zeros(N, int)}, "val_mask: got int64"),
    "a weight is NaN": (DENSE, {"weights": changed(np.ones(11), 6, np.nan)}, "weight 6 is nan"),
    "a weight is negative": (DENSE, {"weights": changed(np.ones(11), 6, -1)}, "weight 6 is -1"),
    "a weight too few": (DENSE, {"weights": np.ones(10)}, "values must be"),
    "a column of another graph": (DENSE, {"year": np.zeros(3)}, "year must have 8 rows"),
    "a single number as a column": (DENSE, {"year": np.array(3)}, "year: must have 8 rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_npz(tmp_path, case):
    arrays, change, names = NPZ[case]
    kept = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    np.savez(tmp_path / "bad.npz", **kept)
    refused(rf"bad\.npz.*({names})", npz.read, tmp_path / "bad.npz")
    assert not UNPICKLED.exists()


def zipped(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


WHOLE = {f"{name}.npy": npy_bytes(np.asarray(array)) for name, array in DENSE.items()}
ARCHIVES = {
    "empty": lambda path: path.write_bytes(b""),
    "no zip": lambda path: path.write_bytes(b"\x80\x04" * 100),
    "a bare array": lambda path: path.write_bytes(npy_bytes(np.zeros(3))),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "no arrays": lambda path: zipped(path, {}),
    "a member that is no array": lambda path: zipped(path, {**WHOLE, "readme.txt": b"hello"}),
    "a member cut short": lambda path: zipped(path, {**WHOLE, "y.npy": WHOLE["y.npy"][:-8]}),
    "a member too long": lambda path: zipped(path, {**WHOLE, "y.npy": WHOLE["y.npy"] + b"\0"}),
    "a member promising too much": lambda path: zipped(path, {**WHOLE, "y.npy": WHOLE["y.npy"].replace(b"(8,), }       ", b"(8888888888,)}")}),
    "an unknown compression": lambda path: zipped(path, WHOLE, compression=zipfile.ZIP_LZMA),
    "two members of one name": lambda path: zipped(path, {**WHOLE, "y": WHOLE["y.npy"]}),
    "cut short": lambda path: (zipped(path, WHOLE), os.truncate(path, path.stat().st_size - 200)),
    "a flipped byte": lambda path: (zipped(path, WHOLE), path.write_bytes(path.read_bytes().replace(npy_bytes(DENSE["x"])[-16:], bytes(16), 1))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", ARCHIVES)
def test_npz_archive(tmp_path, case):
    ARCHIVES[case](tmp_path / "bad.npz")
    refused(r"bad\.npz", npz.read, tmp_path / "bad.npz")


# --- edge lists -----------------------------------------------------------------------------------------------

LISTS = {
    "one column": ("1\n2\n", {}, "line 1 has 1 column"),
    "one column later": ("# x\n1 2\n3\n", {}, "line 3 has 1 column"),
    "four columns": ("1 2 3 4\n", {}, r"line 1 has 4 column\(s\); use 2 or 3"),
    "a column too many": ("1 2\n1 2 3\n", {}, r"line 2 has 3 column\(s\); use 2"),
    "a column too few": ("1 2 0.5\n\n1 2\n", {}, r"line 3 has 2 column\(s\); use 3"),
    "tokens that only add up": ("1 2\n3\n4 5 6\n", {}, "line 2 has 1 column"),
    "a word": ("1 2\nfoo 3\n", {}, "line 2: 'foo'"),
    "a negative id": ("1 2\n3 -4\n", {}, "line 2: '-4'"),
    "a plus sign": ("+1 2\n", {}, r"line 1: '\+1'"),
    "a fraction": ("1 2.0\n", {}, r"line 1: '2\.0'"),
    "an exponent": ("1 2e3\n", {}, "line 1: '2e3'"),
    "hexadecimal": ("0x1 2\n", {}, "line 1: '0x1'"),
    "an underscore": ("1_0 2\n", {}, "line 1: '1_0'"),
    "NaN for an id": ("nan 2\n", {}, "line 1: 'nan'"),
    "an id beyond int64": ("1 9223372036854775808\n", {}, "line 1: '9223372036854775808'"),
    "an id of 20 digits": ("1 2\n12345678901234567890 1\n", {}, "line 2: '12345678901234567890'"),
    "an id of 100 digits": ("1 2\n" + "9" * 100 + " 1\n", {}, "line 2: '999"),
    "quotes that do not end": ('1,2\n"1,2\n', {}, "line 2: its quotes cannot be read"),
    "quotes between blanks": ('"1" "2"\n', {}, "line 1: '\"1\"'"),
    "a colon": ("1:2\n", {}, "line 1 has 1 column"),
    "a comment behind an edge": ("1 2 # x\n", {}, "line 1 has 4 column"),
    "a comment in another style": ("// x\n1 2\n", {}, "line 1: '//'"),
    "a NUL": ("1 2\n1\0 2\n", {}, "line 2: '1\\\\x00'"),
    "Unicode digits": ("1 ٣\n", {}, "line 1: '٣'"),
    "a mark of byte order in the middle": ("1 2\n\ufeff1 2\n", {}, r"line 2: '\\ufeff1'"),
    "a word for a weight": ("1 2 heavy\n", {}, "line 1: weight 'heavy'"),
    "a NaN weight": ("1 2 1\n1 2 nan\n", {}, "line 2: weight 'nan'"),
    "an infinite weight": ("1 2 inf\n", {}, "line 1: weight 'inf'"),
    "a weight that overflows": ("1 2 1e999\n", {}, "line 1: weight '1e999'"),
    "a negative weight": ("# x\n1 2 -0.5\n", {}, r"line 2: weight '-0\.5'"),
    "a weight with a comma in it": ("1\t2\t0,5\n", {}, "line 1 may have its columns separated by tabs or ','"),
    "a weight with a comma in it, between tabs": ("1\t2\t0,5\n", {"separator": "tab"}, "line 1: weight '0,5'"),
    "a self loop": ("1 2\n7 7\n", {"self_loops": "error"}, "edge 1 joins 7 with itself"),
    "a repetition": ("1 2\n1 2\n", {"duplicates": "error"}, "edge 1, from 1 to 2, was listed before"),
    "a weighted repetition": ("1 2 1\n1 2 3\n", {"duplicates": "error"}, "edge 1, from 1 to 2, was listed before"),
    "out of range": ("0 1\n1 2\n", {"vertices": 2}, "line 2: vertex 2 is out of range; use 0 to 1"),
    "out of no range": ("0 1\n", {"vertices": 0}, "line 1: vertex 0"),
    "an id of a million letters": ("a b\nc " + "d" * 10**6 + "\n", {"ids": "text"}, r"line 2: 'ddd.*'\.\.\. is longer than 256 bytes"),
    "text that is not UTF-8": (b"a \xff\xfe\n", {"ids": "text"}, "is not UTF-8"),
    "gzip cut short": (gzip.compress(b"1 2\n" * 1000)[:-9], {}, "cannot be read beyond line"),
    "gzip damaged": (gzip.compress(b"1 2\n" * 1000, mtime=0)[:20] + b"\0" * 20, {}, "cannot be read beyond line"),
    "gzip with a false sum": (gzip.compress(b"1 2\n")[:-8] + bytes(8), {}, "cannot be read beyond line"),
    "gzip of nothing": (b"\x1f\x8b", {}, "cannot be read beyond line"),
    "a binary file": (bytes(range(128, 256)) * 10, {}, "line 1 has 1 column"),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTS)
def test_edge_list(tmp_path, case):
    content, options, names = LISTS[case]
    path = tmp_path / "bad.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(rf"bad\.txt: {names}" if "UTF" not in names else names, edgelist.read, path, **options)


@pytest.mark.parametrize("read", [edgelist.read, matrixmarket.read, npz.read])
@pytest.mark.parametrize("damage", [os.mkfifo, os.mkdir, lambda path: None])
def test_no_file_to_read(tmp_path, read, damage):
    damage(tmp_path / "bad.x")
    refused(r"bad\.x", read, tmp_path / "bad.x")


# --- Matrix Market --------------------------------------------------------------------------------------------

BANNER = "%%MatrixMarket matrix coordinate"
MATRICES = {
    "empty": ("", "line 1 is no header"),
    "no banner": ("3 3 1\n1 1\n", "line 1 is no header"),
    "half a banner": ("%%MatrixMarket matrix coordinate\n1 1 0\n", "line 1 is no header"),
    "a vector": ("%%MatrixMarket vector coordinate real general\n3 1\n1 1\n", "line 1 is no header"),
    "a dense matrix": ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", "line 1 says 'array'"),
    "complex numbers": (f"{BANNER} complex general\n2 2 1\n1 2 1 0\n", "line 1 says 'complex'"),
    "Hermitian": (f"{BANNER} real hermitian\n2 2 1\n2 1 1\n", "line 1 says 'hermitian'"),
    "skew-symmetric": (f"{BANNER} real skew-symmetric\n2 2 1\n2 1 1\n", "line 1 says 'skew-symmetric'"),
    "an unknown field": (f"{BANNER} quaternion general\n2 2 1\n1 2\n", "line 1 says 'quaternion'"),
    "no sizes": (f"{BANNER} pattern general\n% nothing follows\n", "line 3 must give rows, columns and entries"),
    "two sizes": (f"{BANNER} pattern general\n3 3\n1 2\n", "line 2 must give"),
    "a negative size": (f"{BANNER} pattern general\n-3 3 1\n1 2\n", "line 2 must give"),
    "a word for a size": (f"{BANNER} pattern general\n3 three 1\n1 2\n", "line 2 must give"),
    "a size of 30 digits": (f"{BANNER} pattern general\n{'9' * 30} 3 1\n1 2\n", "line 2 must give"),
    "not square": (f"{BANNER} pattern general\n3 4 1\n1 2\n", "must be square"),
    "sides beyond int32": (f"{BANNER} pattern general\n{2**31} {2**31} 1\n1 2\n", "do not fit int32"),
    "promises 10**15 entries": (f"{BANNER} pattern general\n3 3 1000000000000000\n1 2\n", "line 2 promises 1000000000000000 entries; the file has 1"),
    "promises 2e9 vertices": (
        f"{BANNER} pattern general\n2000000000 2000000000 1\n1 2\n", "line 2 promises 2000000000 vertices; a file of 77 bytes may have at most 16777216",
    ),
    "promises one more": (f"{BANNER} pattern general\n3 3 2\n1 2\n", "line 2 promises 2 entries; the file has 1"),
    "promises one less": (f"{BANNER} pattern general\n3 3 1\n1 2\n2 3\n", "line 2 promises 1 entries; the file has 2"),
    "a row out of range": (f"{BANNER} pattern general\n3 3 1\n4 1\n", "line 3: 4 is no row or column; use 1 to 3"),
    "a column out of range": (f"{BANNER} pattern general\n3 3 1\n1 4\n", "line 3: 4 is no row"),
    "row zero": (f"{BANNER} pattern general\n3 3 1\n0 1\n", "line 3: 0 is no row"),
    "a negative row": (f"{BANNER} pattern general\n3 3 1\n-1 1\n", "line 3: '-1'"),
    "a word for a row": (f"{BANNER} pattern general\n3 3 1\nx 1\n", "line 3: 'x'"),
    "a line without a column": (f"{BANNER} pattern general\n3 3 2\n1\n1 2\n", "line 3"),
    "an entry without a weight": (f"{BANNER} real general\n3 3 1\n1 2\n", "line 3"),
    "a word for a weight": (f"{BANNER} real general\n3 3 1\n1 2 x\n", "line 3"),
    "a NaN weight": (f"{BANNER} real general\n3 3 2\n1 2 1\n1 3 nan\n", "line 4: weight 'nan'"),
    "an infinite weight": (f"{BANNER} real general\n3 3 2\n1 2 1\n1 3 inf\n", "line 4: weight 'inf'"),
    "a negative weight": (f"{BANNER} real general\n3 3 2\n1 2 1\n1 3 -2\n", "line 4: weight '-2'"),
    "a negative integer weight": (f"{BANNER} integer symmetric\n3 3 1\n2 1 -2\n", "line 3: weight '-2'"),
    "a weight beyond float64": (f"{BANNER} integer general\n3 3 1\n2 1 1{'0' * 200}e200\n", "line 3: weight"),
    "a weight of 400 digits": (f"{BANNER} integer general\n3 3 1\n2 1 1{'0' * 400}\n", "line 3: '1000.* is longer than 256 bytes"),
    "row beyond 64 bits": (f"{BANNER} pattern general\n3 3 1\n{2**70} 1\n", "line 3: '1180591620717411303424'"),
    "a binary file": (b"\x00\xff" * 50, "line 1 is no header"),
    "gzip cut short": (gzip.compress(f"{BANNER} pattern general\n3 3 1\n1 2\n".encode())[:-20], "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", MATRICES)
def test_matrix_market(tmp_path, case):
    content, names = MATRICES[case]
    path = tmp_path / "bad.mtx"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(rf"bad\.mtx: .*{names}", matrixmarket.read, path)


def test_a_false_number_of_vertices_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("bulksample.data.edges._memory_bytes", lambda: 10**7)
    (tmp_path / "bad.mtx").write_text(f"{BANNER} pattern general\n10000000 10000000 1\n1 2\n")
    refused("row pointers of 10000000 vertices take 80000008 bytes; this machine has 10000000", matrixmarket.read, tmp_path / "bad.mtx")


# --- OGB ------------------------------------------------------------------------------------------------------

LAST = "split/sales_ranking"
CSVS = {
    "no raw folder": (lambda r: shutil.rmtree(r / "raw"), "has no folder raw"),
    **{f"no {name}": (lambda r, name=name: (r / "raw" / name).unlink(), name) for name in ("edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz")},
    **{f"no {name}": (lambda r, name=name: (r / LAST / name).unlink(), name) for name in ("train.csv.gz", "valid.csv.gz", "test.csv.gz")},
    **{f"{name} cut short": (lambda r, name=name: os.truncate(r / "raw" / name, 25), name) for name in ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "node_year.csv.gz")},
    **{f"{name} not gzip": (lambda r, name=name: (r / "raw" / name).write_text("a,b\n"), name) for name in ("node-feat.csv.gz", "node-label.csv.gz", "edge.csv.gz")},
    "an edge out of range": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1]] * 4 + [[6, 0]]), "edge 4 names source 6; vertices run from 0 to 5"),
    "a negative edge": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1]] * 4 + [[-1, 0]]), r"edge\.csv\.gz: line 5: '-1'"),
    "an edge of three": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1, 2]] * 5), r"edge\.csv\.gz: line 1 has 3 column\(s\); use 2"),
    "an edge that is no integer": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1.5]] * 5), r"edge\.csv\.gz: line 1: '0\.0'"),
    "an edge too few": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1]] * 4), r"edge\.csv\.gz: has 4 edges; num-edge-list\.csv\.gz says 5"),
    "two graphs": (lambda r: gz(r / "raw/num-node-list.csv.gz", [3, 3]), r"num-node-list\.csv\.gz: lists 2 graphs"),
    "no graph": (lambda r: gz(r / "raw/num-node-list.csv.gz", []), r"num-node-list\.csv\.gz: lists 0 graphs"),
    "vertices beyond int32": (lambda r: gz(r / "raw/num-node-list.csv.gz", [2**31]), "do not fit int32"),
    "a vertex too many": (lambda r: gz(r / "raw/num-node-list.csv.gz", [7]), r"node-feat\.csv\.gz: has 6 rows; num-node-list\.csv\.gz says 7"),
    "a feature is a word": (lambda r: gz(r / "raw/node-feat.csv.gz", [[1, "x"]] * 6), r"node-feat\.csv\.gz: could not convert string 'x'"),
    "a feature is NaN": (lambda r: gz(r / "raw/node-feat.csv.gz", [[1, 2]] * 5 + [[1, "nan"]]), "features: row 5 is not finite"),
    "a feature beyond float32": (lambda r: gz(r / "raw/node-feat.csv.gz", [[1, 2]] * 5 + [[1, "1e300"]]), "features: row 5 is not finite"),
    "rows of two lengths": (lambda r: gz(r / "raw/node-feat.csv.gz", [[1, 2]] * 5 + [[1]]), r"node-feat\.csv\.gz: .*columns"),
    "a label too few": (lambda r: gz(r / "raw/node-label.csv.gz", [0] * 5), r"node-label\.csv\.gz: has 5 rows"),
    "a label is a fraction": (lambda r: gz(r / "raw/node-label.csv.gz", [0, 0, 0.5, 0, 0, 0]), r"node-label: row 2 holds 0\.5"),
    "a label is infinite": (lambda r: gz(r / "raw/node-label.csv.gz", [0, 0, "inf", 0, 0, 0]), "node-label: row 2 holds inf"),
    "a label is negative": (lambda r: gz(r / "raw/node-label.csv.gz", [0, 0, -3, 0, 0, 0]), r"node-label: row 2 holds -3"),
    "a split out of range": (lambda r: gz(r / LAST / "test.csv.gz", [6]), r"sales_ranking/test\.csv\.gz: entry 0 is 6; vertices run from 0 to 5"),
    "a split has a blank line": (lambda r: gz(r / LAST / "test.csv.gz", ["", 3]), r"test\.csv\.gz: line 1 holds no number; use 1 in every line"),
    "a blank line among edges": (lambda r: gz(r / "raw/edge.csv.gz", [[0, 1]] * 2 + [[""]] + [[0, 1]] * 3), r"edge\.csv\.gz: line 3 holds no number"),
    "a split is a word": (lambda r: gz(r / LAST / "test.csv.gz", ["x"]), r"test\.csv\.gz: line 1: 'x'"),
    "splits overlap": (lambda r: gz(r / LAST / "test.csv.gz", [0]), "test mask: row 0 is in another split too"),
    "a column too long": (lambda r: gz(r / "raw/node_year.csv.gz", [1] * 7), r"node_year\.csv\.gz: has 7 rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", CSVS)
def test_ogb_csv(tmp_path, case):
    damage, names = CSVS[case]
    root = write_csv(tmp_path / "ogbn_arxiv")
    damage(root)
    refused(names, ogb.read, root)


BINARIES = {
    "one row of edges": ({"edge_index": np.zeros((1, 5), int)}, "data.npz: edge_index: is int64 of shape"),
    "edges as float": ({"edge_index": np.zeros((2, 5))}, "data.npz: edge_index: is float64"),
    "an edge too few": ({"edge_index": np.zeros((2, 4), int)}, "data.npz: edge_index"),
    "an edge out of range": ({"edge_index": np.full((2, 5), 6)}, "edge 0 names source 6"),
    "a negative edge": ({"edge_index": np.full((2, 5), -1)}, "edge 0 names source -1"),
    "two graphs": ({"num_nodes_list": np.array([3, 3])}, "data.npz: num_nodes_list: must be the size of one graph"),
    "a size as float": ({"num_edges_list": np.array([5.0])}, "data.npz: num_edges_list"),
    "a negative size": ({"num_nodes_list": np.array([-6])}, "data.npz: num_nodes_list"),
    "a vertex too many": ({"num_nodes_list": np.array([7])}, "data.npz: node_feat: must have 7 rows"),
    "features as text": ({"node_feat": np.full((6, 2), "a")}, "data.npz: node_feat: is <U1"),
    "features as a vector": ({"node_feat": np.zeros(6)}, "data.npz: node_feat: is float64 of shape"),
    "features of objects": ({"node_feat": np.array([[Bomb()]] * 6)}, "data.npz: node_feat: holds '.O'"),
    "a feature is NaN": ({"node_feat": np.full((6, 2), np.nan, np.float16)}, "features: row 0 is not finite"),
    "a year too few": ({"node_year": np.zeros(5)}, "data.npz: node_year: must have 6 rows"),
    "a single number": ({"node_year": np.array(5)}, "data.npz: node_year: must have 6 rows"),
}


@pytest.mark.parametrize("case", BINARIES)
def test_ogb_binary(tmp_path, case):
    change, names = BINARIES[case]
    root = write_binary(tmp_path / "ogbn_papers100M", **change)
    refused(names, ogb.read, root)
    refused(names, ogb.read, root, scratch=tmp_path)


@pytest.mark.parametrize(
    "labels", [np.zeros((5, 1)), np.full((6, 1), "a"), np.zeros((6, 1, 1)), np.full((6, 1), 0.5), np.full(6, -2), np.full(6, np.inf)]
)
def test_ogb_binary_labels(tmp_path, labels):
    root = write_binary(tmp_path / "ogbn_papers100M")
    np.savez(root / "raw" / "node-label.npz", node_label=labels)
    refused("node-label", ogb.read, root)


@pytest.mark.parametrize("file", ["data.npz", "node-label.npz"])
def test_ogb_binary_file_is_damaged(tmp_path, file):
    root = write_binary(tmp_path / "ogbn_papers100M")
    os.truncate(root / "raw" / file, (root / "raw" / file).stat().st_size // 2)
    refused(re.escape(file), ogb.read, root)


def test_ogb_mapped_features_are_checked_too(tmp_path):
    root = write_binary(tmp_path / "ogbn_papers100M")
    with np.load(root / "raw" / "data.npz") as loaded:
        arrays = dict(loaded)
    np.savez(root / "raw" / "data.npz", **arrays)
    data = (root / "raw" / "data.npz").read_bytes()
    last = arrays["node_feat"].tobytes()[-8:]
    (root / "raw" / "data.npz").write_bytes(data.replace(last, bytes(8), 1))
    refused("data.npz: node_feat: cannot be read: [Bb]ad CRC-32", ogb.read, root, scratch=tmp_path)
