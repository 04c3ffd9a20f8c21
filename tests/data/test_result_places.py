"""One run at a time writes to a place: the second is told who holds it, and what a killed run held is free."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from bulksample import UsageError
from bulksample.data import result_places
from bulksample.data.result_places import holding

HOLD = """
import sys, time
from pathlib import Path
from bulksample.data.result_places import holding
with holding(*map(Path, sys.argv[1:])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that holds places; all end with the test."""
    started = []

    def start(*places):
        process = subprocess.Popen([sys.executable, "-c", HOLD, *map(str, places)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_second_is_told_who_holds_a_place(holder, tmp_path):
    first = holder(tmp_path / "r.json", tmp_path / "ck" / "checkpoints")
    for place in ("r.json", "ck/checkpoints", "ck/../r.json"):
        said = rf"{place} is held by another run, process {first.pid} on .* since 20.*: -c .*r.json"
        with pytest.raises(UsageError, match=said), holding(tmp_path / "new", tmp_path / place):
            raise AssertionError("two hold it")
    with holding(tmp_path / "new"):  # what was taken before the refusal is free again
        pass
    (tmp_path / "link").symlink_to("r.json")
    with pytest.raises(UsageError, match="link is held by another run"), holding(tmp_path / "link"):
        pass


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_run_held_is_free(holder, tmp_path, by):
    first = holder(tmp_path / "r.json")
    first.send_signal(by)
    first.wait()
    with holding(tmp_path / "r.json"):
        assert os.listdir(tmp_path) == [".r.json.bulksample-held"]
        assert json.loads((tmp_path / ".r.json.bulksample-held").read_text())["process"] == os.getpid()
    assert os.listdir(tmp_path) == []


def test_the_next_run_in_a_folder_removes_what_killed_runs_left(holder, tmp_path, monkeypatch):
    """Not what a live run holds, one of another machine, one that has just begun, nor a file that is none of ours."""
    holder(tmp_path / "live.json")
    first = holder(tmp_path / "killed.json", tmp_path / "deep" / "r.json")
    first.kill()
    first.wait()
    elsewhere = json.loads((tmp_path / ".killed.json.bulksample-held").read_text()) | {"host": "elsewhere"}
    others = {".far.bulksample-held": json.dumps(elsewhere), ".new.bulksample-held": "", ".mine.bulksample-held": "{}"}
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    with holding(tmp_path / "r.json"):
        assert {path.name for path in tmp_path.glob(".*")} == {".live.json.bulksample-held", ".r.json.bulksample-held", *others}
    assert os.listdir(tmp_path / "deep") == [".r.json.bulksample-held"]  # of another folder
    with pytest.raises(UsageError, match="is held by another run"), holding(tmp_path / "live.json"):
        pass


def test_removing_what_is_left_never_lets_two_hold_a_place(tmp_path):
    """Runs of one place find the file of a dead one again and again, and others of the folder remove it; no run is refused meanwhile."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    script = """
import json, os, platform, sys, threading, time
from pathlib import Path
from bulksample.data.result_places import holding
place, held = Path(sys.argv[1]), Path(sys.argv[1]).with_name(".r.bulksample-held")
for _ in range(150):
    with holding(place):
        assert not place.exists()
        place.write_text("x")
        time.sleep(0.0005)
        place.unlink()
    held.write_text(json.dumps({"process": int(sys.argv[2]), "host": platform.node(), "since": "", "command": ""}))
"""
    sweeper = "import sys\nfrom pathlib import Path\nfrom bulksample.data.result_places import holding\nwhile True:\n" + (
        "    with holding(Path(sys.argv[1])):\n        pass\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", sweeper, tmp_path / name]) for name in "ab"]
    try:
        run = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "r", str(dead.pid)], capture_output=True, text=True, timeout=PATIENCE
        )
        assert run.stderr == ""
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_forked_child_does_not_keep_what_its_killed_parent_held(tmp_path):
    script = HOLD.replace(
        "time.sleep(600)", "import os\n    child = os.fork()\n    print(child, flush=True) if child else None\n    time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path / "r.json"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "held\n"
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    try:

        def is_free():
            try:
                with holding(tmp_path / "r.json"):
                    return True
            except UsageError:
                return False

        until(is_free)
        os.kill(child, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_two_threads_of_a_process_are_two_runs_and_one_may_hold_twice(tmp_path):
    said = []

    def other():
        try:
            with holding(tmp_path / "r.json"):
                said.append("two hold it")
        except UsageError as error:
            said.append(str(error))

    with holding(tmp_path / "r.json"), holding(tmp_path / "r.json"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert said == [f"{tmp_path / 'r.json'} is held by another thread of this process; wait for its end, or use another place"]
    with holding(tmp_path / "r.json"):
        pass


def test_many_at_once_never_hold_it_together(tmp_path):
    """Locks come and go while others wait for them; each holder writes its number and finds it unchanged."""
    script = """
import os, sys, time
from pathlib import Path
from bulksample import UsageError
from bulksample.data.result_places import holding
place, me = Path(sys.argv[1]), str(os.getpid())
held = 0
while held < 40:
    try:
        with holding(place):
            assert not place.exists()
            place.write_text(me)
            time.sleep(0.0005)
            assert place.read_text() == me
            place.unlink()
            held += 1
    except UsageError:
        pass
"""
    runs = [subprocess.Popen([sys.executable, "-c", script, tmp_path / "r"], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [run.communicate(timeout=120)[1] for run in runs] == ["", "", ""]


def test_missing_folders_are_made_and_gone_again_if_nothing_was_written(tmp_path):
    with holding(tmp_path / "a" / "b" / "r.json", tmp_path / "a" / "c" / "g"):
        assert (tmp_path / "a" / "b").is_dir()
        (tmp_path / "a" / "c" / "g").write_text("")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/c", "a/c/g"]


def test_a_folder_and_what_will_be_one_are_held(holder, tmp_path):
    (tmp_path / "g").mkdir()
    holder(tmp_path / "g", tmp_path / "new")
    for place in ("g", "new"):
        with pytest.raises(UsageError, match="is held by another run"), holding(tmp_path / place):
            pass


def test_devices_and_standard_output_are_shared(holder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    holder("/dev/null", "-")
    with holding(Path("/dev/null"), Path("-"), None):
        assert os.listdir(tmp_path) == []
        assert not Path("/dev/.null.bulksample-held").exists()


@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP"])
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, capsys, number):
    def refused(*_):
        raise OSError(getattr(errno, number), "no locks")

    monkeypatch.setattr(result_places.fcntl, "flock", refused)
    with holding(tmp_path / "r.json"):
        pass
    assert "no locks on this file system; see that no other run writes there" in capsys.readouterr().err


def test_a_lock_whose_owner_wrote_nothing_yet_is_a_lock(tmp_path):
    with open(tmp_path / ".r.json.bulksample-held", "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="is held by another run that has just begun"), holding(tmp_path / "r.json"):
            pass


@pytest.mark.skipif(os.getuid() != 0, reason="another user can be played by root alone")
def test_two_users_of_one_folder_do_not_hold_a_place_together(holder):
    """The second may read the lock of the first, not write it; what a killed run of the first held is free."""
    script = """
import os, sys
from pathlib import Path
from bulksample import UsageError
from bulksample.data.result_places import holding
os.setuid(65534)
try:
    with holding(Path(sys.argv[1])):
        print("held")
except UsageError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)

        def other():
            line = [sys.executable, "-c", script, f"{folder}/r.json"]
            return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE).stdout

        first = holder(f"{folder}/r.json")
        assert f"held by another run, process {first.pid}" in other()
        first.kill()
        first.wait()
        assert other() == "held\n"


def test_a_forked_child_that_leaves_the_block_lets_go_of_nothing(tmp_path):
    """It takes the block along, and ends it when it exits."""
    stack = ExitStack()
    stack.enter_context(holding(tmp_path / "r.json"))
    child = os.fork()
    if not child:
        try:
            stack.close()
        finally:
            os._exit(0 if (tmp_path / ".r.json.bulksample-held").exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with open(tmp_path / ".r.json.bulksample-held") as stream, pytest.raises(BlockingIOError, match="unavailable"):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    stack.close()
    assert os.listdir(tmp_path) == []
