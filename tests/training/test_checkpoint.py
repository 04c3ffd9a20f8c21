"""Checkpoints: whole or not at all, and the one before where the newest is damaged."""

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bulksample import DataError, UsageError
from bulksample.training import checkpoint

TENSORS = {"model.a": torch.arange(6).reshape(2, 3).float(), "adam.a.step": torch.tensor(3.0), "count": torch.tensor([1, 2])}


def test_what_goes_in_comes_out(tmp_path):
    path = checkpoint.save(tmp_path / "new" / "place", 7, TENSORS, {"epoch": 2, "loss": 0.1 + 0.2})
    tensors, state = checkpoint.load(path)
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert state["epoch"] == 2
    assert state["loss"] == 0.1 + 0.2
    assert checkpoint.newest(tmp_path / "new" / "place")[0] == path


def test_the_newest_two_are_kept_and_the_same_step_may_come_again(tmp_path):
    for number in (1, 2, 10, 10):
        checkpoint.save(tmp_path, number, TENSORS, {"number": number})
    assert sorted(os.listdir(tmp_path)) == ["step-000000002", "step-000000010"]
    assert checkpoint.newest(tmp_path)[1][1]["number"] == 10


def test_nothing_there(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "nowhere") is None
    with pytest.raises(UsageError, match="no checkpoint at"):
        checkpoint.load(tmp_path / "step-1")


@given(
    file=st.sampled_from(["state.json", "tensors.safetensors"]),
    at=st.integers(0, 10**6),
    how=st.sampled_from(["flip", "cut", "remove"]),
)
def test_any_damage_is_noticed_and_the_one_before_is_used(tmp_path_factory, file, at, how):
    root = tmp_path_factory.mktemp("c")
    checkpoint.save(root, 1, TENSORS, {"number": 1})
    path = checkpoint.save(root, 2, TENSORS, {"number": 2}) / file
    data = bytearray(path.read_bytes())
    at %= len(data)
    if how == "remove":
        path.unlink()
    else:
        data[at] ^= 1
        path.write_bytes(data[:at] if how == "cut" else data)
    try:
        state = checkpoint.load(path.parent)[1]
    except DataError:
        assert checkpoint.newest(root)[1][1]["number"] == 1
    else:  # a flipped bit in the text of the state that is not in what it says of the tensors
        assert file == "state.json"
        assert how == "flip"
        assert state.keys() >= {"format", "sha256"}


STEPS = ["mkdir", "open", "fsync", "rename"]


@pytest.mark.parametrize("call", STEPS)
@pytest.mark.parametrize("nth", range(6))
def test_any_failing_file_operation_leaves_the_one_before(tmp_path, monkeypatch, call, nth):
    checkpoint.save(tmp_path, 1, TENSORS, {"number": 1})
    real, calls = getattr(os, call), []

    def failing(*args, **options):
        calls.append(args)
        if len(calls) == nth + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **options)

    monkeypatch.setattr(os, call, failing)
    try:
        checkpoint.save(tmp_path, 2, TENSORS, {"number": 2})
        failed = False
    except OSError:
        failed = True
    monkeypatch.undo()
    state = checkpoint.newest(tmp_path)[1][1]
    assert state["number"] in ((1, 2) if failed else (2,))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    checkpoint.save(tmp_path, 3, TENSORS, {"number": 3})
    assert checkpoint.newest(tmp_path)[1][1]["number"] == 3


def test_nothing_in_the_package_can_read_a_pickle():
    import bulksample

    for path in Path(bulksample.__file__).parent.rglob("*.py"):
        for word in ("import pickle", "torch.load(", "torch.save(", "allow_pickle=True", "marshal"):
            assert word not in path.read_text(), f"{path} holds {word}"
