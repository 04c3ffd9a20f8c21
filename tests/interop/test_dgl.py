"""Loaders for DGL, checked where DGL is: in this Python, or in the one that BULKSAMPLE_DGL_PYTHON names."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from waiting import PATIENCE

import bulksample

FILES = [Path(__file__).with_name(name) for name in ("dgl_checks.py", "dgl_edge_checks.py")]
MADE = {"both", "graph_of", "heterograph_of", "typed"}  # functions that take nothing, and are no checks
NAMES = {
    file: [
        node.name for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.args.args and node.name not in MADE
    ]
    for file in FILES
}  # fmt: skip


PYTHON = os.environ.get("BULKSAMPLE_DGL_PYTHON") or (sys.executable if importlib.util.find_spec("dgl") else None)


@cache
def results(file):
    where = {**os.environ, "PYTHONPATH": str(Path(bulksample.__file__).parents[1]), "DGLBACKEND": "pytorch"}
    done = subprocess.run([PYTHON, str(file)], capture_output=True, text=True, timeout=PATIENCE, env=where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(PYTHON is None, reason="DGL is not installed, and BULKSAMPLE_DGL_PYTHON names no Python that has it")
@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, names in NAMES.items() for name in (names if PYTHON else ["every check"])],
    ids=lambda one: getattr(one, "stem", one),
)  # fmt: skip
def test_dgl(file, name):
    assert results(file)[name] == "", results(file)[name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_check_is_run(file):
    """`CHECKS` names every function that takes nothing."""
    listed = next(
        node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECKS"
    )
    assert [element.id for element in listed.value.elts] == NAMES[file]


@pytest.mark.skipif(importlib.util.find_spec("dgl") is not None, reason="DGL is installed")
def test_without_dgl_one_line_says_what_would_fit():
    from bulksample.interop.dgl import DataLoader, NeighborSampler

    with pytest.raises(ImportError, match="dgl is needed here") as caught:
        DataLoader(None, [0], NeighborSampler([2]))
    assert "\n" not in str(caught.value)
