"""What the README shows runs as it is shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

from zoo import random_matrix

from bulksample import Graph
from bulksample.data import store

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs(tmp_path):
    store.save(Graph(random_matrix(500, 6000, 1)), tmp_path / "my-graph")
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=os.environ.copy())
    assert done.returncode == 0, done.stderr


def test_every_command_and_option_that_is_shown_exists():
    shown = re.findall(r"bulksample (info|data (?:import|make|info|verify)|partition|sample|train)\b([^\n#]*)", README)
    assert len(shown) >= 7
    for command, rest in shown:
        parts = command.split()
        if parts[-1] in ("import", "make"):
            parts.append({"import": "npz", "make": "rmat"}[parts[-1]])
        wide = {**os.environ, "COLUMNS": "200"}
        program = [sys.executable, "-m", "bulksample", *parts, "--help"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, env=wide)
        assert done.returncode == 0, done.stderr
        for option in set(re.findall(r"--[a-z-]+", rest.split("bulksample")[0])):
            assert option in done.stdout, f"bulksample {command} has no {option}"


