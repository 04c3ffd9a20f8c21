"""A checkpoint that cannot be used now is not taken for none: a run that is to go on ends, and changes nothing."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from communities import community_graph

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.run import train
from bulksample.training import checkpoint

OPTIONS = {"fanouts": (3, 3), "hidden": 4, "batch_size": 64, "threads": 1, "epochs": 3, "checkpoint_every": 1}


@pytest.fixture
def kept(tmp_path):
    """The folder of a run with two checkpoints, and the lines of its epochs."""
    train(community_graph(), checkpoint=str(tmp_path / "kept"), **OPTIONS)
    assert len(checkpoint.listed(tmp_path / "kept")) == 2
    return tmp_path / "kept"


def of_format(step, number):
    """Write the state anew as another version would, with a digest that fits."""
    state = json.loads((step / "state.json").read_text()) | {"format": number}
    del state["digest"]
    digest = hashlib.sha256(json.dumps(state, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (step / "state.json").write_text(json.dumps({"digest": digest, **state}))


def behind_a_dangling_link(step, name):
    (step / name).unlink()
    (step / name).symlink_to("/nowhere/on/this/machine")


def cut(step):
    (step / "tensors.safetensors").write_bytes(b"cut")


def beyond_reach(monkeypatch, folder, number):
    """Let every call on a folder or what is in it fail, as the system does; root may read everything."""
    for where, name in ((os, "stat"), (os, "listdir"), (os, "lstat"), (os, "scandir"), (Path, "read_bytes")):
        real = getattr(where, name)

        def refused(path=".", *more, real=real, **options):
            if str(path).startswith(str(folder)):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *more, **options)

        monkeypatch.setattr(where, name, refused)


FAULTS = {
    "a later format": lambda steps, _: [of_format(step, 4) for step in steps],
    "a format in words": lambda steps, _: [of_format(step, "next") for step in steps],
    "the newest of a later format": lambda steps, _: of_format(steps[0], 99),
    "behind links that lead nowhere": lambda steps, _: [behind_a_dangling_link(step, "tensors.safetensors") for step in steps],
    "states behind such links": lambda steps, _: [behind_a_dangling_link(step, "state.json") for step in steps],
    "all damaged": lambda steps, _: [cut(step) for step in steps],
    "not permitted": lambda steps, patch: beyond_reach(patch, steps[0], errno.EACCES),
    "a failing disk": lambda steps, patch: beyond_reach(patch, steps[0], errno.EIO),
    "the folder not permitted": lambda steps, patch: beyond_reach(patch, steps[0].parent, errno.EACCES),
    "empty folders": lambda steps, _: [(shutil.rmtree(step), step.mkdir()) for step in steps],
}


def content(folder):
    """Return the bytes of every file in a folder by name, None for a folder, and where a link leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_used_is_left_as_it_is(kept, monkeypatch, fault, ranks):
    steps = checkpoint.listed(kept)
    if reading := "permitted" in fault or "disk" in fault:
        before = content(kept)
    with monkeypatch.context() as patch:
        FAULTS[fault](steps, patch)
        if not reading:
            before = content(kept)

        def again(comm):
            with pytest.raises(DataError, match="kept"):
                train(community_graph(), comm, checkpoint=str(kept), resume="auto", **OPTIONS | {"epochs": 5})

        on_threads(ranks, again)
    assert content(kept) == before


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(kept, monkeypatch):
    """Without `resume` a run would write over it as well."""
    with monkeypatch.context() as patch:
        beyond_reach(patch, kept, errno.EACCES)
        with pytest.raises((DataError, UsageError), match=r"kept.*Permission denied"):
            train(community_graph(), checkpoint=str(kept), **OPTIONS)
    assert len(checkpoint.listed(kept)) == 2


def test_a_folder_that_is_a_link_to_nowhere_is_not_an_empty_one(tmp_path):
    (tmp_path / "scratch").symlink_to(tmp_path / "not mounted")
    for resume in (None, "auto"):
        with pytest.raises(DataError, match="scratch cannot be read"):
            train(community_graph(), checkpoint=str(tmp_path / "scratch"), resume=resume, **OPTIONS)


def test_lines_of_a_run_without_checkpoints_are_kept(kept):
    """The steps may have been moved away; a run killed in its first epoch has at most one line."""
    (kept / "config.yaml").write_text("method: sync\n")
    lines = (kept / "metrics.jsonl").read_text()
    for step in checkpoint.listed(kept):
        step.rename(kept.parent / step.name)
    with pytest.raises(UsageError, match=r"metrics\.jsonl exists already"):
        train(community_graph(), checkpoint=str(kept), resume="auto", **OPTIONS)
    assert (kept / "metrics.jsonl").read_text() == lines
    for begun in ("", lines.splitlines()[0] + "\n", lines.splitlines()[0][:20], '{"ep'):
        (kept / "metrics.jsonl").write_text(begun)
        shutil.rmtree(kept.parent / "again", ignore_errors=True)
        shutil.copytree(kept, kept.parent / "again")
        assert train(community_graph(), checkpoint=str(kept.parent / "again"), resume="auto", **OPTIONS)["epochs"] == 3


def test_a_run_that_replaces_another_and_dies_at_once_leaves_nothing_of_it(kept):
    """Else the next one would go on with old checkpoints below new lines."""

    class Dies(bs.Callback):
        def epoch(self, line):
            raise ZeroDivisionError("as asked")

    with pytest.raises(ZeroDivisionError, match="as asked"):
        train(community_graph(), checkpoint=str(kept), overwrite=True, callbacks=[Dies()], **OPTIONS | {"checkpoint_every": 0, "lr": 0.3})
    assert checkpoint.listed(kept) == []
    report = train(community_graph(), checkpoint=str(kept), resume="auto", **OPTIONS | {"lr": 0.3})
    assert (report["resumed"], len((kept / "metrics.jsonl").read_text().splitlines())) == (False, 3)


def test_folders_that_are_no_checkpoints_are_not_removed(tmp_path):
    for name in ("step-000000900", "step-7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("mine")
    (tmp_path / "step-000000800").symlink_to(tmp_path / "step-7")
    for number in (1, 2, 3, 4):
        checkpoint.save(tmp_path, number, {}, {})
    assert {path.name for path in tmp_path.iterdir()} == {
        "step-000000900", "step-000000800", "step-7", "step-000000003", "step-000000004",
    }  # fmt: skip
