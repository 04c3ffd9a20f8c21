"""The `.npz` format, on the published sets beside the project and on small files made here."""

import hashlib
import re

import numpy as np
import pytest
from samples import SHARED, as_arrays, assert_same, small_graph

from bulksample import DataError
from bulksample.data import npz, store

SETS = sorted(path.stem for path in SHARED.glob("*.npz")) or ["none"]


def published():
    """{name: (vertices, edges, features, classes, train, val, test)} of the table in the README of the sets."""
    row = re.compile(r"\| `([\w-]+)` \| ([\d,]+) \| ([\d,]+) \| [^|]*\| ([\d,]+) (?:sparse|dense)[^|]*\| (\d+|\W) \| ([^|]*) \|")
    figures = {}
    for name, *numbers, split in row.findall((SHARED / "README.md").read_text()):
        vertices, edges, features, classes = (int(re.sub(r"\D", "", number) or 0) for number in numbers)
        sizes = [int(size.replace(",", "")) for size in split.split("/")] if "/" in split else [0, 0, 0]
        figures[name] = (vertices, edges, features, classes, *sizes)
    return figures


@pytest.mark.parametrize("name", SETS)
def test_published_sets_have_their_published_figures(name, tmp_path):
    if name == "none":
        pytest.skip(f"the published sets are not beside the project, at {SHARED}")
    graph = npz.read(SHARED / f"{name}.npz")
    sizes = [int(graph.masks[split].sum()) if split in graph.masks else 0 for split in ("train", "val", "test")]
    found = (graph.n, graph.adjacency.nnz, graph.num_features, graph.num_classes, *sizes)
    assert found == published()[name]
    assert sorted(graph.extra) == (["y_area", "year"] if name == "confpapers" else [])
    if graph.adjacency.nnz < 10**6:
        store.save(graph, tmp_path / "g")
        assert_same(store.load(tmp_path / "g", check="full"), graph)


def test_the_sets_are_those_of_the_table():
    if SETS == ["none"]:
        pytest.skip(f"the published sets are not beside the project, at {SHARED}")
    sums = re.findall(r"([0-9a-f]{64})  ([\w-]+\.npz)", (SHARED / "README.md").read_text())
    assert {file: hashlib.sha256((SHARED / file).read_bytes()).hexdigest() for _, file in sums} == {file: total for total, file in sums}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_every_array_is_read(tmp_path, sparse, compressed):
    graph = small_graph(weighted=False, sparse=sparse)
    arrays = as_arrays(graph)
    (np.savez_compressed if compressed else np.savez)(tmp_path / "small.npz", **arrays)
    assert_same(npz.read(tmp_path / "small.npz"), graph)


def test_other_widths_are_taken_where_values_fit(tmp_path):
    arrays = as_arrays(small_graph(weighted=False))
    wide = {"indptr": np.uint16, "indices": np.int64, "y": np.int8, "x": np.float64}
    np.savez(tmp_path / "small.npz", **{name: array.astype(wide.get(name, array.dtype)) for name, array in arrays.items()})
    assert_same(npz.read(tmp_path / "small.npz"), small_graph(weighted=False))


def test_weights_become_integers(tmp_path):
    arrays = as_arrays(small_graph(weighted=False))
    weights = np.linspace(0, 3, 11)
    np.savez(tmp_path / "w.npz", **arrays, weights=weights)
    graph = npz.read(tmp_path / "w.npz")
    np.testing.assert_allclose(graph.adjacency.values * graph.weight_unit, weights, rtol=2**-40)


def test_half_precision_and_bare_structure(tmp_path):
    arrays = as_arrays(small_graph(weighted=False))
    np.savez(tmp_path / "half.npz", **{**arrays, "x": arrays["x"].astype(np.float16)})
    assert npz.read(tmp_path / "half.npz").features.dtype == np.float16
    np.savez(tmp_path / "bare.npz", indptr=arrays["indptr"], indices=arrays["indices"])
    bare = npz.read(tmp_path / "bare.npz")
    assert (bare.features, bare.labels, bare.masks, bare.num_classes, bare.name) == (None, None, {}, 0, "bare")


def test_the_number_of_classes_may_be_left_out(tmp_path):
    arrays = as_arrays(small_graph(weighted=False))
    del arrays["num_classes"]
    np.savez(tmp_path / "g.npz", **arrays)
    assert npz.read(tmp_path / "g.npz").num_classes == 3


def test_a_missing_file_is_bad_data(tmp_path):
    with pytest.raises(DataError, match=r"gone\.npz"):
        npz.read(tmp_path / "gone.npz")
