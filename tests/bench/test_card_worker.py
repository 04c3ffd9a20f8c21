"""Sections of the benchmark share a process, which is started anew after one that breaks it; a whole rehearsal of both calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from emulation.host import compiler
from gpu import benchmark, goals, hardware, plan, runner, worker
from gpu.plan import Section
from gpu.runner import LONGEST_TABLE, Run, last_lines
from test_card_script import SCRIPT, states

from bulksample import backends

# a process that answers as `gpu.worker` does; it notes which process was asked what
ANSWERS = """
import os, socket, sys, time
asked = socket.socket(fileno=int(sys.argv[2]))
for line in asked.makefile("r"):
    name = line.strip()
    with open(sys.argv[1], "a") as notes: notes.write(f"{os.getpid()} {name}\\n")
    print("said", name, flush=True)
    if name == "dies": os._exit(9)
    if name == "deaf": os.close(asked.fileno())
    if name in ("hangs", "deaf"): time.sleep(1000)
    asked.sendall({"fails": b"failed\\n", "breaks": b"broken\\n"}.get(name, b"passed\\n"))
    if name == "breaks": sys.exit(3)
"""


@pytest.fixture
def asks(tmp_path):
    def section(name, seconds=30.0):
        return Section(name, seconds, "log.txt", [sys.executable, "-c", ANSWERS, str(tmp_path / "notes")], asked=name)

    return section


def processes(tmp_path):
    """The number of the process, in order of their starts, that each section ran in."""
    lines = [line.split() for line in (tmp_path / "notes").read_text().splitlines() if not line.endswith(" open")]
    order = list(dict.fromkeys(pid for pid, _ in lines))
    return {name: order.index(pid) for pid, name in lines}


def test_sections_share_a_process_until_one_breaks_it(tmp_path, asks, monkeypatch):
    monkeypatch.setattr(runner, "LEAST", 0.0)
    names = ("first", "fails", "second", "breaks", "third", "dies", "fourth")
    assert Run(tmp_path, 60).run([asks(name) for name in names]) == 1
    assert processes(tmp_path) == {"first": 0, "fails": 0, "second": 0, "breaks": 0, "third": 1, "dies": 1, "fourth": 2}
    assert states(tmp_path) == {
        "first": "passed", "fails": "failed: exit 1", "second": "passed", "breaks": "failed: exit 1", "third": "passed",
        "dies": "failed: exit 9", "fourth": "passed",
    }  # fmt: skip
    assert (tmp_path / "log.txt").read_text().count("said") == 7 + 3


def test_a_section_that_hangs_is_ended_at_its_limit_and_the_next_has_another_process(tmp_path, asks, monkeypatch):
    monkeypatch.setattr(runner, "LEAST", 0.0)
    assert Run(tmp_path, 48).run([asks("hangs", 3.0), asks("next", 30.0)]) == 1
    assert processes(tmp_path) == {"hangs": 0, "next": 1}
    assert states(tmp_path)["hangs"] == "ended at its limit of 3 s"
    assert not [line for line in (tmp_path / "notes").read_text().splitlines() if Path(f"/proc/{line.split()[0]}").exists()]


def test_a_process_that_hangs_up_and_lives_is_ended(tmp_path, asks):
    assert Run(tmp_path, 60).run([asks("deaf"), asks("next")]) == 1
    assert processes(tmp_path) == {"deaf": 0, "next": 1}
    assert states(tmp_path) == {"deaf": "failed: exit 1", "next": "passed"}


def test_what_a_start_takes_is_taken_from_no_section(tmp_path, asks, monkeypatch):
    """By a clock of its own: a start takes 12 seconds, a section 4."""
    now, limits = [0.0], {}

    class Started:
        broken = False

        def __init__(self, command, log):
            pass

        def ask(self, name, seconds):
            limits[name] = seconds
            now[0] += 12 if name == runner.OPEN else 4
            return 0

        def close(self):
            pass

    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(runner, "Worker", Started)
    sections = [asks(name, 10.0)._replace(command=["one"]) for name in ("a", "b", "c")]
    assert Run(tmp_path, 45).run(sections) == 0
    assert limits == {"open": 3 * plan.START, "a": 10, "b": 16, "c": 22}
    limits.clear()
    (other := tmp_path / "other").mkdir()
    Run(other, 15).run([one._replace(name=f"{one.name} again") for one in sections])
    assert limits == {"open": 15, "a": 3}  # all that is left of the call
    limits.clear()
    (last := tmp_path / "last").mkdir()
    Run(last, 145).run(sections)
    assert limits["a"] == 10 + 100  # that no section has


def test_a_section_may_take_what_earlier_ones_left(tmp_path, asks, monkeypatch):
    """Limits add up, and grow with the patience of a call."""
    (tmp_path / "log.txt").touch()
    run, limits = Run(tmp_path, 75), []
    monkeypatch.setattr(run, "_ask", lambda section, limit: limits.append(limit) or 0)
    run.run([asks("a", 10), asks("b", 20), asks("c", 30)])
    assert [round(limit, -1) for limit in limits] == [10, 30, 60]
    limits.clear()
    run = Run(tmp_path, 75, patience=3.0)
    monkeypatch.setattr(run, "_ask", lambda section, limit: limits.append(limit) or 0)
    run.run([asks("d", 10)])
    assert [round(limit, -1) for limit in limits] == [30]


class Device:
    """A place whose device works until it is told otherwise."""

    name, broken = "a card", False

    def synchronize(self):
        if self.broken:
            raise RuntimeError("cudaErrorIllegalAddress")


class OfDevice:
    """A bench on it."""

    def __init__(self, gpu):
        self.gpu, self.about = gpu, {"card": gpu.name}
        OfDevice.made += 1

    made = 0


def test_the_process_measures_what_it_is_asked_and_ends_with_its_device(tmp_path, monkeypatch):
    ours, theirs = worker.socket.socketpair()
    device, file = Device(), tmp_path / "gpu.json"

    def measured(bench, name):
        device.broken = name == "illegal"
        return {"edges": 5} if name == "sampling" else "failed: no memory"

    for owner, name, stub in (
        (hardware, "this_gpu", lambda: device), (benchmark, "Bench", OfDevice), (benchmark, "measured", measured),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, stub)
    monkeypatch.setattr(sys, "argv", ["worker", str(file), str(theirs.detach())])
    ours.sendall(b"open\nsampling\nlaws\nillegal\nsampling\n")
    with pytest.raises(SystemExit, match=r"the device can do nothing more: RuntimeError: cudaErrorIllegalAddress"):
        worker.main()
    assert ours.recv(100) == b"passed\npassed\nfailed\nbroken\n"
    ours.close()
    assert OfDevice.made == 1
    found = json.loads(file.read_text())
    assert {name: found[name] for name in ("card", "sampling", "laws", "illegal")} == {
        "card": "a card", "sampling": {"edges": 5}, "laws": "failed: no memory", "illegal": "failed: no memory",
    }  # fmt: skip


def test_the_last_lines_are_the_goals_and_what_is_not_well(tmp_path, asks):
    many = {f"line {number}": {"measured": float(number), "goal": 2.0, "ratio": number / 2} for number in range(90)}
    (tmp_path / "gpu.json").write_text(json.dumps({"goals": many | {"sums": "not measured", "laws": "failed: no memory"}}))
    run, sections = Run(tmp_path, 60), [asks("passes"), asks("fails")]
    run.run(sections)
    lines = last_lines(run, sections)
    assert len(lines) == LONGEST_TABLE - 1  # and one that says all or not all is well
    assert lines[1].split() == ["line", "0", "0", "2", "0.00"]
    assert lines[-2] == "... and 35 more in gpu.json"
    assert lines[-1] == "fails: failed: exit 1"
    assert max(map(len, goals.table(many))) <= 120


@pytest.mark.long
@pytest.mark.skipif(compiler() is None, reason="there is no g++")
@pytest.mark.parametrize("call", ["1", "2"])
def test_a_call_is_rehearsed_to_its_end(tmp_path, call):
    """Every section runs on an emulated device, at small sizes; no limit is met on a slow machine either."""
    if reason := backends.why_not("native"):
        pytest.skip(reason)
    out, limit = tmp_path / "out", 3000
    asked = {"REHEARSE": "1", "CALL": call, "LIMIT": str(limit), "PYTHON": sys.executable, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(["bash", SCRIPT, out], capture_output=True, text=True, timeout=limit + 100, env={**os.environ, **asked})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert states(out) == dict.fromkeys((section.name for section in plan.sections_of(call, out, [], [])), "passed")
    assert len(list(out.iterdir())) <= 8
    *table, last = done.stdout.splitlines()[-LONGEST_TABLE:]
    assert last.startswith("all well")
    assert sum("edges a second, k = " in line for line in table) == 5
