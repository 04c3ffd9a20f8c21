"""A test that hangs where no exception reaches it is named, and the others run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

COMPILED = """
def test_it():
    lock = bytes(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)
"""
TORN_DOWN = """
@pytest.fixture
def held():
    yield
    with suppress(BaseException):
        time.sleep(600)
    time.sleep(600)

def test_it(held):
    pass
"""
OTHERS = """
@pytest.mark.parametrize("i", range(6))
def test_other(i):
    pass
"""


@pytest.mark.parametrize("hang", [COMPILED, TORN_DOWN], ids=["compiled", "torn down"])
def test_a_hang_is_a_failure_with_a_name(tmp_path, hang):
    imports = "import ctypes, time\nfrom contextlib import suppress\nimport pytest\n"
    (tmp_path / "test_hang.py").write_text(imports + hang + OTHERS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "BULKSAMPLE_PATIENCE": "0.005"}  # 1.5 s, 4.5 s for a test
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    line = ["-q", "-p", "watchdog", "-p", "no:randomly", "-n", "2", "--dist", "worksteal", "--timeout", "4.5", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "crashed while running 'test_hang.py::test_it'" in run.stdout
    assert "6 passed" in run.stdout or "7 passed" in run.stdout  # a test that hangs as it is torn down has passed before
    assert 'test_hang.py", line' in run.stderr  # where it stood
