"""A graph divided into parts: the same graph when put together, each part alone when opened, and never parts that do not fit."""

import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph

from bulksample import CSR, DataError, Graph, UsageError
from bulksample.data import parts_writer, store
from bulksample.data.manifest import load_manifest
from bulksample.data.manifest_file import FILE, signed
from bulksample.data.parts_manifest import graph_manifest, is_parts, load_part, load_parts
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.matrix.graph_block import load_block, load_edge_rows

GRAPHS = {"dense": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}, "half": {"half": True}}


def made(place, parts=4, **kind):
    """A store of 90 vertices and its parts, of which the third is empty; pieces of few rows."""
    graph = community_graph(n=90, **kind)
    rng = np.random.default_rng(1)
    graph = replace(graph, edge_features=rng.random((graph.adjacency.nnz, 3)).astype(np.float32)) if not kind else graph
    graph = replace(graph, extra={**graph.extra, "word": np.array([f"w{v}" for v in range(90)])})
    store.save(graph, place / "g")
    assignment = rng.choice([part for part in range(parts) if part != 2], 90).astype(np.int32)
    return assignment, write_parts(place / "g", place / "P", assignment, parts, "random", 1)


@pytest.fixture(params=sorted(GRAPHS))
def divided(request, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_writer, "_PIECE_ENTRIES", 13)
    monkeypatch.setattr(parts_writer, "_PIECE_BYTES", 256)
    return tmp_path, *made(tmp_path, **GRAPHS[request.param])


def arrays(graph):
    return store.arrays_of(graph)


def test_parts_put_together_are_the_graph(divided):
    place, _, manifest = divided
    whole, again = (arrays(store.load(place / name, check="full")) for name in ("g", "P"))
    assert whole.keys() == again.keys()
    for role, array in whole.items():
        assert array.dtype == again[role].dtype
        assert np.array_equal(array, again[role]), role
    assert graph_manifest(place / "P") == load_manifest(place / "g") == manifest.whole
    features, expected = store.load_features(place / "P"), store.load_features(place / "g")
    if isinstance(expected, CSR):
        features, expected = features.to_scipy().toarray(), expected.to_scipy().toarray()
    assert np.array_equal(features, expected)


def test_each_part_holds_the_rows_of_its_vertices(divided):
    place, assignment, manifest = divided
    graph, order = store.load(place / "g"), np.argsort(assignment, kind="stable")
    assert np.array_equal(np.load(place / "P/old_id.npy"), order)
    assert np.array_equal(np.load(place / "P/new_id.npy")[order], np.arange(90))
    for number, part in enumerate(manifest.parts):
        own, members = place / "P" / part.folder, np.flatnonzero(assignment == number)
        assert np.array_equal(np.load(own / "old_id.npy"), members)
        assert np.array_equal(np.load(own / "labels.npy"), graph.labels[members])
        assert np.array_equal(np.load(own / "indices.npy"), graph.adjacency.take(members).indices)
        assert np.array_equal(np.load(own / "first_entry.npy"), graph.adjacency.indptr[members])
        found = (part.vertices, part.entries, part.training_vertices, part.bytes)
        size = sum(path.stat().st_size for path in own.glob("*.npy"))
        assert found == (len(members), graph.adjacency.degrees[members].sum(), graph.masks["train"][members].sum(), size)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_part_is_opened_without_the_others(divided, number):
    place, assignment, manifest = divided
    members = np.flatnonzero(assignment == number)
    expected = load_block(place / "g", members)
    starts, features = load_edge_rows(place / "g", members)
    for other in {0, 1, 2, 3} - {number}:
        shutil.rmtree(place / "P" / manifest.parts[other].folder)
    block = load_block(place / "P", members)
    for got, hoped in ((block.adjacency, expected.adjacency), (block.features, expected.features)):
        for name in ("indptr", "indices", "values") if isinstance(got, CSR) else ():
            assert np.array_equal(getattr(got, name), getattr(hoped, name))
        assert isinstance(got, CSR) or np.array_equal(got, hoped)
    assert np.array_equal(block.labels, expected.labels)
    assert all(np.array_equal(block.masks[split], expected.masks[split]) for split in expected.masks)
    found = load_edge_rows(place / "P", members)
    assert np.array_equal(found[0], starts)
    assert features is None or np.array_equal(found[1], features)
    assert block.read_bytes <= 1.1 * (manifest.parts[number].bytes + 8 * len(members))


def test_rows_of_several_parts_come_in_the_order_of_ids(divided):
    place, _, _ = divided
    for vertices in (np.array([3, 4, 5, 40, 71]), np.arange(10, 60), np.array([], np.int32)):
        got, hoped = load_block(place / "P", vertices), load_block(place / "g", vertices)
        assert np.array_equal(got.adjacency.indices, hoped.adjacency.indices)
        assert np.array_equal(got.adjacency.indptr, hoped.adjacency.indptr)
        assert np.array_equal(got.adjacency.entries(), hoped.adjacency.entries())
        assert np.array_equal(got.labels, hoped.labels)


def test_a_store_many_times_the_pieces_is_divided_in_bounded_memory(tmp_path, monkeypatch):
    n, f = 20_000, 64
    rng = np.random.default_rng(0)
    graph = Graph(CSR.from_edges(rng.integers(0, n, 8 * n), rng.integers(0, n, 8 * n), (n, n)), features=rng.random((n, f), np.float32))
    size = sum(entry.bytes for entry in store.save(graph, tmp_path / "g").arrays.values())
    monkeypatch.setattr(parts_writer, "_PIECE_BYTES", 2**16)
    monkeypatch.setattr(parts_writer, "_PIECE_ENTRIES", 2**12)
    assignment = (np.arange(n) % 8).astype(np.int32)
    tracemalloc.start()
    try:
        write_parts(tmp_path / "g", tmp_path / "P", assignment, 8, "block")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 8 * peak


def test_damage_and_mixed_parts_are_named(tmp_path):
    _, manifest = made(tmp_path)
    second = write_parts(tmp_path / "g", tmp_path / "Q", (np.arange(90) % 4).astype(np.int32), 4, "block")
    shutil.rmtree(tmp_path / "P/part-00001")
    shutil.copytree(tmp_path / "Q/part-00001", tmp_path / "P/part-00001")
    with pytest.raises(DataError, match=r"part-00001/manifest.json: does not belong to P: its partition is .* copy all parts of one part"):
        store.load(tmp_path / "P")
    first = load_part(tmp_path / "Q", second, 0)
    for change, message in (
        ({"graph": "0" * 64}, "its graph is 0000"), ({"part": 3}, "its part is 3, not 0"), ({"entries": 1}, "its digest is"),
    ):  # fmt: skip
        (tmp_path / "Q/part-00000" / FILE).write_bytes(signed(first.model_copy(update=change)).dumps())
        with pytest.raises(DataError, match=message):
            store.load(tmp_path / "Q")
    (tmp_path / "Q/part-00000" / FILE).write_text(first.dumps().decode().replace('"version": 1', '"version": 2'))
    with pytest.raises(DataError, match=r"part-00000/manifest.json: got version 2; this release reads 1"):
        store.load(tmp_path / "Q")
    (tmp_path / "Q/part-00000" / FILE).write_bytes(first.dumps())
    assert store.verify(tmp_path / "Q") == manifest.whole
    labels = tmp_path / "Q/part-00002/labels.npy"
    data = bytearray(labels.read_bytes())
    data[-8] ^= 1
    labels.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"part-00002/labels.npy: is damaged: sha256 expected"):
        store.verify(tmp_path / "Q")
    shutil.rmtree(tmp_path / "Q/part-00003")
    with pytest.raises(DataError, match="there is no such folder"):
        store.info(tmp_path / "Q")


def test_a_table_that_does_not_fit_the_parts_is_noticed_without_hashes(tmp_path):
    assignment, _ = made(tmp_path)
    first, second = np.flatnonzero(assignment == 0)[:2]
    table = np.lib.format.open_memmap(tmp_path / "P/new_id.npy", "r+")
    table[[first, second]] = table[[second, first]]
    table.flush()
    with pytest.raises(DataError, match=r"part-00000/old_id.npy: does not fit P/new_id.npy"):
        load_block(tmp_path / "P", np.flatnonzero(assignment == 0))
    table[first] = 90
    table.flush()
    with pytest.raises(DataError, match="holds place 90; places end at 89"):
        load_block(tmp_path / "P", np.array([first]))


def test_rows_apart_whose_entries_overlap_are_noticed_without_hashes(tmp_path):
    """Row pointers are in range and no row is shorter than 0, but a row lies before the one that it follows."""
    made(tmp_path)
    pointers = np.lib.format.open_memmap(tmp_path / "g/indptr.npy", "r+")
    pointers[20:22] -= pointers[20] - pointers[3]
    pointers.flush()
    with pytest.raises(DataError, match=r"adjacency: row pointers run from .* must ascend"):
        load_block(tmp_path / "g", np.array([3, 20, 41]))


def test_parts_are_no_store_and_a_store_is_no_parts(tmp_path):
    made(tmp_path)
    assert (is_parts(tmp_path / "P"), is_parts(tmp_path / "g"), is_parts(tmp_path / "none")) == (True, False, False)
    with pytest.raises(UsageError, match="holds a graph divided into parts"):
        load_manifest(tmp_path / "P")
    with pytest.raises(DataError, match="is a whole store; use a folder of parts"):
        load_parts(tmp_path / "g")
    with pytest.raises(UsageError, match="P exists already"):
        write_parts(tmp_path / "g", tmp_path / "P", np.zeros(90, np.int32), 1, "block")
    with pytest.raises(UsageError, match="the partition is of 4 vertices"):
        write_parts(tmp_path / "g", tmp_path / "R", np.zeros(4, np.int32), 1, "block")


def test_parts_never_replace_the_store_they_are_read_from(tmp_path):
    assignment, _ = made(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "g")
    before = sorted(path.name for path in (tmp_path / "g").iterdir())
    for source, target in (("g", "g"), ("link", "g"), ("P/../g", "g")):
        with pytest.raises(UsageError, match="g holds the graph that is divided; write its parts to another folder"):
            write_parts(tmp_path / source, tmp_path / target, assignment, 4, "random", overwrite=True)
    shutil.copytree(tmp_path / "g", tmp_path / "P/g")  # a store inside the folder that its parts would replace
    with pytest.raises(UsageError, match="P holds the graph that is divided"):
        write_parts(tmp_path / "P/g", tmp_path / "P", assignment, 4, "random", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == before
