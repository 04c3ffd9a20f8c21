"""The check of hashes, by a store with changed bytes that nothing but a hash can tell; and results that exist."""

import json
import sys

import pytest
from commands import SMALL, command
from communities import community_graph

from bulksample import DataError, UsageError
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


def _replaced(line, file):
    """True if a command replaces a file; False if it refuses to and leaves it as it was."""
    file.write_text("of yesterday")
    try:
        command(*line, "--json", file)
    except UsageError as error:
        assert "exists already; use another file, or overwrite=True" in str(error)  # noqa: PT017
        assert file.read_text() == "of yesterday"
        return False
    return "seed" in json.loads(file.read_text())


def test_overwrite_replaces_the_result_of_a_training(tmp_path):
    store.save(community_graph(n=60), tmp_path / "g")
    assert _replaced(["train", tmp_path / "g", *SMALL, "--overwrite"], tmp_path / "r.json")
    assert not _replaced(["train", tmp_path / "g", *SMALL], tmp_path / "s.json")


def test_overwrite_replaces_the_result_of_sampling(tmp_path):
    store.save(community_graph(n=60), tmp_path / "g")
    assert _replaced(["sample", tmp_path / "g", "--fanouts", 2, "--overwrite"], tmp_path / "r.json")
    assert not _replaced(["sample", tmp_path / "g", "--fanouts", 2], tmp_path / "s.json")
