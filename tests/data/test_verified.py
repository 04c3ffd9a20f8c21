"""A store is hashed when it is first opened after it changed, and not again."""

import json
import os
from time import time_ns

import numpy as np
import pytest
from samples import edit_manifest, small_graph
from waiting import until

from bulksample import DataError
from bulksample.data import store, store_files


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bulksample" / "verified"


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands an hour ahead of that of the file system, so that files changed a while ago."""
    now = [time_ns() + 3600 * 10**9]
    monkeypatch.setattr(store_files.time, "time_ns", lambda: now[0])
    return now


def just_after_changes(folder):
    """A time one millisecond after the last change of a file."""
    return max(path.stat().st_ctime_ns for path in folder.iterdir()) + 10**6


@pytest.fixture
def folder(tmp_path, cache, clock):
    """A store whose files were written a while ago."""
    store.save(small_graph(), tmp_path / "g")
    for path in (tmp_path / "g").iterdir():
        os.utime(path, (1e9, 1e9))
    return tmp_path / "g"


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files that were read to be hashed."""
    names, real = [], store_files.pieces_of

    def noted(path):
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(store_files, "pieces_of", noted)
    return names


def damage(folder, name="features.npy", keep_time=False):
    """Change one byte of the last value, which stays a finite number."""
    path = folder / name
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_files_are_hashed_once(folder, hashed):
    everything = {path.name for path in folder.glob("*.npy")}
    store.load(folder)
    assert set(hashed) == everything
    store.load(folder)
    assert len(hashed) == len(everything)
    store.load(folder, check="full")
    assert len(hashed) == 2 * len(everything)


def test_only_changed_files_are_hashed_again_and_none_without_features(folder, hashed):
    store.load(folder, features=False)
    assert "features.npy" not in hashed
    hashed.clear()
    store.load(folder)
    assert hashed == ["features.npy"]
    hashed.clear()
    os.utime(folder / "labels.npy", (1e9, 1e9 + 5))
    store.load(folder)
    assert hashed == ["labels.npy"]


@pytest.mark.parametrize("first", [True, False])
def test_damage_is_found_at_the_first_opening_after_it(folder, first):
    """The changed feature is finite, so nothing but a hash can tell."""
    if first:
        store.load(folder)
    damage(folder)
    for _ in range(2):
        with pytest.raises(DataError, match=r"g/features\.npy: is damaged: sha256 expected \w{64}, found \w{64}"):
            store.load(folder)
    assert np.isfinite(store.load(folder, check="none").features).all()
    assert store.load(folder, features=False).features is None


def test_a_file_put_in_place_with_the_old_time_is_another_file(folder):
    """`cp -p` and rsync keep the mtime; the inode tells."""
    store.load(folder)
    damage(folder, keep_time=True)
    (folder / "features.npy").rename(folder / "moved")
    (folder / "features.npy").write_bytes((folder / "moved").read_bytes())
    os.utime(folder / "features.npy", (1e9, 1e9))
    with pytest.raises(DataError, match=r"features\.npy: is damaged"):
        store.load(folder)


def test_a_change_in_place_that_keeps_size_and_mtime_is_a_change(folder):
    """`rsync --inplace --times` keeps the inode as well; the ctime tells."""
    store.load(folder)
    before = (folder / "features.npy").stat()
    until(lambda: _touched(folder / "features.npy") > before.st_ctime_ns)
    damage(folder, keep_time=True)
    after = (folder / "features.npy").stat()
    assert [after.st_size, after.st_mtime_ns, after.st_ino] == [before.st_size, before.st_mtime_ns, before.st_ino]
    with pytest.raises(DataError, match=r"features\.npy: is damaged"):
        store.load(folder)


def _touched(path):
    """The ctime that a file gets now."""
    path.chmod(0o644)
    return path.stat().st_ctime_ns


def test_a_manifest_of_other_hashes_is_not_covered_by_an_old_entry(folder):
    store.load(folder)
    edit_manifest(folder, lambda body: body["arrays"]["labels"].update(sha256="0" * 64))
    with pytest.raises(DataError, match=r"labels\.npy: is damaged"):
        store.load(folder)


@pytest.mark.parametrize("changed", [10**18 + 1, None])
def test_a_file_that_has_only_just_changed_is_not_remembered(folder, clock, hashed, changed):
    """A second change within the grain of the clock would keep its mtime, or only its ctime if the mtime is set."""
    if changed:
        for path in folder.iterdir():
            os.utime(path, ns=(changed, changed))
    later, clock[0] = clock[0], changed + 10**6 if changed else just_after_changes(folder)
    store.load(folder)
    count = len(hashed)
    clock[0] = later
    store.load(folder)
    store.load(folder)
    assert len(hashed) == 2 * count


def test_a_file_that_settles_while_it_is_read_is_not_remembered(folder, clock, hashed, monkeypatch):
    """It may have changed after its first bytes were read, within one tick of the clock that its mark counts in."""
    real, later = store_files.pieces_of, clock[0]
    clock[0] = just_after_changes(folder)

    def slow(path):
        yield from real(path)
        clock[0] = later

    monkeypatch.setattr(store_files, "pieces_of", slow)
    store.load(folder, features=False)
    first = hashed[0]
    hashed.clear()
    store.load(folder)
    assert first in hashed


@pytest.mark.parametrize("content", [
    "", "[]", "{", "{}", '{"files": 3}', '{"files": {"labels.npy": 1}}', '{"files": {"labels.npy": [1, 2, "a", "b"]}}',
    '{"files": {"labels.npy": [Infinity, 2, 3, 4, "a"]}}', '{"files": {"%s": [1, 2, 3, 4, "a"]}}' % ("x" * 300),
    r'{"files": {"\u0000": [1, 2, 3, 4, "a"], "\ud800": [1, 2, 3, 4, "a"]}}', "[" * 10_000,
], ids=range(11))  # fmt: skip
def test_a_damaged_cache_is_no_error(folder, cache, content, hashed):
    store.load(folder)
    [entry] = cache.iterdir()
    entry.write_text(content)
    hashed.clear()
    store.load(folder)
    assert hashed
    assert set(json.loads(entry.read_text())["files"]) == {path.name for path in folder.glob("*.npy")}


def test_a_cache_that_cannot_be_written_is_no_error(folder, tmp_path, hashed):
    (tmp_path / "cache").write_text("a file where the folder should be")
    store.load(folder)
    store.load(folder)
    assert hashed.count("labels.npy") == 2


def test_without_a_home_there_is_no_cache(folder, tmp_path, monkeypatch, hashed):
    """`os.path.expanduser` then returns "~/.cache", a path in the working folder."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", str)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    store.load(folder)
    store.load(folder)
    assert hashed.count("labels.npy") == 2
    assert sorted(os.listdir(tmp_path)) == before


def test_the_cache_is_bounded(folder, cache, monkeypatch):
    monkeypatch.setattr(store_files, "_MOST_STORES", 3)
    cache.mkdir(parents=True)
    for number in range(5):
        (cache / f"{number}.json").write_text("{}")
        os.utime(cache / f"{number}.json", (number, number))
    store.load(folder)
    names = sorted(path.name for path in cache.iterdir())
    assert len(names) == 3
    assert {"3.json", "4.json"} < set(names)
