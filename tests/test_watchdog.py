"""A test that hangs where no exception reaches it is named, and the others run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

HANGS = {
    "compiled": "def test_it():\n    lock = bytes(64)\n    for _ in range(2):\n        ctypes.CDLL(None).pthread_mutex_lock(lock)\n",
    "torn down": "@pytest.fixture\ndef held():\n    yield\n    try:\n        time.sleep(600)\n    except BaseException:\n        time.sleep(600)\n\n"
    "def test_it(held):\n    pass\n",
}


@pytest.mark.parametrize("where", HANGS)
def test_a_hang_is_a_failure_with_a_name(tmp_path, where):
    others = "@pytest.mark.parametrize('i', range(6))\ndef test_other(i):\n    pass\n"
    (tmp_path / "test_hang.py").write_text("import ctypes\nimport time\nimport pytest\n\n" + HANGS[where] + "\n" + others)
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
