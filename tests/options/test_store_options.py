"""The check of hashes: a store with one changed byte, which nothing but a hash can tell."""

import sys

import pytest
from communities import community_graph

from bulksample import DataError
from bulksample.cli import main
from bulksample.data import store
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def damaged_store(tmp_path):
    """A store with a bit of its last feature and of a label changed."""
    folder = tmp_path / "g"
    store.save(community_graph(n=60), folder)
    for name, at in (("features.npy", -4), ("labels.npy", -8)):
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)
    return folder


def _is_read(read):
    try:
        read()
    except DataError as error:
        assert "labels.npy: is damaged" in str(error)  # noqa: PT017
        return False
    return True


def _trainer(folder, **options):
    return make_trainer(TrainConfig.of(epochs=1, fanouts=[2], hidden=4, **options), folder)


def test_check_none_trains_on_a_damaged_store(tmp_path):
    damaged = damaged_store(tmp_path)
    assert _is_read(lambda: _trainer(damaged, check="none"))
    assert not _is_read(lambda: _trainer(damaged, check="full"))
    assert not _is_read(lambda: _trainer(damaged))


def test_check_none_samples_from_a_damaged_store(tmp_path, monkeypatch):
    """The command itself: 65 is bad data. Features are not read, but labels are, for the splits."""
    damaged, ended = damaged_store(tmp_path), {}
    for check in ("none", "full", "auto"):
        monkeypatch.setattr(sys, "argv", ["bulksample", "sample", str(damaged), "--fanouts", "2", "--json", "-", "--check", check])
        with pytest.raises(SystemExit, match=r"\d*") as stopped:
            main()
        ended[check] = stopped.value.code or 0
    assert ended == {"none": 0, "full": 65, "auto": 65}
