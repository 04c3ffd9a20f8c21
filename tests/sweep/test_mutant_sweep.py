"""The sections `coverage` and `mutants` of `make sweep`: lines and branches are attributed to tests, edits are made and noticed."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("coverage", reason="pip install coverage would bring it")

import keep
from coverage import Coverage

from sweep import branches, mutants, native_edits, python_edits
from sweep.line_tests import LineTests, run_tests
from sweep.mutant import drawn, named, short

CODE = """import os

def sign(a):
    if a < 0:
        return -1
    return 1

def parent(): return os.fork()

def child():
    return 2
"""
TESTS = """import os, subprocess, sys
import pytest
import small

@pytest.mark.parametrize("value", [1, 2])
def test_sign(value):
    assert small.sign(value) == 1

def test_child():
    pid = small.parent()
    if not pid:
        small.child()
        os._exit(0)
    os.waitpid(pid, 0)

def test_program():
    subprocess.run([sys.executable, "-c", "import small; small.sign(-2)"], check=True)

def test_that_fails():
    assert small.sign(3) == 2
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "small.py").write_text(CODE)
    (folder / "test_small.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def test_children_are_measured_and_lines_know_their_tests(project):
    measured = project / "measured"
    code, out = run_tests(["-q", "-p", "no:xdist"], measured, 100, project, project)
    assert code == 1, out
    tests, file = LineTests([measured]), str(project / "small.py")
    assert set(tests.of(file, [6])) == {"test_small.py::test_sign[1]", "test_small.py::test_sign[2]"}
    assert tests.of(file, [5]) == ["test_small.py::test_program"]
    assert tests.of(file, [11]) == ["test_small.py::test_child"]
    found = Coverage(data_file=str(measured / "branches"), config_file=False)
    found.load()
    assert found.analysis(file)[2] == []


def test_quickest_cases_of_all_functions_come_first(tmp_path):
    tests = LineTests([])
    tests.seconds = {"t::a[1]": 3.0, "t::a[2]": 1.0, "t::b": 2.0}
    assert tests.sorted({"t::a[1]", "t::a[2]", "t::b", "t::unknown"}) == ["t::a[2]", "t::b", "t::a[1]"]


def changes(source):
    return {short(edit.old, edit.new) for edit in python_edits.edits(source)}


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("a = b < c", {"b < c -> (b <= c)"}), ("a = b - 2", {"b - 2 -> (b + 2)", "2 -> 3", "2 -> 1"}), ("a = True", {"True -> False"}),
        ("if not a: b", {"not a -> a"}), ("if a: b", {"a -> (not a)"}), ("f(a, b)", {"f(a, b) -> pass", "f(a, b) -> f(b, a)"}),
        ("a = b and c", {"b and c -> (b or c)"}), ("a = b[c:]", {"c: -> :"}), ("a = min(b)", {"min -> max"}),
        ("a += b", {"a += b -> pass", "a += b -> a -= b"}), ("for a in b:\n    break", {"break -> continue"}),
        ("ä = 'ä', b < c", {"b < c -> (b <= c)"}),
    ],
)  # fmt: skip
def test_code_is_edited(source, made):
    assert changes(source) == made
    assert all(compile(edit.applied(source), "x", "exec") for edit in python_edits.edits(source))


@pytest.mark.parametrize(
    "source",
    ['"""a < 1"""', "raise ValueError(f'{a < 1}')", "def f(a: b[1]) -> c[2]: '''1'''", "log.info(a < 1)", "assert a < 1", "import a",
     "@f(1)\ndef g(): d",
     "def __repr__(a): return 1 < 2", "if TYPE_CHECKING: a < 1", "a = 'b' + c", "a = f'{b + 1}'", "warnings.warn(a, stacklevel=2)"],
)  # fmt: skip
def test_what_no_result_depends_on_is_left_alone(source):
    assert changes(source) == set()


def test_an_edit_is_tested_by_what_runs_its_line():
    source = "A = 1\nclass B:\n    c: int = 2\n    def f(self, a=3):\n        d = [\n            4]\n        return d\n"
    assert {edit.old: (edit.where, edit.line, edit.first, edit.last) for edit in python_edits.edits(source)} == {
        "1": ("", 1, 1, 7), "2": ("B", 3, 1, 7), "3": ("B.f", 4, 4, 7), "4": ("B.f", 5, 5, 6)
    }  # fmt: skip


def test_a_name_survives_edits_elsewhere_and_so_does_the_draw():
    before, after = ({"f": named("f", python_edits.edits(source))} for source in ("a = 1 < b\nc = 1", "z = 5\na = 1 < b\nc = 1"))
    assert before["f"].keys() < after["f"].keys() | {"f top: 1 -> 2 (2)"}
    assert drawn(1, "g", before, 9) == drawn(1, "g", before, 9)
    assert drawn(1, "g", before, 1)[0] in drawn(1, "g", after, 9)
    assert len(drawn(1, "g", after, 9)) == 3  # one for each line


def test_code_in_c_is_edited():
    source = "bs_i64 f(int a) {\n  // a < 1\n  if (a < 1) throw a;\n  foretell(a + 1);\n  return a + b;  // 3\n}\n"
    (edit,) = native_edits.edits(source)
    assert (edit.where, edit.line, short(edit.old.strip(), edit.new.strip())) == ("f", 5, "return a + b; -> return a - b;")
    assert edit.applied(source) == source.replace("a + b", "a - b")


def test_cases_are_four_hundred_and_each_edits_its_file():
    cases = mutants.cases(2024)
    assert len(cases) == 400
    assert len({case["mutant"] for case in cases}) == 400
    assert cases == mutants.cases(2024) != mutants.cases(2025)
    for case in cases:
        edit = mutants.edits(case["file"])[case["mutant"]]
        assert mutants.source_of(case["file"])[edit.start : edit.end] == edit.old != edit.new


@pytest.mark.parametrize(
    ("old", "new", "tests", "seen"),
    [
        ("< 0", "> 0", "test_sign", "killed"), ("< 0", "<= 0", "test_sign", "survives"), ("-1", "-2", "test_that_fails", "fails without"),
        ("return 1", "while 1: pass", "test_sign", "limit of time"), ("import os", "import os1", "test_sign", "killed"),
    ],
)  # fmt: skip
def test_a_mutant_is_judged_by_its_tests(project, server, monkeypatch, old, new, tests, seen):
    monkeypatch.setattr(mutants, "ROOT", project)
    monkeypatch.setattr(mutants, "LIMIT", 0.5 if "time" in seen else 100.0)
    monkeypatch.setattr(mutants, "server", lambda: server)
    monkeypatch.setattr(mutants, "source_of", lambda file: CODE)
    at = CODE.index(old)
    edit = mutants.Edit(at, at + len(old), old, new, "", 1, 1, 1)
    assert seen in mutants.tried("small.py", edit, [f"test_small.py::{tests}"])["seen"]
    assert (project / "small.py").read_text() == CODE


@pytest.fixture(scope="module")
def server(project):
    made = mutants.started(project, ("pytest",))
    yield made
    made.close()


def test_a_survivor_needs_a_reason(monkeypatch, tmp_path):
    case = mutants.cases(2024)[0]
    monkeypatch.setattr(mutants, "tests_of", lambda file, edit: [])
    monkeypatch.setattr(mutants, "REASONS", tmp_path / "survivors.json")
    mutants.REASONS.write_text("{}")
    assert mutants.run(case) == {"passed": False, "seen": "no short test runs it", "tests": 0}
    mutants.REASONS.write_text(json.dumps({case["mutant"]: "speed alone"}))
    assert mutants.run(case)["reason"] == "speed alone"
    mutants.REASONS.write_text(json.dumps({case["mutant"]: "tests/x.py::test_y"}))
    monkeypatch.setattr(mutants, "tried", lambda file, edit, tests: {"seen": "killed", "by": tests[0]})
    assert mutants.run(case) == {"passed": True, "seen": "killed by a named test", "by": "tests/x.py::test_y"}
    monkeypatch.setattr(mutants, "tried", lambda file, edit, tests: {"seen": "survives"})
    assert not mutants.run(case)["passed"]


def test_shares_are_of_lines_and_branches():
    counts = [
        {"covered_lines": 3, "num_statements": 4, "covered_branches": 0, "num_branches": 2},
        {"covered_lines": 1, "num_statements": 1, "covered_branches": 1, "num_branches": 1},
    ]
    assert branches._per_cent(counts) == 62.5
    assert branches._per_cent(counts, ("branches",)) == 33.3
    assert branches._per_cent([]) == 100.0


def test_the_kept_results_reach_their_aims():
    parts = keep.load("reliability")
    counts = parts["mutants"]["result"]["groups"].values()
    killed = sum(number for group in counts for seen, number in group["seen"].items() if seen.startswith("killed"))
    assert killed >= 0.85 * sum(group["run"] for group in counts)
    assert parts["coverage"]["result"]["figures"]["package, short tests"]["lines_and_branches"] >= branches.LEAST


@pytest.mark.long
def test_a_copy_of_the_extension_holds_the_edit():
    native = pytest.importorskip("bulksample._native", reason="the extension is not built")
    pytest.importorskip("pybind11", reason="pip install pybind11 would bring it")
    file = "csrc/native_draws.cpp"
    built = native_edits.build(file, mutants.source_of(file).replace("index + (bs_u32)i", "index + 1 + (bs_u32)i"))
    assert words(built, first=0) == words(native.__file__, first=1) != words(native.__file__, first=0)
    assert "error" in native_edits.build(file, mutants.source_of(file).replace("fill_words", "fill words"))


def words(extension, first):
    """Return random words as an extension of another process draws them."""
    load = f"from importlib.util import *; s = spec_from_file_location('bulksample._native', {str(extension)!r}); m = module_from_spec(s)"
    call = f"s.loader.exec_module(m); print(m.random_words(1, 2, {first}, 3, 4, 5, 1).tolist())"
    return subprocess.run([sys.executable, "-c", f"{load}; {call}"], capture_output=True, text=True, check=True).stdout
