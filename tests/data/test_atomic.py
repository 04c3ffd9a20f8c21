"""Writers that are killed at every step: what they leave is put right when the folder is next used."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.data import atomic

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from bulksample.data import atomic, held_out_links, store
from bulksample.data.held_out_links import HeldOutLinks
from bulksample.distributed.matrix.partition import Partition
from samples import assert_same, small_graph, unweighted

def in_a_child(work, step):
    # Run `work` in a child that is killed before its step-th call that changes the disk; True if it was.
    pid = os.fork()
    if not pid:
        calls = 0
        def wrap(function):
            def wrapped(*args, **options):
                nonlocal calls
                calls += 1
                if calls == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **options)
            return wrapped
        for module, name in ((os, "mkdir"), (os, "fsync"), (os, "rename"), (os, "replace"), (os, "rmdir"), (os, "unlink")):
            setattr(module, name, wrap(getattr(module, name)))
        work()
        os._exit(0)
    return os.waitpid(pid, 0)[1] != 0

def every_step(place, prepare, work, check):
    step, left = 1, 0
    while True:
        prepare()
        killed = in_a_child(work, step)
        left += any(".bulksample-" in name and not name.endswith("-held") for name in os.listdir(place))
        check()
        assert not [name for name in os.listdir(place) if ".bulksample-" in name and not name.endswith("-held")], (step, os.listdir(place))
        if not killed:
            return step, left
        step += 1

root = Path(sys.argv[1])
old, new = small_graph(), unweighted(small_graph())

def whole_store():
    found = store.load(root / "g")
    assert_same(found, new if found.adjacency.values is None else old)

steps, left = every_step(root, lambda: store.save(old, root / "g", overwrite=True), lambda: store.save(new, root / "g", True), whole_store)
assert steps > 15 and left > 12, (steps, left)

a, b = (Partition(2, np.array(parts, np.int32)) for parts in ([0, 1], [1, 1]))
def whole_partition():
    assert Partition.load(root / "p.npz").assignment.tolist() in ([0, 1], [1, 1])
steps, left = every_step(root, lambda: a.save(root / "p.npz"), lambda: b.save(root / "p.npz"), whole_partition)
assert steps > 3 and left > 1, (steps, left)

pairs = {"val": np.zeros((0, 2), np.int32), "test": np.zeros((0, 2), np.int32)}
few, more = (HeldOutLinks(("a", name, "a"), (), pairs, pairs) for name in "xy")
def whole_split():
    assert HeldOutLinks.read(root / "g").relation[1] in "xy"
steps, left = every_step(root / "g", lambda: few.save(root / "g"), lambda: more.save(root / "g"), whole_split)
assert steps > 3 and left > 1, (steps, left)
"""


def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_and_nothing_else(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr


def _left(folder, kind, **changed):
    """Make a leftover of a process that has ended, or of one that `changed` names."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    by = {"pid": ended.pid, "start": 1, "host": atomic._host(), **changed}
    path = folder / f".g.bulksample-{kind}-{by['pid']}-{by['start']}-{by['host']}-0123abcd"
    path.mkdir()
    (path / "part").write_text(kind)
    return path


def test_what_a_living_process_writes_is_not_touched(tmp_path):
    mine = {"pid": os.getpid(), "start": atomic._started(os.getpid())}
    paths = [_left(tmp_path, kind, **mine) for kind in ("new", "old")]
    atomic.sweep(tmp_path)
    assert all((path / "part").exists() for path in paths)
    assert not (tmp_path / "g").exists()


def test_a_process_with_the_id_of_a_dead_one_does_not_keep_its_leftovers(tmp_path):
    path = _left(tmp_path, "new", pid=os.getpid(), start=atomic._started(os.getpid()) - 1)
    atomic.sweep(tmp_path)
    assert not path.exists()


def test_a_process_that_proc_hides_runs(tmp_path, monkeypatch):
    """A /proc mounted with hidepid shows no process of another user."""
    ended, real = subprocess.Popen(["true"]), Path.read_text
    ended.wait()

    def hiding(path, *arguments, **options):
        if path.match("/proc/*/stat"):
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, *arguments, **options)

    runs, dead = _left(tmp_path, "new", pid=os.getppid()), _left(tmp_path, "new", pid=ended.pid)
    monkeypatch.setattr(Path, "read_text", hiding)
    atomic.sweep(tmp_path)
    assert runs.exists()
    assert not dead.exists()


@pytest.mark.parametrize("empty", [False, True])
def test_an_old_folder_comes_back_if_the_new_one_never_arrived(tmp_path, empty):
    _left(tmp_path, "old")
    _left(tmp_path, "new")
    if empty:
        (tmp_path / "g").mkdir()
    atomic.sweep(tmp_path)
    assert os.listdir(tmp_path) == ["g"]
    assert (tmp_path / "g" / "part").read_text() == "old"


def test_an_old_folder_goes_if_the_new_one_is_in_place(tmp_path):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "part").write_text("new")
    _left(tmp_path, "old")
    atomic.sweep(tmp_path)
    assert os.listdir(tmp_path) == ["g"]
    assert (tmp_path / "g" / "part").read_text() == "new"


def test_leftovers_of_another_host_wait_for_an_age(tmp_path, monkeypatch):
    new = _left(tmp_path, "new", host="0" * 8)
    old = _left(tmp_path, "old", host="0" * 8)
    now, later = time.time(), 0.0
    monkeypatch.setattr(atomic.time, "time", lambda: now + later)
    atomic.sweep(tmp_path)
    assert new.exists()
    assert old.exists()
    later = atomic.RESTORED_AFTER + 60
    atomic.sweep(tmp_path)
    assert new.exists()
    assert (tmp_path / "g" / "part").read_text() == "old"
    later = atomic._REMOVED_AFTER + 60
    atomic.sweep(tmp_path)
    assert os.listdir(tmp_path) == ["g"]


def test_other_hidden_files_are_not_leftovers(tmp_path):
    for name in (".g.new-1", ".g.bulksample-new", ".bashrc", "g.bulksample-new-1-1-00000000-00000000"):
        (tmp_path / name).write_text("mine")
    before = sorted(os.listdir(tmp_path))
    atomic.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_folder_that_cannot_be_put_back_is_named(tmp_path, monkeypatch):
    """The message is all that is left to find the old content by."""
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "part").write_text("old")
    real, calls = os.rename, []

    def failing(*paths):
        calls.append(paths)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        real(*paths)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match=r"; the old one is at .*bulksample-old") as raised, atomic.new_folder(tmp_path / "g"):
        pass
    assert (Path(raised.value.strerror.rpartition(" at ")[2]) / "part").read_text() == "old"


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_between_the_renames_leaves_the_old_or_the_new_folder(tmp_path, monkeypatch, step, after):
    """No other process would put the old one back while this one lives."""
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "part").write_text("old")
    real, calls = os.rename, []

    def interrupted(*paths):
        calls.append(paths)
        if len(calls) != step:
            return real(*paths)
        if after:
            real(*paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^$"), atomic.new_folder(tmp_path / "g") as made:
        (made / "part").write_text("new")
    assert (tmp_path / "g" / "part").read_text() == ("new" if (step, after) == (2, True) else "old")


def test_a_link_is_followed_and_a_device_is_written_to(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    atomic.write_file(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    atomic.write_file(Path(os.devnull), "gone")
    assert not Path(os.devnull).is_file()


def test_a_link_to_a_pipe_without_a_path_is_written_to():
    """Such links are /dev/stdout before a pipe, and >(command) in a shell."""
    reader, writer = os.pipe()
    try:
        atomic.check_writable(target := Path(f"/dev/fd/{writer}"))
        atomic.write_file(target, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader), os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_told_with_the_path():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        atomic.write_file(Path("/dev/full"), b"x")


def test_the_mode_of_a_file_is_kept(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)
    atomic.write_file(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_writable_file_in_an_unwritable_folder_is_written(tmp_path, monkeypatch):
    """Nothing can be made beside it."""
    path, access, opened = tmp_path / "log", os.access, os.stat
    path.write_text("old")
    inode = opened(path).st_ino
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path and access(place, mode))
    monkeypatch.setattr(atomic.tempfile, "TemporaryFile", _refused)
    atomic.check_writable(path)
    atomic.write_file(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_ino == inode
    with pytest.raises(UsageError, match=r"cannot write .*Permission denied"):
        atomic.check_writable(tmp_path / "another")


def _refused(dir):
    raise PermissionError(13, "Permission denied")
