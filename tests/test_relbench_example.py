"""examples/relbench_entity.py: RelBench's own modules on batches of our loader, where relbench and pytorch_frame are."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

ROOT = Path(__file__).parents[1]
FOLDER = ROOT.parent / "shared" / "data" / "f1"
NEEDED = ("relbench", "torch_frame")
HERE = all(importlib.util.find_spec(name) for name in NEEDED)
PYTHON = os.environ.get("BULKSAMPLE_RELBENCH_PYTHON") or (sys.executable if HERE else None)


@pytest.mark.long
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the Formula 1 tables are not here")
@pytest.mark.skipif(
    PYTHON is None, reason=f"{' and '.join(NEEDED)} are not installed, and BULKSAMPLE_RELBENCH_PYTHON names no Python with them"
)
def test_the_entity_example_of_relbench_trains_on_our_batches():
    options = ["--task", "driver-top3", "--epochs", "3", "--channels", "16", "--neighbors", "16"]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [PYTHON, "examples/relbench_entity.py", str(FOLDER), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, env=where)
    assert done.returncode == 0, done.stderr
    *epochs, last = done.stdout.splitlines()
    assert len(epochs) == 3
    assert float(last.removeprefix("test rocauc ")) > 0.6, "a driver's constant has 0.557"
