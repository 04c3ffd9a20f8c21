"""The store of a heterogeneous graph: what goes in comes out, mapped; and any damage is refused by name."""

# ruff: noqa: E501 (a case is a line)

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import test_malformed_stores as plain
from hetero_samples import assert_same_hetero, small_hetero
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import changed, drop, edit_manifest, npy_bytes, put, refused, replace_array, small_graph
from sweeps import SWEEP, sweep
from test_malformed import mutated, survives
from test_store import _is_mapped

import bulksample as bs
from bulksample import Graph, UsageError, VertexType, relation_from_edges
from bulksample.data import store
from bulksample.data.describe import describe

GRAPH, SPARSE = small_hetero(), small_hetero(sparse=True)
WRITES = GRAPH.relation("writes")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("hetero")
    for name, graph in (("dense", GRAPH), ("sparse", SPARSE)):
        graph.save(root / name)
    return root


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("check", ["auto", "full", "none"])
def test_what_goes_in_comes_out(tmp_path, sparse, check):
    graph = small_hetero(sparse)
    graph.save(tmp_path / "g")
    found = bs.load(tmp_path / "g", check=check)
    assert_same_hetero(found, graph)
    assert all(_is_mapped(array) for array in (found.relations[0].adjacency.indices, found.relations[0].times, found.types[0].labels))
    assert not found.relations[0].times.flags.writeable
    store.verify(tmp_path / "g")


@st.composite
def graphs(draw):
    counts = draw(st.lists(st.integers(0, 4), min_size=0, max_size=3))
    stamps = st.integers(-(2**63), 2**63 - 1)
    types = [
        VertexType(
            draw(st.text(max_size=3)) + str(i),
            n,
            times=np.array(draw(st.lists(stamps, min_size=n, max_size=n)), np.int64) if draw(st.booleans()) else None,
            extra={"k": np.arange(n)},
        )
        for i, n in enumerate(counts)
    ]
    relations = []
    for i in range(draw(st.integers(0, 3)) if types else 0):
        source, destination = draw(st.sampled_from(types)), draw(st.sampled_from(types))
        full = source.count and destination.count
        ends = st.tuples(st.integers(0, max(source.count - 1, 0)), st.integers(0, max(destination.count - 1, 0)))
        edges = np.array(draw(st.lists(ends, max_size=8)) if full else [], np.int64).reshape(-1, 2)
        weights = np.linspace(0, 1, len(edges)) if draw(st.booleans()) else None
        relations.append(relation_from_edges(source, f"r{i}", destination, edges[:, 0], edges[:, 1], weights=weights))
    return Graph.of(tuple(types), tuple(relations), draw(st.text(max_size=5)))


@pytest.mark.long
@settings(max_examples=15)
@given(graph=graphs())
def test_any_graph_comes_out_as_it_went_in(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("any") / "g"
    graph.save(folder)
    assert_same_hetero(bs.load(folder, check="full"), graph)


def test_structure_without_features(tmp_path):
    for name, graph in (("d", GRAPH), ("s", SPARSE)):
        graph.save(tmp_path / name)
        for file in [*(tmp_path / name).glob("types_0_features*"), *(tmp_path / name).glob("*edge_features*")]:
            file.unlink()
        found = bs.load(tmp_path / name, features=False, check="full")
        assert found.type("paper").features is None
        assert found.relation("writes").features is None
        np.testing.assert_array_equal(found.type("paper").extra["features"], np.arange(5))
        refused("features", bs.load, tmp_path / name)


def test_one_graph_has_one_digest(tmp_path):
    first, second = (store.save(small_hetero(), tmp_path / name) for name in "ab")
    assert first.digest == second.digest == store.info(tmp_path / "b")["digest"]
    assert first.digest != store.save(small_hetero(True), tmp_path / "c").digest


def test_a_relation_without_parallel_edges_stays_one(folders, tmp_path):
    GRAPH.replace(relations=(WRITES, *(replace(one, parallel=False) for one in GRAPH.relations[1:]))).save(tmp_path / "g")
    assert [one.parallel for one in bs.load(tmp_path / "g").relations] == [True, False, False]
    for folder, written in ((folders / "dense", [None] * 3), (tmp_path / "g", [None, False, False])):
        body = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        assert [one.get("parallel") for one in body["relations"]] == written


def test_info_reads_no_array_and_prints_the_schema(folders, tmp_path):
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    for file in folder.glob("*.npy"):
        file.write_bytes(b"\0" * file.stat().st_size)
    info = store.info(folder)
    assert (info["vertices"], info["edges"], list(info["types"])) == (8, 8, ["paper", "field of study"])
    assert info["types"]["paper"] == {
        "vertices": 5, "features": 2, "feature_kind": "float32", "classes": 3, "target": "class", "splits": ["train", "test"],
        "times": True, "extra": ["venue", "features"],
    }  # fmt: skip
    assert info["relations"] == {
        "field of study writes paper": {"edges": 5, "weighted": True, "times": True, "edge_features": 1},
        "paper written by field of study": {"edges": 3, "weighted": False, "times": False, "edge_features": 0},
        "paper cites paper": {"edges": 0, "weighted": False, "times": False, "edge_features": 0},
    }


def test_statistics_count_times_and_vertices_without_edges(folders):
    graph = bs.load(folders / "dense")
    found = describe(graph, store.info(folders / "dense"))
    assert found["types"]["paper"]["isolated"] == 2  # papers 2 and 4
    assert found["types"]["field of study"]["isolated"] == 0
    assert (found["types"]["paper"]["first_time"], found["types"]["paper"]["last_time"]) == (-(2**63), 2**63 - 1)
    assert found["types"]["paper"]["split_sizes"] == {"train": 1, "test": 2}
    writes = found["relations"]["field of study writes paper"]
    assert (writes["first_time"], writes["last_time"], writes["degree_mean"], writes["degree_max"]) == (5, 9, 1.0, 3)
    assert (writes["parallel_edges"], writes["destinations_without_edge"], writes["sources_without_edge"]) == (1, 2, 0)
    cites = found["relations"]["paper cites paper"]
    assert (cites["parallel_edges"], cites["destinations_without_edge"], cites["degree_max"]) == (0, 5, 0)
    assert "first_time" not in cites


def test_a_taken_place_is_refused_and_a_store_of_the_other_kind_replaced(tmp_path):
    small_graph().save(tmp_path / "g")
    with pytest.raises(UsageError, match="exists already"):
        GRAPH.save(tmp_path / "g")
    GRAPH.save(tmp_path / "g", overwrite=True)
    assert_same_hetero(bs.load(tmp_path / "g"), GRAPH)
    bad = Graph.of((VertexType("a", 1, extra={"x/y": np.zeros(1)}),))
    refused("type 'a'|column 'x/y'", bad.save, tmp_path / "h")
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


# --- damage ---------------------------------------------------------------------------------------------------

FILES = {
    role: f"{role.replace('.', '_')}.npy"
    for role in (
        "types.0.features", "types.0.labels", "types.0.times", "types.0.mask.train", "types.0.extra.venue", "relations.0.indptr",
        "relations.0.indices", "relations.0.weights", "relations.0.times", "relations.0.edge_ids", "relations.0.edge_features",
    )
}  # fmt: skip


def test_every_role_is_damaged_below(folders):
    roles = set(json.loads((folders / "dense" / "manifest.json").read_text())["arrays"])
    assert {re.sub(r"\.\d\.", ".", role) for role in roles} - {re.sub(r"\.\d\.", ".", role) for role in FILES} == {
        "types.mask.test", "types.extra.features",
    }  # fmt: skip


@pytest.mark.parametrize("role", FILES)
@pytest.mark.parametrize("damage", plain.FILES)
def test_file(folders, tmp_path, role, damage):
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    damage(folder / FILES[role])
    for read in (bs.load, store.verify, store.info):
        refused(re.escape(FILES[role]), read, folder)


@pytest.mark.parametrize("role", FILES)
def test_flipped_byte(folders, tmp_path, role):
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    data = bytearray((folder / FILES[role]).read_bytes())
    data[-1] ^= 1
    (folder / FILES[role]).write_bytes(data)
    for read in (store.verify, bs.load):  # a copy is a new file, whose hash nothing remembers
        refused(rf"{re.escape(FILES[role])}: is damaged: sha256 expected [0-9a-f]{{64}}, found [0-9a-f]{{64}}", read, folder)


def of(group, place, **fields):
    return lambda body: body[group][place].update(fields)


def role(name, **fields):
    return lambda body: body["arrays"][name].update(fields)


def renamed(old, new):
    return lambda body: body["arrays"].update({new: body["arrays"].pop(old)})


MANIFESTS = {
    **{f"without {key}": (drop(key), key) for key in ("name", "types", "relations", "arrays")},
    **{f"version {version!r}": (put("version", version), "version") for version in (0, 2, "1", None)},
    "a field nobody knows": (put("pickle", ""), "pickle"),
    "another number of vertices": (of("types", 0, vertices=6), r"arrays\.types\.0\.\w+: shape"),
    "vertices beyond int32": (of("types", 0, vertices=2**31), r"types\.0\.vertices"),
    "vertices together beyond int32": (of("types", 1, vertices=2**31 - 2), "shape|do not fit int32"),
    "a negative count": (of("relations", 0, edges=-1), r"relations\.0\.edges"),
    "another number of edges": (of("relations", 0, edges=6), r"arrays\.relations\.0\.indices: shape"),
    "another end": (of("relations", 0, destination="field of study"), r"arrays\.relations\.0\.indptr: shape"),
    "an end that is no type": (of("relations", 1, source="papers"), r"relations\.1: there is no type 'papers'"),
    "two types of one name": (of("types", 1, name="paper"), "types: two have one name|there is no type"),
    "two relations of one name": (of("relations", 2, name="writes", source="field of study"), "two relations|shape"),
    "too few classes": (of("types", 0, num_classes=2), "type 'paper': labels: row 2"),
    "features of nothing": (of("types", 1, num_features=3), r"types\.1: num_features is 3"),
    "a unit of no weights": (of("relations", 1, weight_unit=0.5), r"relations\.1: weight_unit is 0\.5"),
    "no adjacency": (lambda b: b["arrays"].pop("relations.2.indices") and None, r"arrays\.relations\.2\.indices: is missing"),
    **{
        f"role {new}": (renamed("types.0.times", new), re.escape(f"arrays.{new}: is not a role"))
        for new in ("types.2.times", "types.00.times", "types.-1.times", "types.x.times", "types.times", "times", "relations.0.labels", "types.0.indptr", "kinds.0.times")
    },
    "dates as times": (role("types.0.times", dtype="<M8[s]"), r"arrays\.types\.0\.times: dtype"),
    "floats as times": (role("relations.0.times", dtype="<f8"), r"arrays\.relations\.0\.times: dtype"),
    "int32 times": (role("relations.0.times", dtype="<i4"), r"arrays\.relations\.0\.times: dtype"),
    "a file elsewhere": (role("types.0.times", file="../x.npy"), r"arrays\.types\.0\.times: file"),
    "a shared file": (role("types.0.times", file="types_0_labels.npy"), "is also the file of"),
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifest(folders, tmp_path, case):
    change, names = MANIFESTS[case]
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    edit_manifest(folder, change)
    refused(names, bs.load, folder)
    refused(names, store.verify, folder)


def test_an_edit_without_a_new_digest_is_found(folders, tmp_path):
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    edit_manifest(folder, put("name", "other"), sign=False)
    refused(r"manifest\.json: was changed", store.info, folder)


A = WRITES.adjacency
CONTENTS = {
    "row pointers fall": ("relations.0.indptr", changed(A.indptr, 2, 0), r"relation field of study:writes:paper: adjacency: row pointers must not fall"),
    "row pointers end early": ("relations.0.indptr", changed(A.indptr, -1, 4), "indptr must run from 0"),
    "a column is out of range": ("relations.0.indices", changed(A.indices, -1, 3), "writes.*names column 3; columns run from 0 to 2"),
    "columns do not ascend": ("relations.0.indices", changed(A.indices, [2, 4], [1, 0]), "writes.*does not ascend"),
    "a weight is negative": ("relations.0.weights", changed(A.values, 0, -1), "writes.*weights: row 0 holds -1"),
    "an edge feature is NaN": ("relations.0.edge_features", changed(WRITES.features, 1, np.nan), "writes.*edge features: row 1"),
    "a class too high": ("types.0.labels", changed(GRAPH.types[0].labels, 1, 3), "type 'paper': labels: row 1 holds 3"),
    "two splits overlap": ("types.0.mask.test", np.ones(5, bool), "type 'paper': test mask"),
    "a boolean is neither": ("types.0.mask.test", changed(np.zeros(5, np.uint8), 3, 7).view(bool), r"types_0_mask_test\.npy: entry 3"),
    "a feature is infinite": ("types.0.features", changed(GRAPH.types[0].features, (3, 1), np.inf), "type 'paper': features: row 3 is not finite"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTENTS)
def test_content(folders, tmp_path, case):
    name, array, words = CONTENTS[case]
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    replace_array(folder, name, array)
    refused(words, store.verify, folder)
    if "features" not in name:  # entries of dense features are looked at by the full check alone
        refused(words, bs.load, folder)


@pytest.mark.parametrize("array", [np.zeros(5), np.zeros(5, np.int32), np.zeros((5, 1), np.int64), np.zeros(4, np.int64)])
def test_other_times_than_the_manifest_says(folders, tmp_path, array):
    folder = shutil.copytree(folders / "dense", tmp_path / "g")
    replace_array(folder, "types.0.times", npy_bytes(array))
    refused(r"types_0_times\.npy", bs.load, folder)


@sweep(("turn", "rounds"), [(0, 2), *((turn, 12 * SWEEP) for turn in range(1, 8))])
def test_random_damage_whose_sums_agree(folders, tmp_path, monkeypatch, turn, rounds):
    """Damage under correct checksums: a `DataError` or a valid graph, never another exception and never a signal."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    rng = np.random.default_rng(9 + turn)
    refusals = total = 0
    for kind in ("dense", "sparse"):
        folder = shutil.copytree(folders / kind, tmp_path / kind)
        text = (folder / "manifest.json").read_text()
        for name, part in json.loads(text)["arrays"].items():
            whole = (folder / part["file"]).read_bytes()
            for _ in range(rounds):
                replace_array(folder, name, mutated(whole, rng))
                refusals += survives(store.load, folder, True, "full")
                total += 1
            (folder / part["file"]).write_bytes(whole)
            (folder / "manifest.json").write_text(text)
    assert refusals > total / 2
