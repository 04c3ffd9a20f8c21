"""Files that are replaced whole: their bytes and their names are synced."""

import os

import numpy as np
import pytest

from bulksample import DataError, UsageError
from bulksample.data.atomic import save_npz
from bulksample.data.held_out_links import HeldOutLinks
from bulksample.distributed.matrix.partition import Partition

PAIRS = {split: np.array([[0, 1]], np.int32) for split in ("val", "test")}
SAVERS = {
    "parts.npz": lambda folder: Partition(2, np.array([0, 1, 1])).save(folder / "parts.npz"),
    "links.npz": lambda folder: HeldOutLinks(("a", "to", "a"), (), PAIRS, PAIRS).save(folder),
}


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_is_synced_before_it_gets_its_name_and_its_folder_after(name, tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def renamed(made, target):
        calls.append(os.path.basename(target))
        replace(made, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    SAVERS[name](tmp_path)
    assert calls == ["file", name, "folder"]
    assert os.listdir(tmp_path) == [name]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.npz"
    save_npz(target, {"x": np.arange(3)})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*a\.npz: No space left"):
        save_npz(target, {"x": np.arange(9)})
    assert os.listdir(tmp_path) == ["a.npz"]
    assert np.load(target)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_with_another_number_or_without_its_hash_is_refused(name, tmp_path):
    SAVERS[name](tmp_path)
    read = {"parts.npz": lambda: Partition.load(tmp_path / name), "links.npz": lambda: HeldOutLinks.read(tmp_path)}[name]
    read()
    whole = dict(np.load(tmp_path / name))
    assert "sha256" in whole
    for key, array in whole.items():
        if array.size:
            np.savez(tmp_path / name, **whole | {key: array ^ np.ones((), array.dtype)})
            with pytest.raises(DataError, match=f"{name}: was changed after it was written"):
                read()
    np.savez(tmp_path / name, **{key: array for key, array in whole.items() if key != "sha256"})
    with pytest.raises(DataError, match=f"{name}: holds no sha256 of its arrays; write it again with `bulksample"):
        read()
