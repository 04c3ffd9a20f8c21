"""Stores that are wrong, in hundreds of ways: each is refused by name.

Every case damages a store that reads well, and says what the message must name.
"""

# ruff: noqa: E501 (a case is a line)

import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from samples import UNPICKLED, Bomb, N, changed, drop, drop_entry, edit_manifest, entry, npy_bytes, put, refused, replace_array, small_graph

from bulksample import CSR
from bulksample.data import store
from bulksample.sparse import fixed_point

GRAPH, SPARSE = small_graph(), small_graph(sparse=True)
A, X = GRAPH.adjacency, SPARSE.features

# --- the manifest ---------------------------------------------------------------------------------------------


FIELDS = ("name", "vertices", "edges", "weight_unit", "num_features", "num_classes", "arrays")
MANIFESTS = {
    **{f"without {key}": (drop(key), key) for key in FIELDS},
    **{f"{key} is null": (put(key, None), key) for key in FIELDS},
    **{f"{key} is text": (put(key, "7"), key) for key in FIELDS if key != "name"},
    **{f"{key} is a list": (put(key, [7]), key) for key in FIELDS},
    **{f"{key} is negative": (put(key, -1), key) for key in ("vertices", "edges", "weight_unit", "num_features", "num_classes")},
    **{f"{key} is a fraction": (put(key, 2.5), key) for key in ("vertices", "edges", "num_features", "num_classes")},
    **{f"{key} is true": (put(key, True), key) for key in ("vertices", "edges", "weight_unit", "num_features", "num_classes")},
    **{f"{key} is beyond 64 bits": (put(key, 2**64), key) for key in ("vertices", "edges", "num_features", "num_classes")},
    **{f"version {version!r}": (put("version", version), "version") for version in (0, 2, -1, "1", 1.0, True, None, [1])},
    **{f"format {name!r}": (put("format", name), "format") for name in ("", "zarr", None, 1)},
    "vertices beyond int32": (put("vertices", 2**31), "vertices"),
    "weight_unit is zero": (put("weight_unit", 0.0), "weight_unit"),
    "name is a number": (put("name", 3), "name"),
    "a field nobody knows": (put("pickle", "gASVAAAA"), "pickle"),
    "another number of vertices": (put("vertices", N + 1), r"arrays\.\w+: shape"),
    "another number of edges": (put("edges", 10), r"arrays\.indices: shape"),
    "another number of features": (put("num_features", 3), r"arrays\.features: shape"),
    "too few classes": (put("num_classes", 2), "labels: row 2"),
    **{f"no {role}": (drop_entry(role), role) for role in ("indptr", "indices")},
    "a unit of no weights": (lambda b: b["arrays"].pop("weights") and b.update(weight_unit=0.5), "weight_unit is 0.5, but there is no array"),
    "no features but a number of them": (drop_entry("features"), "num_features is 2"),
    "a role nobody knows": (lambda b: b["arrays"].update(edge_attr=b["arrays"]["labels"]), r"arrays\.edge_attr"),
    "a split nobody knows": (lambda b: b["arrays"].update({"mask.dev": b["arrays"]["mask.val"]}), r"arrays\.mask\.dev"),
    "an extra column named as a path": (lambda b: b["arrays"].update({"extra.../up": b["arrays"]["labels"]}), r"arrays\.extra\.\.\./up"),
    "an extra column without a name": (lambda b: b["arrays"].update({"extra.": b["arrays"]["labels"]}), r"arrays\.extra\."),
    **{
        f"file {name!r}": (entry("labels", file=name), r"arrays\.labels: file")
        for name in ("../labels.npy", "/etc/passwd", "sub/labels.npy", ".hidden.npy", "labels.txt", "", "a\\b.npy", "labels.npy\0", "..npy", "~x.npy")
    },
    "two roles share a file": (entry("labels", file="indptr.npy"), "is also the file of indptr"),
    "a file that is not there": (entry("labels", file="gone.npy"), r"gone\.npy"),
    **{f"entry without {key}": (lambda b, key=key: b["arrays"]["labels"].pop(key) and None, rf"arrays\.labels\.{key}") for key in ("file", "dtype", "shape", "bytes", "sha256")},
    **{
        f"{role} said to be {dtype}": (entry(role, dtype=dtype), rf"arrays\.{role}: dtype")
        for role, dtype in (
            ("indptr", "<i4"), ("indices", "<i8"), ("indices", "<u4"), ("weights", "<f8"), ("weights", ">i8"), ("features", "<f8"),
            ("labels", "<i4"), ("mask.train", "|u1"), ("extra.year", "|O"), ("extra.year", "O"), ("extra.year", "nonsense"),
            ("extra.year", "<M8[s]"), ("extra.year", "<U99999999"), ("labels", ""),
        )
    },
    **{f"{role} said to have shape {shape}": (entry(role, shape=shape), rf"arrays\.{role}") for role, shape in (
        ("indptr", [N]), ("indptr", []), ("indptr", [N + 1, 1]), ("labels", [N - 1]), ("features", [2, N]), ("features", [2 * N]),
        ("mask.train", [0]), ("extra.year", []), ("extra.year", [N + 1]), ("labels", [-8]), ("labels", ["8"]), ("labels", 8), ("extra.year", [N, 2**62]),
    )},
    "a size that cannot hold the array": (entry("labels", bytes=10), r"arrays\.labels: 10 bytes"),
    "another size": (entry("labels", bytes=193), r"labels\.npy: is truncated"),
    "a smaller size": (entry("features", bytes=100), r"features\.npy: is too long"),
    "a negative size": (entry("labels", bytes=-1), r"arrays\.labels\.bytes"),
    **{f"sha256 {value!r}": (entry("labels", sha256=value), r"arrays\.labels\.sha256") for value in ("", "ab", "G" * 64, "A" * 64, 7)},
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifest(stores, tmp_path, case):
    change, names = MANIFESTS[case]
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    edit_manifest(folder, change)
    refused(names, store.load, folder)
    refused(names, store.verify, folder)


@pytest.mark.parametrize("key", [*FIELDS, "digest"])
def test_an_edit_without_a_new_digest_is_found(stores, tmp_path, key):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    values = {"name": "other", "arrays": {}, "digest": "0" * 64, "weight_unit": 2.0}
    edit_manifest(folder, put(key, values.get(key, 1)), sign=False)
    refused(r"manifest\.json: was changed", store.info, folder)


TEXTS = {
    "empty": b"", "not JSON": b"vertices: 8", "an array": b"[]", "a number": b"1", "null": b"null", "half": b'{"format": "bulksample store"',
    "bytes": b"\xff\xfe\x00", "deep": b"[" * 100_000, "a pickle": b"\x80\x04N.", "an empty object": b"{}",
    "NaN": b'{"format": "bulksample store", "version": 1, "weight_unit": NaN}', "many digits": b'{"version": ' + b"9" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_manifest_text(stores, tmp_path, case):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    (folder / "manifest.json").write_bytes(TEXTS[case])
    for read in (store.load, store.info, store.verify):
        refused(r"manifest\.json", read, folder)


def test_no_store(tmp_path):
    refused("there is no such folder", store.load, tmp_path / "gone")
    refused(r"is not a store: it has no manifest\.json", store.load, tmp_path)
    (tmp_path / "file").write_text("x")
    refused("file: is a file, not the folder of a store", store.load, tmp_path / "file")
    (tmp_path / "manifest.json").mkdir()
    refused("manifest.json: is not a regular file", store.load, tmp_path)


# --- the files of a store -------------------------------------------------------------------------------------

ROLES = {
    "indptr": "indptr.npy", "indices": "indices.npy", "weights": "weights.npy", "features": "features.npy", "labels": "labels.npy",
    "mask.train": "mask_train.npy", "extra.year": "extra_year.npy", "extra.original_ids": "extra_original_ids.npy",
}  # fmt: skip


def gone(path):
    path.unlink()


def emptied(path):
    path.write_bytes(b"")


def halved(path):
    os.truncate(path, path.stat().st_size // 2)


def lengthened(path):
    path.write_bytes(path.read_bytes() + b"\0")


def folder_instead(path):
    path.unlink()
    path.mkdir()


def pipe_instead(path):
    path.unlink()
    os.mkfifo(path)


def link_out(path):
    outside = path.parent.parent / "outside.npy"
    shutil.move(path, outside)
    path.symlink_to(outside)


def dead_link(path):
    path.unlink()
    path.symlink_to(path.parent / "nowhere.npy")


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


FILES = (gone, emptied, halved, lengthened, folder_instead, pipe_instead, link_out, dead_link, link_to_itself)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("damage", FILES)
def test_file(stores, tmp_path, role, damage):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    damage(folder / ROLES[role])
    refused(re.escape(ROLES[role]), store.load, folder)
    refused(re.escape(ROLES[role]), store.verify, folder)
    refused(re.escape(ROLES[role]), store.info, folder)


@pytest.mark.parametrize("role", ROLES)
def test_flipped_byte(stores, tmp_path, role):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    path = folder / ROLES[role]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(rf"{re.escape(ROLES[role])}: is damaged: sha256 expected [0-9a-f]{{64}}, found [0-9a-f]{{64}}", store.verify, folder)


HEADERS = {
    "pickled objects": npy_bytes(np.array([Bomb()] * N)),
    "no magic": b"PK\x03\x04" + bytes(188),
    "nothing but magic": b"\x93NUMPY\x01\x00".ljust(64, b" "),
    "no end": b"\x93NUMPY\x01\x00\x36\x00" + b"{'descr': '<i8', 'shape': (8,".ljust(118),
    "a header of signs": b"\x93NUMPY\x01\x00\x28\x23" + b"-" * 8999 + b"1" + bytes(64),
    "no shape": b"\x93NUMPY\x01\x00\x36\x00" + b"{'descr': '<i8', 'fortran_order': False}".ljust(53) + b"\n" + bytes(64),
    "a type of no size": b"\x93NUMPY\x01\x00\x76\x00"
    + b"{'descr': '<f7', 'fortran_order': False, 'shape': (8,)}".ljust(117)
    + b"\n"
    + bytes(64),
    "a version to come": b"\x93NUMPY\x09\x00" + bytes(184),
    "a header that is no dict": b"\x93NUMPY\x01\x00\x36\x00" + b"[1, 2]".ljust(53) + b"\n" + bytes(64),
    "a header that is code": b"\x93NUMPY\x01\x00\x36\x00" + b"__import__('os').abort()".ljust(53) + b"\n" + bytes(64),
    "a header that goes deep": b"\x93NUMPY\x01\x00\xe8\x03" + b"(" * 999 + b"\n" + bytes(64),
    "a header longer than the file": b"\x93NUMPY\x01\x00\xff\xff{}".ljust(64),
    "a negative side": npy_bytes(np.zeros(N, np.int64)).replace(b"(8,)", b"(-8)").replace(b"(-8)", b"(-8,)", 1)[:-1],
    "a side that is no integer": npy_bytes(np.zeros(N, np.int64)).replace(b"(8,), ", b"(8.),", 1),
    "a shape beyond memory": npy_bytes(np.zeros(N, np.int64)).replace(b"(8,), }         ", b"(8, 9999999999),}", 1)[:-1],
    "records": npy_bytes(np.zeros(N, [("a", "<i4"), ("b", "<i4")])),
    "dates": npy_bytes(np.zeros(N, "<M8[s]")),
    "complex numbers": npy_bytes(np.zeros(N, np.complex64)),
}


@pytest.mark.parametrize("case", HEADERS)
def test_array_header(stores, tmp_path, case):
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    replace_array(folder, "labels", HEADERS[case])
    refused(r"labels\.npy", store.load, folder)
    assert not UNPICKLED.exists()


OTHERS = {
    "labels as float": ("labels", np.zeros(N)), "labels as int32": ("labels", np.zeros(N, np.int32)),
    "labels one short": ("labels", np.zeros(N - 1, np.int64)), "labels as a table": ("labels", np.zeros((N, 1), np.int64)),
    "indices as int64": ("indices", np.zeros(11, np.int64)), "indices as float": ("indices", np.zeros(11, np.float32)),
    "indptr as int32": ("indptr", np.zeros(N + 1, np.int32)), "indptr as big-endian": ("indptr", np.zeros(N + 1, ">i8")),
    "features as float64": ("features", np.zeros((N, 2))), "features as one row": ("features", np.zeros(2 * N, np.float32)),
    "features by columns": ("features", np.asfortranarray(np.zeros((N, 2), np.float32))),
    "mask as integers": ("mask.train", np.zeros(N, np.uint8)), "weights as float": ("weights", np.zeros(11)),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_another_array_than_the_manifest_says(stores, tmp_path, case):
    role, array = OTHERS[case]
    data = npy_bytes(array)
    folder = shutil.copytree(stores / "dense", tmp_path / "g")
    replace_array(folder, role, data)  # sums and sizes agree, dtype and shape are those of before
    refused(re.escape(ROLES[role]), store.load, folder)


# --- the content of a store whose sums all agree --------------------------------------------------------------

CONTENTS = {
    "row pointers fall": ("dense", "indptr", changed(A.indptr, 2, 1), "adjacency: row pointers must not fall: row 1"),
    "row pointers start late": ("dense", "indptr", changed(A.indptr, 0, 1), "indptr must run from 0"),
    "row pointers end early": ("dense", "indptr", changed(A.indptr, -1, 10), "indptr must run from 0 to the number of entries, 11"),
    "row pointers end late": ("dense", "indptr", changed(A.indptr, -1, 2**62), "indptr must run"),
    "a row pointer is negative": ("dense", "indptr", changed(A.indptr, 3, -5), "row pointers must not fall: row 2"),
    "a row pointer is huge": ("dense", "indptr", changed(A.indptr, 3, 2**63 - 1), "row pointers must not fall: row 3"),
    "a column is negative": ("dense", "indices", changed(A.indices, 0, -1), "adjacency: row 0 names column -1"),
    "a column is out of range": ("dense", "indices", changed(A.indices, 10, N), "adjacency: row 6 names column 8; columns run from 0 to 7"),
    "a column is far out of range": ("dense", "indices", changed(A.indices, 5, 2**31 - 1), "adjacency: row 2 names column 2147483647"),
    "columns do not ascend": ("dense", "indices", changed(A.indices, [0, 1], [2, 1]), "adjacency: row 0 does not ascend"),
    "a column repeats": ("dense", "indices", changed(A.indices, 1, 1), "adjacency: row 0 repeats"),
    "a weight is negative": ("dense", "weights", changed(A.values, 4, -1), "weights: row 1 holds -1"),
    "weights overflow a row": ("dense", "weights", changed(A.values, slice(0, 3), 2**62), "weights: those of row 0 add up to"),
    "weights overflow a column": ("dense", "weights", changed(A.values, [3, 5, 6], 2**61), "weights: those of column 0 add up to"),
    "a class too high": ("dense", "labels", changed(GRAPH.labels, 5, 3), "labels: row 5 holds 3; classes run from 0 to 2"),
    "a class too low": ("dense", "labels", changed(GRAPH.labels, 5, -2), "labels: row 5 holds -2"),
    "two splits overlap": ("dense", "mask.val", changed(GRAPH.masks["val"], 0, True), "val mask: row 0 is in another split too"),
    "a split without a label": ("dense", "mask.test", changed(GRAPH.masks["test"], 7, True), "test mask: row 7"),
    "a boolean is neither": ("dense", "mask.test", changed(GRAPH.masks["test"].view(np.uint8), 6, 7).view(bool), r"mask_test\.npy: entry 6"),
    "text is no text": ("dense", "extra.original_ids", changed(GRAPH.extra["original_ids"].view(np.uint32), 9, 0x110000).view("<U3"), r"extra_original_ids\.npy: entry 3"),
    "text has half a pair": ("dense", "extra.original_ids", changed(GRAPH.extra["original_ids"].view(np.uint32), 0, 0xD800).view("<U3"), r"extra_original_ids\.npy: entry 0"),
    "a feature is NaN": ("dense", "features", changed(GRAPH.features, (3, 1), np.nan), "features: row 3 is not finite"),
    "a feature is infinite": ("dense", "features", changed(GRAPH.features, (7, 0), -np.inf), "features: row 7 is not finite"),
    "half a feature is NaN": ("dense", "features", changed(GRAPH.features.astype(np.float16), (2, 0), np.nan), "features: row 2 is not finite"),
    "sparse row pointers fall": ("sparse", "features_indptr", changed(X.indptr, 5, 1), "features: row pointers must not fall"),
    "sparse row pointers end early": ("sparse", "features_indptr", changed(X.indptr, -1, 1), "indptr must run from 0"),
    "a sparse column is out of range": ("sparse", "features_indices", changed(X.indices, 0, 2), "features: row .* names column 2"),
    "a sparse column is negative": ("sparse", "features_indices", changed(X.indices, 0, -7), "features: row .* names column -7"),
    "sparse columns do not ascend": ("sparse", "features_indices", changed(X.indices, [1, 2], [1, 0]), "features: row .* (does not ascend|repeats)"),
    "a sparse feature is NaN": ("sparse", "features_values", changed(X.values, 0, np.nan), "features: row .* holds nan"),
    "a sparse feature is infinite": ("sparse", "features_values", changed(X.values, 4, np.inf), "features: row .* holds inf"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTENTS)
def test_content(stores, tmp_path, case):
    kind, role, array, names = CONTENTS[case]
    folder = shutil.copytree(stores / kind, tmp_path / "g")
    replace_array(folder, role, array)
    refused(names, store.verify, folder)
    if role != "features":  # entries of dense features are looked at by the full check alone
        refused(names, store.load, folder)


@pytest.mark.parametrize("part", ["features_indptr", "features_indices", "features_values"])
def test_a_part_of_sparse_features_is_missing(stores, tmp_path, part):
    folder = shutil.copytree(stores / "sparse", tmp_path / "g")
    edit_manifest(folder, drop_entry(part))
    refused(r"arrays\.features: must be one array, or the three", store.load, folder)


# --- graphs in memory -----------------------------------------------------------------------------------------

GRAPHS = {
    "not square": (lambda: replace(GRAPH, adjacency=CSR(A.indptr, A.indices, None, (N, N + 1))), "adjacency must be square"),
    "real weights": (lambda: replace(GRAPH, adjacency=A.with_values(np.ones(11))), "weights must be int64"),
    "a unit of NaN": (lambda: replace(GRAPH, weight_unit=float("nan")), "weight_unit"),
    "features of another graph": (lambda: replace(GRAPH, features=np.zeros((3, 2), np.float32)), "features must have 8 rows"),
    "integer features": (lambda: replace(GRAPH, features=np.zeros((N, 2), int)), "features must be float32 or float16"),
    "labels of another graph": (lambda: replace(GRAPH, labels=np.zeros(3, int)), "labels must be int64 of shape"),
    "a mask of another graph": (lambda: replace(GRAPH, masks={"train": np.zeros(3, bool)}), "train mask must be bool of shape"),
    "an unknown mask": (lambda: replace(GRAPH, masks={"dev": np.zeros(N, bool)}), "mask 'dev' is not a split"),
    "a column of another graph": (lambda: replace(GRAPH, extra={"year": np.zeros(3)}), "year must have 8 rows"),
    "objects": (lambda: replace(GRAPH, extra={"names": np.array([None] * N)}), "column 'names' holds object"),
    "a column that cannot be a file": (lambda: replace(GRAPH, extra={"a/b": np.zeros(N)}), "column 'a/b' cannot be a file name"),
    "columns unsorted": (lambda: replace(GRAPH, adjacency=CSR(A.indptr, A.indices[::-1].copy(), A.values, A.shape)), "adjacency: row 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", GRAPHS)
def test_graph_is_not_saved(tmp_path, case):
    build, names = GRAPHS[case]
    refused(names, store.save, build(), tmp_path / "g")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), -float("inf"), -1e-300])
def test_weights_that_are_none(weight):
    refused("weight 3 is", fixed_point, np.array([0.0, 1, 2, weight]), 4)
