"""Checkpoints: whole or not at all, and the one before where the newest is damaged."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bulksample import DataError, UsageError
from bulksample.data import atomic
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
    """No flipped bit passes, not even one that makes another digit of a digit."""
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
    if how == "flip" and file == "state.json" and _same_values(data, at):
        return
    with pytest.raises(DataError, match=r"checkpoint .*step-000000002"):
        checkpoint.load(path.parent)
    assert checkpoint.newest(root)[1][1]["number"] == 1


def _same_values(text, at):
    """True if the flipped bit is in white space or in the case of an escape, so that the values are those written."""
    before = bytearray(text)
    before[at] ^= 1
    try:
        return json.loads(text) == json.loads(before)
    except ValueError:
        return False


def test_each_digit_of_the_state_counts(tmp_path):
    path = checkpoint.save(tmp_path, 1, TENSORS, {"loss": 0.123456789, "steps": [1, {"2": 3}], 4: float("nan")}) / "state.json"
    text = path.read_text()
    checkpoint.load(tmp_path / "step-000000001")
    for place in [i for i, letter in enumerate(text) if letter in "12345678"]:
        path.write_text(f"{text[:place]}9{text[place + 1 :]}")
        with pytest.raises(DataError, match=r"damaged|is of format"):
            checkpoint.load(path.parent)


def test_a_checkpoint_of_format_1_still_opens(tmp_path):
    path = checkpoint.save(tmp_path, 1, TENSORS, {"number": 1})
    state = json.loads((path / "state.json").read_text())
    del state["digest"]
    (path / "state.json").write_text(json.dumps(state | {"format": 1}))
    assert checkpoint.load(path)[1]["number"] == 1
    (path / "state.json").write_text(json.dumps(state))  # format 2 has a digest
    with pytest.raises(DataError, match="does not fit its digest"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_files_of_a_checkpoint_are_regular(tmp_path, name, kind):
    """A pipe would block for ever."""
    path = checkpoint.save(tmp_path, 1, TENSORS, {"number": 1})
    (path / name).unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir}[kind](path / name)
    with pytest.raises(DataError, match=f"damaged: {name}: is not a regular file"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors", "."])
def test_a_link_is_followed_if_hashes_tell_that_it_leads_to_what_was_written(tmp_path, name):
    whole = checkpoint.save(tmp_path / "k", 1, TENSORS, {"number": 1})
    linked = whole if name == "." else whole / name
    elsewhere = tmp_path / "elsewhere"
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    assert checkpoint.newest(tmp_path / "k")[1][1]["number"] == 1
    file = elsewhere / "tensors.safetensors" if name == "." else elsewhere
    data = bytearray(file.read_bytes())
    data[-4] ^= 4
    file.write_bytes(data)
    with pytest.raises(checkpoint.Damaged, match="damaged"):
        checkpoint.load(whole)


@pytest.mark.parametrize("text", ["[]", "3", "{}", "[" * 10**5, '{"format": "1"}', '{"format": [1]}', "\xff", '{"format": 1, "sha256": 0}'])
def test_a_state_that_is_no_state_is_damage(tmp_path, text):
    path = checkpoint.save(tmp_path, 1, TENSORS, {})
    (path / "state.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"checkpoint .*(damaged|is of format)"):
        checkpoint.load(path)
    (tmp_path / "step-000000002").write_text("a file")
    with pytest.raises(DataError, match="damaged"):
        checkpoint.load(tmp_path / "step-000000002")
    of_format = text.startswith(('{"format": "', '{"format": ['))
    with pytest.raises(DataError, match="is of format" if of_format else "no checkpoint in .* can be used, and all are left as they are"):
        checkpoint.newest(tmp_path)


def test_what_a_killed_save_left_is_swept(tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, {"number": 1})
    ended = subprocess.Popen(["true"])
    ended.wait()
    mark = f"{ended.pid}-1-{atomic._host()}-0123abcd"
    (tmp_path / "step-000000001").rename(tmp_path / f".step-000000001.bulksample-old-{mark}")
    (tmp_path / f".step-000000001.bulksample-new-{mark}").mkdir()
    assert checkpoint.newest(tmp_path)[1][1]["number"] == 1
    assert os.listdir(tmp_path) == ["step-000000001"]


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
