"""Small graphs to store, and ways to damage what is stored of them."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bulksample import CSR, DataError, Graph
from bulksample.sparse import fixed_point

N, CLASSES = 8, 3
UNPICKLED = Path("/tmp/bulksample-unpickled")
SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"


def small_graph(weighted: bool = True, sparse: bool = False) -> Graph:
    """Eight vertices with everything a graph may have; vertex 7 is isolated and has no label."""
    rows = np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 6])
    columns = np.array([1, 2, 3, 0, 4, 0, 0, 1, 6, 5, 2])
    adjacency = CSR.from_edges(rows, columns, (N, N))
    unit = 1.0
    if weighted:
        integers, unit = fixed_point(np.linspace(0.5, 2.0, adjacency.nnz), 4)
        adjacency = adjacency.with_values(integers)
    dense = np.arange(N * 2, dtype=np.float32).reshape(N, 2) / 8
    features = CSR.from_scipy(np.where(dense > 0.5, dense, 0).astype(np.float32)) if sparse else dense
    masks = {name: np.isin(np.arange(N), members) for name, members in (("train", [0, 1]), ("val", [2]), ("test", [3, 4]))}
    extra = {"year": np.arange(N, dtype=np.int16), "original_ids": np.array([f"id{i}" for i in range(N)])}
    labels = np.array([0, 1, 2, 0, 1, 2, 0, -1])
    return Graph(adjacency, unit, features, labels, CLASSES, masks, extra, "small")


def assert_same(found: Graph, expected: Graph) -> None:
    """Every array of two graphs is equal, dtype and all."""
    pairs = {"indptr": "indptr", "indices": "indices", "values": "values"}
    for name in pairs:
        _same(getattr(found.adjacency, name), getattr(expected.adjacency, name), name)
    assert type(found.features) is type(expected.features) or isinstance(found.features, np.ndarray)
    if isinstance(expected.features, CSR):
        for name in pairs:
            _same(getattr(found.features, name), getattr(expected.features, name), f"features {name}")
        assert found.features.shape == expected.features.shape
    else:
        _same(found.features, expected.features, "features")
    _same(found.labels, expected.labels, "labels")
    for one, other in ((found.masks, expected.masks), (found.extra, expected.extra)):
        assert sorted(one) == sorted(other)
        for name in one:
            _same(one[name], other[name], name)
    assert (found.name, found.num_classes, found.weight_unit) == (expected.name, expected.num_classes, expected.weight_unit)


def _same(found, expected, what):
    assert (found is None) == (expected is None), what
    if expected is not None:
        assert found.dtype == expected.dtype, what
        np.testing.assert_array_equal(found, expected, err_msg=what)


def digest(graph: Graph) -> str:
    """sha256 over every array of a graph, in order of name."""
    total = hashlib.sha256()
    arrays = {"indptr": graph.adjacency.indptr, "indices": graph.adjacency.indices, "x": graph.features, "y": graph.labels}
    arrays |= {**graph.masks, **graph.extra}
    for name, array in sorted(arrays.items()):
        if array is not None:
            total.update(name.encode() + str(array.dtype.str).encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def npy_bytes(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    """A `.npy` file; arrays of objects are pickled, as an attacker would."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=True)
    return stream.getvalue()


def edit_manifest(folder: Path, change, sign: bool = True) -> None:
    """Apply `change` to the manifest as a dict; with `sign` its digest becomes right again."""
    path = folder / "manifest.json"
    body = json.loads(path.read_text())
    body = change(body) or body
    if sign:
        sign_manifest(body)
    path.write_text(json.dumps(body))


def sign_manifest(body: dict) -> None:
    """Give a manifest the digest that its content has."""
    body["digest"] = ""
    text = json.dumps({k: v for k, v in body.items() if k != "digest"}, sort_keys=True, separators=(",", ":"))
    body["digest"] = hashlib.sha256(text.encode()).hexdigest()


def replace_array(folder: Path, role: str, array: np.ndarray | bytes, agree: bool = True) -> None:
    """Put another array in the place of a role. With `agree` the manifest vouches for it: sums, size, dtype and shape."""
    file = json.loads((folder / "manifest.json").read_text())["arrays"][role]["file"]
    data = array if isinstance(array, bytes) else npy_bytes(array)
    (folder / file).write_bytes(data)

    def vouch(body):
        entry = body["arrays"][role]
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        if not isinstance(array, bytes):
            entry |= {"dtype": array.dtype.str, "shape": list(array.shape)}

    if agree:
        edit_manifest(folder, vouch)


def changed(array: np.ndarray, place, value) -> np.ndarray:
    """A copy with one entry replaced."""
    copy = np.array(array)
    copy[place] = value
    return copy


def unweighted(graph: Graph) -> Graph:
    return replace(graph, adjacency=graph.adjacency.with_values(None), weight_unit=1.0)


def refused(names, read, *arguments, **options):
    """Reading raises a `DataError` whose message names the place."""
    with pytest.raises(DataError, match=names):
        read(*arguments, **options)


def put(key, value):
    return lambda body: body.update({key: value})


def drop(key):
    return lambda body: body.pop(key) and None


def entry(role, **fields):
    return lambda body: body["arrays"][role].update(fields)


def drop_entry(role):
    return lambda body: body["arrays"].pop(role) and None


class Bomb:
    """Would say so if it were unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {UNPICKLED}",)


def as_arrays(graph):
    """A graph in the arrays of the format."""
    x = graph.features
    features = (
        {"x_indptr": x.indptr, "x_indices": x.indices, "x_data": x.values, "x_shape": np.array(x.shape)} if isinstance(x, CSR) else {"x": x}
    )
    masks = {f"{split}_mask": mask for split, mask in graph.masks.items()}
    return {
        "indptr": graph.adjacency.indptr, "indices": graph.adjacency.indices, "y": graph.labels,
        "num_classes": np.array(graph.num_classes), **features, **masks, **graph.extra,
    }  # fmt: skip
