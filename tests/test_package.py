"""What holds for the package as a whole: cheap imports, one way of dependence, no pickle."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bulksample

PACKAGE = Path(bulksample.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("torch", "mpi4py", "cupy", "scipy", "pydantic", "typer", "rich")


def imports(path):
    """Every module a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_importing_the_package_loads_numpy_alone():
    code = f"import sys, bulksample; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "homes"),
    [
        ("mpi4py", ["distributed/comm/world.py"]),
        ("cupy", ["backends/cuda/", "training/cuda/"]),
        ("torch", ["distributed/comm/torch_distributed.py", "nn/", "views/", "evaluation/", "training/", "methods/", "interop/"]),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(module, homes):
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        if any(imported.split(".")[0] == module for imported in imports(path)):
            assert any(name.startswith(home) for home in homes), f"{name} imports {module}"


@pytest.mark.parametrize(
    ("layer", "forbidden"),
    [
        ("samplers", ["distributed", "nn", "views", "evaluation", "methods", "training", "cli", "data"]),
        ("distributed", ["samplers", "nn", "views", "evaluation", "methods", "training", "cli"]),
        ("backends", ["samplers", "distributed", "nn", "views", "evaluation", "methods", "training", "cli", "data", "loader"]),
        ("data", ["distributed", "nn", "views", "methods", "training", "cli", "samplers"]),
        ("nn", ["samplers", "views", "methods", "training", "cli"]),
        ("methods", ["cli"]),
    ],
)
def test_dependence_runs_one_way(layer, forbidden):
    for path in (PACKAGE / layer).rglob("*.py"):
        tree = ast.parse(path.read_text())
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                first = (node.module or node.names[0].name).split(".")[0]
                assert first not in forbidden, f"{path.name} imports {first}"


def test_nothing_of_ours_is_or_reads_a_pickle():
    for path in SOURCES:
        text = path.read_text()
        assert not set(imports(path)) & {"pickle", "dill", "joblib", "shelve", "marshal"}, path
        assert not re.search(r"allow_pickle\s*=\s*True|weights_only\s*=\s*False|torch\.load\(", text), path


def test_every_public_module_and_class_says_what_it_is():
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not tree.body, f"{path} has no docstring"
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
