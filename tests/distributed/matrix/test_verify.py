"""Ranks share the hashing of a store: each file is read by one rank, and what one of them finds is raised by all."""

import os
import shutil
import threading
from time import time_ns
from types import SimpleNamespace

import numpy as np
import pytest
from communities import community_graph
from waiting import PATIENCE

from bulksample import DataError, UsageError
from bulksample.data import store, store_files
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import verify
from bulksample.distributed.matrix.verify import verify_together

_AN_HOUR_LATER = time_ns() + 3600 * 10**9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store whose files were written a while ago, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store_files.time, "time_ns", lambda: _AN_HOUR_LATER)
    store.save(community_graph(n=60), tmp_path / "g")
    _age(tmp_path / "g")
    return tmp_path / "g"


@pytest.fixture
def hashed(monkeypatch):
    """(thread, path) of each file that was read to be hashed."""
    found, real = [], store_files.pieces_of

    def noted(path):
        found.append((threading.get_ident(), path))
        return real(path)

    monkeypatch.setattr(store_files, "pieces_of", noted)
    return found


def _age(folder):
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))


def _damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9))


def messages(ranks, directory_of, check="auto"):
    """The message of each rank's `DataError`; empty where there is none."""

    def call(comm):
        try:
            verify_together(directory_of(comm.rank), comm, check)
        except DataError as error:
            return str(error)
        return ""

    return on_threads(ranks, call)


def test_each_file_is_hashed_by_one_rank_and_then_not_again(folder, hashed):
    assert messages(3, lambda rank: folder) == [""] * 3
    files = sorted(folder.glob("*.npy"))
    assert sorted(path for _, path in hashed) == files
    by_rank = {thread: [path for other, path in hashed if other == thread] for thread, _ in hashed}
    assert len(by_rank) == 3
    largest = max(files, key=lambda path: path.stat().st_size)
    assert [largest] in by_rank.values()  # the smaller ones go to the others
    hashed.clear()
    assert messages(3, lambda rank: folder) == [""] * 3
    assert hashed == []
    assert messages(2, lambda rank: folder, "full") == [""] * 2
    assert sorted(path for _, path in hashed) == files


def test_no_hash_is_checked_if_none_is_asked_for(folder, hashed):
    _damage(folder / "features.npy")
    assert messages(2, lambda rank: folder, "none") == [""] * 2
    assert hashed == []


@pytest.mark.parametrize("names", [["features.npy"], ["indices.npy", "labels.npy"]])
def test_all_ranks_raise_together_and_name_each_file(folder, names):
    for name in names:
        _damage(folder / name)
    found = messages(4, lambda rank: folder)
    assert len(set(found)) == 1
    assert len(found[0].splitlines()) == len(names)
    for name in names:
        assert f"g/{name}: is damaged: sha256 expected" in found[0]


def test_copies_of_several_machines_are_hashed_each(folder, tmp_path, hashed):
    """Ranks 0 and 1 share a copy, 2 and 3 another one, which alone is damaged."""
    shutil.copytree(folder, tmp_path / "copy" / "g")
    _age(tmp_path / "copy" / "g")
    _damage(tmp_path / "copy" / "g" / "features.npy")
    found = messages(4, lambda rank: folder if rank < 2 else tmp_path / "copy" / "g")
    assert len(set(found)) == 1
    assert "g/features.npy: is damaged" in found[0]
    assert sorted(path for _, path in hashed) == sorted([*folder.glob("*.npy"), *(tmp_path / "copy" / "g").glob("*.npy")])


def test_a_rank_without_a_store_stops_all(folder, tmp_path):
    found = messages(2, lambda rank: folder if rank else tmp_path / "nowhere")
    assert len(set(found)) == 1
    assert "there is no such folder" in found[0]


def test_a_missing_file_is_named(folder):
    (folder / "labels.npy").unlink()
    found = messages(2, lambda rank: folder)
    assert found == ["g/labels.npy: cannot be read: No such file or directory"] * 2


def test_hashing_longer_than_the_deadline_loses_no_rank(folder, monkeypatch):
    """By a clock that the test sets, the features take two deadlines; the rank that hashes them meets the other several times in each."""
    real, now, met = store_files.pieces_of, [0.0], [0.0]

    def slow(path):
        if path.name == "features.npy":
            for _ in range(40):
                now[0] += PATIENCE / 20
                yield b""
        yield from real(path)

    def rank(comm):
        gather = comm.gather_control

        def noted(*given):
            met.append(now[0])
            return gather(*given)

        comm.gather_control = noted
        verify_together(folder, comm)
        assert comm.timeout == PATIENCE

    monkeypatch.setattr(store_files, "pieces_of", slow)
    monkeypatch.setattr(verify, "time", SimpleNamespace(monotonic=lambda: now[0]))
    on_threads(2, rank, timeout=PATIENCE)
    assert max(met) == pytest.approx(2 * PATIENCE)
    assert np.diff(met).max() <= PATIENCE / 5


def test_a_file_that_settles_while_it_is_read_is_remembered_by_no_rank(folder, hashed, monkeypatch):
    """It may have changed after its first bytes were read, within one tick of the clock that its mark counts in."""
    now, read = [max(path.stat().st_ctime_ns for path in folder.iterdir()) + 10**6], store_files.pieces_of
    looked, both = set(), threading.Barrier(2, timeout=PATIENCE)
    monkeypatch.setattr(store_files.time, "time_ns", lambda: now[0])

    def slow(path):
        if threading.get_ident() not in looked:
            looked.add(threading.get_ident())
            both.wait()  # for the other rank to look at the clock
        yield from read(path)
        now[0] = _AN_HOUR_LATER

    with monkeypatch.context() as slowly:
        slowly.setattr(store_files, "pieces_of", slow)
        messages(2, lambda rank: folder)
    first = set(dict(reversed(hashed)).values())  # of each rank
    hashed.clear()
    assert messages(2, lambda rank: folder) == [""] * 2
    assert first <= {path for _, path in hashed}


def test_one_rank_of_a_machine_writes_the_cache(folder, monkeypatch):
    wrote, real = [], store_files.write_file
    monkeypatch.setattr(store_files, "write_file", lambda path, text: (wrote.append(path), real(path, text)))
    messages(4, lambda rank: folder)
    assert len(wrote) == 1
    assert set(store_files.known_sums(folder)) == {path.name for path in folder.glob("*.npy")}


def test_an_unknown_check_is_bad_use(folder):
    with pytest.raises(UsageError, match="use auto, full, none"):
        on_threads(2, lambda comm: verify_together(folder, comm, "fast"))
