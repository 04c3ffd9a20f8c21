"""Loaders for DGL, checked where DGL is: in this Python, or in the one that BULKSAMPLE_DGL_PYTHON names."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

import bulksample

FILE = Path(__file__).with_name("dgl_checks.py")
NAMES = [
    node.name for node in ast.parse(FILE.read_text()).body
    if isinstance(node, ast.FunctionDef) and not node.args.args and node.name not in ("both", "results", "graph_of", "heterograph_of")
]  # fmt: skip


PYTHON = os.environ.get("BULKSAMPLE_DGL_PYTHON") or (sys.executable if importlib.util.find_spec("dgl") else None)


@pytest.fixture(scope="module")
def results():
    if PYTHON is None:
        pytest.skip("DGL is not installed, and BULKSAMPLE_DGL_PYTHON names no Python that has it")
    where = {**os.environ, "PYTHONPATH": str(Path(bulksample.__file__).parents[1]), "DGLBACKEND": "pytorch"}
    done = subprocess.run([PYTHON, str(FILE)], capture_output=True, text=True, timeout=PATIENCE, env=where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES if PYTHON else ["every check"])
def test_dgl(results, name):
    assert results[name] == "", results[name]


def test_every_check_is_run():
    """`CHECKS` names every function that takes nothing."""
    listed = next(node for node in ast.parse(FILE.read_text()).body if isinstance(node, ast.Assign) and node.targets[0].id == "CHECKS")
    assert [element.id for element in listed.value.elts] == NAMES


@pytest.mark.skipif(importlib.util.find_spec("dgl") is not None, reason="DGL is installed")
def test_without_dgl_one_line_says_what_would_fit():
    from bulksample.interop.dgl import DataLoader, NeighborSampler

    with pytest.raises(ImportError, match="dgl is needed here") as caught:
        DataLoader(None, [0], NeighborSampler([2]))
    assert "\n" not in str(caught.value)
