"""The fuzzer finds planted faults, keeps the inputs, and its targets accept their seeds."""

import shlex
import subprocess
import sys
from collections import deque
from contextlib import suppress
from importlib import import_module

import pytest

from sweep import fuzz, fuzz_frames
from sweep.fuzz_targets import joined, split

CASE = {"group": "test", "module": "sweep.faulty_targets", "seconds": 1, "seed": 1}
ALL = [(case["module"], case["target"]) for case in fuzz.cases(1)]


@pytest.fixture
def atheris():
    if why := fuzz.missing():
        pytest.skip(why)


def test_each_reader_has_ten_minutes():
    seconds = {reader: sum(case["seconds"] for case in fuzz.cases(1) if case["group"] == reader) for reader in fuzz.READERS}
    assert set(seconds.values()) == {600}
    assert [case["target"] for case in fuzz.cases(1, 0.1)] == [case["target"] for case in fuzz.cases(1)]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("raises", "KeyError: 'boom'"),
        pytest.param("hangs", "timeout after", marks=pytest.mark.long),
        pytest.param("hoards", "out-of-memory", marks=pytest.mark.long),
    ],
)
def test_a_fault_is_found_and_can_be_repeated(atheris, tmp_path, target, said):
    found = fuzz.run(CASE | {"target": target, "seconds": 20}, tmp_path, deadline=2)
    assert not found["passed"]
    assert said in found["seen"]
    [saved] = [path for path in (tmp_path / target).iterdir() if path.is_file()]
    command = found["seen"].rpartition("repeat: python ")[2]
    assert command.endswith(f" --repeat {saved}")
    if target == "raises":
        ended = subprocess.run([sys.executable, *shlex.split(command)], capture_output=True, text=True)
        assert "KeyError: 'boom'" in ended.stderr


@pytest.mark.long
def test_a_documented_refusal_is_no_fault(atheris, tmp_path):
    found = fuzz.run(CASE | {"target": "refuses"}, tmp_path)
    assert found["passed"], found
    assert found["counted"]["inputs"] > 1


@pytest.mark.parametrize(
    ("code", "said", "seen"),
    [
        (0, "", "exit code 0"),  # atheris ran nothing
        (-11, "stat::number_of_executed_units: 7", "exit code -11"),
        (0, "#7 DONE cov: 12 ft: 3\nstat::number_of_executed_units: 7", "targets without a fault"),
    ],
)
def test_only_a_search_that_ends_without_a_fault_passes(code, said, seen):
    found = fuzz.judged(code, said, "")
    assert seen in found["seen"]
    assert found["passed"] == (seen == "targets without a fault")


def test_parts_survive_any_cut():
    parts = [b"", b"a", b"b" * 300]
    assert split(joined(parts)) == parts
    assert split(joined(parts)[:-1]) == [b"", b"a", b"b" * 299]


@pytest.mark.parametrize(("module", "target"), [ALL[0], *(pytest.param(*one, marks=pytest.mark.long) for one in ALL[1:])])
def test_the_first_seed_of_a_target_is_accepted_and_no_other_fails(tmp_path, monkeypatch, module, target):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = import_module(module).TARGETS[target]
    attempt = chosen.made(tmp_path)
    first, *others = chosen.seeds()
    attempt(first)
    for seed in others:
        with suppress(chosen.refusals):
            attempt(seed)


@pytest.mark.long
def test_an_answer_that_is_not_finite_would_be_found(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_frames, "fault_of", lambda *_: "")
    attempt = fuzz_frames.TARGETS["trainer"].made(tmp_path)
    with pytest.raises(AssertionError, match="not finite"):
        deque(map(attempt, fuzz_frames.of_trainers()))


@pytest.mark.long
@pytest.mark.parametrize("case", fuzz.cases(1, 0.1), ids=lambda case: case["target"])
def test_a_short_search_finds_no_fault(atheris, tmp_path, case):
    found = fuzz.run(case, tmp_path)
    assert found["passed"], found["seen"]
