"""Plain pytest and ruff see every file, and a part that a run requires is not missing in silence."""

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import choice
import first_collection
import pytest
import required
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
NOT_OURS = {"build", ".venv", ".git"}


def files(pattern):
    """The files of the repository that fit `pattern`, by walking the tree."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob(pattern))
    return {path.as_posix() for path in found if not NOT_OURS & set(path.parts)}


LIST = """
import sys, pytest
class List:
    def pytest_pycollect_makemodule(self, module_path, parent):
        print("FILE", module_path.relative_to(parent.config.rootpath).as_posix())
        class Nothing(pytest.Module):
            def collect(self):
                return []
        return Nothing.from_parent(parent, path=module_path)
sys.exit(pytest.main(["--collect-only", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[List()]))
"""


def test_plain_pytest_collects_every_test_file():
    done = subprocess.run([sys.executable, "-c", LIST], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FILE ")} == files("test_*.py")


def test_ruff_reads_every_python_file():
    command = [sys.executable, "-m", "ruff", "check", "--show-files", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    read = {Path(line).relative_to(ROOT).as_posix() for line in done.stdout.splitlines() if line.endswith(".py")}
    assert read == files("*.py")


def test_no_two_modules_of_tests_and_benchmarks_share_a_name():
    """Their folders lie on one path during a run, so the second of two would not be found; those of a package begin with its name."""

    def name(file):
        folder = (ROOT / file).parent
        return f"{folder.name}.{Path(file).stem}" if (folder / "__init__.py").exists() else Path(file).stem

    seen = Counter(name(file) for file in files("*.py") if file.startswith(("tests/", "bench/")))
    assert {one for one, count in seen.items() if count > 1} <= {"conftest"}


def without_match(source):
    """Lines that expect an error of any text; ruff's PT011 does not see tuples of errors, names of variables and keywords."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "raises" and "match" not in {word.arg for word in call.keywords}
    ]


def test_every_expected_error_is_matched_by_its_text():
    assert without_match("with pytest.raises((KeyError, own), match='a'): pass") == []
    assert without_match("with pytest.raises((KeyError, own)): pass") == [1]
    sources = {name: (ROOT / name).read_text() for name in files("*.py")}
    assert {name: lines for name, source in sources.items() if ".raises(" in source and (lines := without_match(source))} == {}


def test_a_required_part_that_is_there_passes():
    required.check({})
    required.check({required.VARIABLE: "native" if not required.native() else ""})


@pytest.mark.parametrize("part", required.PARTS)
def test_a_required_part_that_is_missing_is_an_error(part, monkeypatch):
    monkeypatch.setitem(required.PARTS, part, lambda: "it is out")
    with pytest.raises(pytest.UsageError, match=f"requires {part}: it is out"):
        required.check({required.VARIABLE: part})


def test_an_unknown_part_is_an_error():
    with pytest.raises(pytest.UsageError, match="got 'nativ'; use native, emulated, mpirun"):
        required.check({required.VARIABLE: "mpirun, nativ"})


def test_a_run_without_a_compiler_fails_where_emulation_is_required():
    environment = {**os.environ, "CXX": "no-such-compiler", required.VARIABLE: "emulated"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "tests/test_sparse.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "requires emulated: there is no C++ compiler" in done.stderr


REGISTERED = """
import first_collection
def pytest_configure(config):
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(first_collection)
"""
SLOW = """
import os, time
def note(word):
    with open("seen", "a") as file:
        file.write(f"{os.getpid()} {word}\\n")
note("begins")
time.sleep(1)
note("ends")
def test_nothing():
    pass
"""


def test_one_worker_collects_a_fresh_checkout_before_the_others(tmp_path):
    files = {"first_collection.py": Path(first_collection.__file__).read_text(), "conftest.py": REGISTERED, "test_slow.py": SLOW}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONDONT"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-n", "3"]
    subprocess.run(command, cwd=tmp_path, env={**outside, "PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=PATIENCE, check=True)
    (first, begins), (again, ends), *others = (line.split() for line in (tmp_path / "seen").read_text().splitlines())
    assert (first, begins, ends) == (again, "begins", "ends")
    assert len(others) == 4


def test_declared_inputs_of_tests_exist():
    for begin, inputs in choice.INPUTS.items():
        assert (choice.ROOT / begin.partition("::")[0]).exists(), begin
        assert all((choice.ROOT / path).exists() for path in inputs), begin
