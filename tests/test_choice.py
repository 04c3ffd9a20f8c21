"""The tests that a run takes: by the change, by the day, and by what failed before. Runs of pytest on small repositories."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import choice
import pytest
from waiting import PATIENCE

_OUTCOME = re.compile("PASSED|FAILED|TO CLEAR")
HERE = Path(__file__).parent
PLUGIN = ("chosen.py", "choice.py", "launch.py", "fork_server.py", "forked_rank.py", "waiting.py")
PRODUCT = """
import os
import pytest

@pytest.mark.long
@pytest.mark.parametrize("i", range(28))
def test_product(i):
    assert i != int(os.environ.get("FAILS", -1)), "a part fails"

@pytest.mark.long
@pytest.mark.parametrize("i", range(4))
def test_small_product(i):
    pass

@pytest.mark.long
@pytest.mark.parametrize("i", range(parts_of_no_product))
def test_few(i):
    pass

def test_short():
    assert "FAILS_SHORT" not in os.environ
""".replace("parts_of_no_product", str(choice.LARGE - 1))
SPEED = """
import os
import pytest

def test_speed():
    pass

@pytest.mark.long
@pytest.mark.parametrize("i", range(3))
def test_case(i):
    assert os.environ.get("FAILS_CASE") != str(i)
"""


class Repository:
    """A repository with this choice of tests, which has a history: a commit of long ago, and one of now."""

    def __init__(self, root):
        self.root, self.list = root, root.parent / "to_clear.json"
        self.write("tests/conftest.py", 'pytest_plugins = ["chosen"]\n')
        for name in PLUGIN:
            shutil.copy(HERE / name, root / "tests")
        self.write("pytest.ini", "[pytest]\npythonpath = tests\naddopts = -p no:randomly\nmarkers =\n    long: long\n    part: part\n")
        self.write(".gitignore", "__pycache__\n.pytest_cache\n")
        self.write("tests/products/test_products.py", PRODUCT)
        self.write("tests/bench/test_speed.py", SPEED)
        self.write("bench/speed.py", "")
        self.git("init", "-q", "-b", "main")
        self.commit("long ago", "2020-01-01T00:00:00Z")

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def git(self, *words, **environment):
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, env={**os.environ, **who, **environment})

    def commit(self, message, when="2024-01-01T00:00:00Z"):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, GIT_AUTHOR_DATE=when, GIT_COMMITTER_DATE=when)

    def run(self, *words, day=0, **environment):
        """Run pytest; returns the exit code, the outcome of each test that ran, and what was printed."""
        clean = {name: value for name, value in os.environ.items() if name not in ("ALL", "CI", "BULKSAMPLE_BASE")}
        line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", f"--to-clear={self.list}", *words]
        done = subprocess.run(line, cwd=self.root, env={**clean, "BULKSAMPLE_DAY": str(day), **environment}, capture_output=True, text=True,
                              timeout=PATIENCE)  # fmt: skip
        ran = {name for line in done.stdout.splitlines() if _OUTCOME.search(line) for name in re.findall(r"tests/\S+::\S+", line)}
        return done.returncode, {name.removeprefix("tests/") for name in ran}, done.stdout + done.stderr

    def kept(self):
        return json.loads(self.list.read_text())["failures"]


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repository")
    made.commit("now")
    return made


def cases(ran, test="test_product"):
    return {int(name.partition("[")[2][:-1]) for name in ran if name.startswith(f"products/test_products.py::{test}[")}


def test_a_week_of_parts_is_the_whole_product_once(repository):
    days = [repository.run(day=day)[1] for day in range(choice.DAYS)]
    assert sorted(case for ran in days for case in cases(ran)) == list(range(28))
    small = [cases(ran, "test_small_product") for ran in days]
    assert all(len(ran) == 1 for ran in small)
    assert set.union(*small) == set(range(4))
    assert all(cases(ran, "test_few") == set(range(choice.LARGE - 1)) and "products/test_products.py::test_short" in ran for ran in days)
    for name in ("bench/test_speed.py::test_speed", *(f"bench/test_speed.py::test_case[{i}]" for i in range(3))):
        assert sum(name in ran for ran in days) == 1
    assert cases(repository.run(ALL="1")[1]) == set(range(28))


@pytest.mark.parametrize("path", ["bench/speed.py", "tests/bench/test_speed.py"])
@pytest.mark.parametrize("committed", [True, False])
def test_tests_whose_inputs_changed_run(repository, path, committed):
    other = (choice.day_of("tests/bench/test_speed.py") + 1) % choice.DAYS
    assert "bench/test_speed.py::test_speed" not in repository.run(day=other)[1]
    repository.write(path, SPEED + "# changed\n")
    if committed:
        repository.commit("change", "2024-01-01T01:00:00Z")
    asked = {"bench/test_speed.py::test_speed", *(f"bench/test_speed.py::test_case[{i}]" for i in range(3))}
    assert asked <= repository.run(day=other)[1]


def test_a_failure_of_any_case_counts_where_inputs_changed(repository):
    repository.write("bench/speed.py", "# changed")
    assert all(repository.run(day=0, FAILS_CASE=str(i), CI="true")[0] == 1 for i in range(3))
    assert repository.kept() == {}


def of_day(day):
    """Cases of the product that run on a day."""
    when = choice.turns([f"tests/products/test_products.py::test_product[{i}]" for i in range(28)])
    return {i for i in range(28) if day in when[f"tests/products/test_products.py::test_product[{i}]"]}


def failing(day):
    return min(of_day(day))


def test_a_failure_of_the_part_passes_once_and_must_then_be_cleared(repository):
    bad, name = str(failing(3)), f"tests/products/test_products.py::test_product[{failing(3)}]"
    code, _, said = repository.run(day=3, FAILS=bad, CI="true")
    assert code == 0, said
    assert "1 to clear" in said
    assert f"TO CLEAR: {name}" in said
    assert list(repository.kept()) == [name]
    assert repository.run(day=3, FAILS=bad, CI="true")[0] == 0  # the same change again

    repository.write("other.txt", "")
    repository.commit("the next change", "2024-01-02T00:00:00Z")
    code, ran, said = repository.run(day=4, FAILS=bad, CI="true")
    assert code == 1, said
    assert name.removeprefix("tests/") in ran
    assert f"had to be cleared: {name}: failed" in said
    assert list(repository.kept()) == [name]
    assert repository.run(day=4, CI="true")[0] == 0
    assert repository.kept() == {}


def test_all_of_a_product_runs_and_counts_in_a_file_that_the_change_touches(repository):
    repository.write("tests/products/test_products.py", PRODUCT + "\n")
    code, ran, said = repository.run(day=3, FAILS=str(failing(4)), CI="true")
    assert code == 1, said
    assert cases(ran) == set(range(28))
    assert repository.kept() == {}


@pytest.mark.parametrize("path", ["bulksample/products/made.py", "tests/products/helper.py"])
def test_a_failure_of_the_part_counts_if_the_change_touches_its_folder_or_the_package_of_that_name(repository, path):
    repository.write(path, "")
    code, ran, said = repository.run(day=3, FAILS=str(failing(3)), CI="true")
    assert code == 1, said
    assert cases(ran) == of_day(3)
    assert repository.kept() == {}


def test_another_failure_beside_one_of_the_part_counts(repository):
    code, _, said = repository.run(day=3, FAILS=str(failing(3)), FAILS_SHORT="1", CI="true")
    assert code == 1, said
    assert "1 failed" in said
    assert "1 to clear" in said


def test_a_run_that_breaks_off_clears_nothing(repository):
    repository.run(day=3, FAILS=str(failing(3)), CI="true")
    kept = repository.list.read_text()
    repository.write("tests/test_broken.py", "import nowhere\n")
    repository.commit("the next change", "2024-01-02T00:00:00Z")
    assert repository.run(day=4, CI="true")[0] == 2
    assert repository.list.read_text() == kept


def test_only_ci_writes_the_list(repository):
    assert repository.run(day=3, FAILS=str(failing(3)))[0] == 0
    assert not repository.list.exists()


def test_two_workers_choose_alike_and_tell_the_same(repository):
    code, ran, said = repository.run("-n", "2", day=3, FAILS=str(failing(3)), CI="true")
    assert code == 0, said
    assert cases(ran) == of_day(3)
    assert len(repository.kept()) == 1


def test_a_failure_is_told_with_its_command_and_the_end_of_each_rank(repository):
    program = "import os\\nfor i in range(30): print(os.environ['PMI_RANK'], 'says', i)"
    test = f'def test_ranks():\n    assert not run_fresh(2, "{program}").out\n'
    repository.write("tests/test_ranks.py", f"from launch import run_fresh\n\n{test}")
    code, _, said = repository.run("tests/test_ranks.py")
    if "no mpirun" in said:
        pytest.skip("mpirun is missing: pip install mpich")
    assert code == 1, said
    end = said[said.index("repeat: ") :]
    command = end.splitlines()[0].removeprefix("repeat: ")
    for rank in (0, 1):
        lines = end.partition(f"rank {rank}, stdout, the last 20 lines:\n")[2].splitlines()[:20]
        assert [line.strip() for line in lines] == [f"{rank} says {i}" for i in range(10, 30)]
    again = subprocess.run(command, shell=True, cwd=repository.root, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 1
    assert "1 failed" in again.stdout
