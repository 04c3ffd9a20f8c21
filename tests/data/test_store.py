"""The store: what goes in comes out, it maps rather than copies, and it is there whole or not at all."""

import gc
import hashlib
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import assert_same, edit_manifest, small_graph, unweighted

from bulksample import CSR, DataError, Graph, UsageError
from bulksample.data import atomic, store
from bulksample.data.manifest import load_manifest


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("check", ["auto", "full", "none"])
def test_what_goes_in_comes_out(tmp_path, weighted, sparse, check):
    graph = small_graph(weighted, sparse)
    store.save(graph, tmp_path / "g")
    assert_same(store.load(tmp_path / "g", check=check), graph)
    store.verify(tmp_path / "g")


@given(data=st.data())
def test_any_graph_comes_out_as_it_went_in(tmp_path_factory, data):
    n = data.draw(st.integers(0, 12))
    ends = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30)) if n else []
    rows, columns = np.array(ends, np.int64).reshape(-1, 2).T
    f = data.draw(st.integers(0, 3))
    half = data.draw(st.booleans())
    graph = Graph(
        CSR.from_edges(rows, columns, (n, n)),
        features=np.arange(n * f, dtype=np.float16 if half else np.float32).reshape(n, f),
        labels=np.arange(n) % 3 - 1,
        num_classes=2,
        extra={"weights.of-2": np.linspace(0, 1, n), "bits": np.ones((n, 2, 1), bool)},
    )
    folder = tmp_path_factory.mktemp("any") / "g"
    store.save(graph, folder)
    assert_same(store.load(folder, check="full"), graph)


def test_arrays_stay_in_the_file(tmp_path):
    store.save(small_graph(), tmp_path / "g")
    graph = store.load(tmp_path / "g")
    for array in (graph.adjacency.indptr, graph.adjacency.indices, graph.adjacency.values, graph.features, graph.labels):
        assert _is_mapped(array)
        assert not array.flags.writeable


def _is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_structure_without_features(tmp_path):
    for sparse in (False, True):
        folder = tmp_path / f"g{sparse}"
        store.save(small_graph(sparse=sparse), folder)
        for file in folder.glob("features*.npy"):
            file.unlink()
        graph = store.load(folder, features=False, check="full")
        assert graph.features is None
        assert graph.adjacency.nnz == 11
        with pytest.raises(DataError, match="features"):
            store.load(folder)


def test_one_graph_has_one_digest(tmp_path):
    first, second = (store.save(small_graph(), tmp_path / name) for name in "ab")
    other = store.save(replace(small_graph(), name="other"), tmp_path / "c")
    assert first.digest == second.digest == load_manifest(tmp_path / "a").digest != other.digest


def test_info_reads_no_array(tmp_path):
    store.save(small_graph(sparse=True), tmp_path / "g")
    for file in (tmp_path / "g").glob("*.npy"):
        file.write_bytes(b"\0" * file.stat().st_size)
    info = store.info(tmp_path / "g")
    assert (info["vertices"], info["edges"], info["features"], info["feature_kind"], info["classes"]) == (8, 11, 2, "sparse", 3)
    assert info["splits"] == ["train", "val", "test"]
    assert info["extra"] == ["year", "original_ids"]


def test_a_taken_place_is_refused(tmp_path):
    graph = small_graph()
    store.save(graph, tmp_path / "g")
    with pytest.raises(UsageError, match="exists already"):
        store.save(graph, tmp_path / "g")
    store.save(unweighted(graph), tmp_path / "g", overwrite=True)
    assert store.load(tmp_path / "g").adjacency.values is None
    (tmp_path / "home").mkdir()
    store.save(graph, tmp_path / "home")  # an empty folder is free
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("...")
    with pytest.raises(UsageError, match="not a store"):
        store.save(graph, tmp_path / "precious", overwrite=True)
    with pytest.raises(UsageError, match="not a store"):
        store.save(graph, tmp_path / "precious" / "thesis.tex", overwrite=True)
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "..."


def test_parents_are_made_and_a_relative_path_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.save(small_graph(), "a/b/g")
    assert_same(store.load("a/b/g"), small_graph())
    monkeypatch.chdir(tmp_path / "a")
    assert_same(store.load("b/g"), small_graph())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failure_at_any_step_leaves_the_old_store_or_none(tmp_path, monkeypatch, overwrite):
    """Every fsync, rename and write fails once; what can be seen is a whole store, or nothing."""
    target, new = tmp_path / "g", unweighted(small_graph())
    steps = 0
    while True:
        if overwrite:
            store.save(small_graph(), target, overwrite=True)
        with monkeypatch.context() as patch:
            counter = _fail_at(patch, steps)
            try:
                store.save(new, target, overwrite=overwrite)
            except UsageError as error:
                assert "No space left" in str(error)  # noqa: PT017
            if counter() <= steps:
                break
        if target.exists():
            found = store.load(target, check="full")
            assert_same(found, new if found.adjacency.values is None else small_graph())
        else:
            assert not overwrite
        assert [path.name for path in tmp_path.iterdir()] in ([], ["g"]), "something was left behind"
        if not overwrite and target.exists():  # the last steps come after the rename
            break
        steps += 1
    assert steps > 12


def _fail_at(patch, step):
    """Let the step-th call that writes raise ENOSPC, counting from 0; returns the number of calls made."""
    calls = 0

    def wrap(function):
        def wrapped(*args, **options):
            nonlocal calls
            calls += 1
            if calls == step + 1:
                raise OSError(28, "No space left on device")
            return function(*args, **options)

        return wrapped

    for module, name in ((os, "fsync"), (os, "rename"), (store, "write_npy"), (atomic, "sync_folder")):
        patch.setattr(module, name, wrap(getattr(module, name)))
    return lambda: calls


def test_an_unfit_graph_is_never_written(tmp_path):
    graph = small_graph()
    broken = replace(graph, labels=np.full(8, 7))
    path, objects = replace(graph, extra={"../up": np.zeros(8)}), replace(graph, extra={"objects": np.full(8, None)})
    for bad, why in ((broken, "labels: row 0 holds 7"), (path, "'../up' cannot be a file name"), (objects, "'objects' holds object")):
        with pytest.raises(DataError, match=why):
            store.save(bad, tmp_path / "g")
    assert not list(tmp_path.iterdir())


def test_verify_names_every_damaged_file_and_both_sums(tmp_path):
    store.save(small_graph(), tmp_path / "g")
    flipped, short = tmp_path / "g" / "labels.npy", tmp_path / "g" / "indices.npy"
    data = bytearray(flipped.read_bytes())
    data[-9] ^= 1
    flipped.write_bytes(data)
    short.write_bytes(short.read_bytes()[:-4])
    expected = load_manifest(tmp_path / "g").arrays
    with pytest.raises(DataError, match=r"labels\.npy: is") as caught:
        store.verify(tmp_path / "g")
    message = str(caught.value)
    for file, role in ((flipped, "labels"), (short, "indices")):
        assert f"{file.name}: is" in message
        assert expected[role].sha256 in message
        assert hashlib.sha256(file.read_bytes()).hexdigest() in message
    assert "truncated: the manifest says 172 bytes, the file has 168" in message


def test_every_flipped_byte_is_found(tmp_path):
    folder = tmp_path / "g"
    store.save(small_graph(), folder)
    missed = []
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for place in range(0, len(whole), 1 if path.suffix == ".json" else 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << (place % 8)
            path.write_bytes(damaged)
            try:
                store.verify(folder)
                missed.append((path.name, place))
            except DataError:
                pass
        path.write_bytes(whole)
    assert not missed
    store.verify(folder)


def test_every_truncation_is_found(tmp_path):
    folder = tmp_path / "g"
    store.save(small_graph(), folder)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for length in {0, 1, 6, 10, len(whole) // 2, len(whole) - 1} - {len(whole)}:
            path.write_bytes(whole[:length])
            if path.suffix == ".json" and whole[length:] == b"\n":
                continue  # nothing but the last line end is gone
            with pytest.raises(DataError, match=path.name):
                store.load(folder)
        path.write_bytes(whole)


def test_a_later_version_is_refused(tmp_path):
    store.save(small_graph(), tmp_path / "g")
    edit_manifest(tmp_path / "g", lambda body: body.update(version=2))
    with pytest.raises(DataError, match="got version 2; this release reads 1: write the store again"):
        store.load(tmp_path / "g")


def test_an_unknown_check_is_bad_use(tmp_path):
    store.save(small_graph(), tmp_path / "g")
    with pytest.raises(UsageError, match="auto, full, none"):
        store.load(tmp_path / "g", check="fast")


def test_threads_open_stores_at_once(tmp_path):
    """Also where the collector of garbage lets another thread in while a header is parsed."""
    graph = small_graph()
    store.save(graph, tmp_path / "g")

    def another_thread(*_):
        return [None for _ in range(50)]

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    gc.callbacks.append(another_thread)
    try:
        with ThreadPoolExecutor(4) as threads:
            opened = list(threads.map(lambda _: store.load(tmp_path / "g"), range(60)))
    finally:
        gc.callbacks.remove(another_thread)
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    for found in opened:
        assert_same(found, graph)


def test_a_store_is_completed_beside_its_folder_so_it_must_be_writable_there(tmp_path, monkeypatch):
    """An empty folder can be writable while the one above it is not; nothing can be renamed over a mount point."""
    (tmp_path / "g").mkdir()
    probed, real = [], tempfile.TemporaryFile

    def probe(dir):
        probed.append(dir)
        if dir == tmp_path:
            raise PermissionError(13, "Permission denied")
        return real(dir=dir)

    with monkeypatch.context() as unwritable:
        unwritable.setattr(tempfile, "TemporaryFile", probe)
        with pytest.raises(UsageError, match=rf"cannot write {tmp_path}/g\.new: Permission denied"):
            store.check_target(tmp_path / "g")
    assert probed == [tmp_path]
    store.check_target(tmp_path / "g")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path / "g")
    with pytest.raises(UsageError, match="g is a mount point, which no new folder can replace; use a folder in it"):
        store.check_target(tmp_path / "g")


def test_a_missing_store_whose_writer_was_killed_on_another_host_is_named(tmp_path):
    """It is put back ten minutes later; until then the message says where it is."""
    old = tmp_path / ".g.bulksample-old-1-1-00000000-0123abcd"
    store.save(small_graph(), old)
    (tmp_path / ".h.bulksample-old-1-1-00000000-0123abcd").mkdir()
    with pytest.raises(DataError, match=rf"g: there is no such folder; .* the old store is at {old}: run the command again 10 minutes"):
        store.load(tmp_path / "g")
    with pytest.raises(DataError, match=r"i: there is no such folder; a graph is the folder of a store, which .* writes$"):
        store.load(tmp_path / "i")
