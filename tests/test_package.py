"""Rules for the package as a whole: cheap imports, no pickle, a docstring on everything public."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE

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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "[]"


def test_nothing_of_ours_is_or_reads_a_pickle():
    for path in SOURCES:
        text = path.read_text()
        assert not set(imports(path)) & {"pickle", "dill", "joblib", "shelve", "marshal"}, path
        assert not re.search(r"allow_pickle\s*=\s*True|weights_only\s*=\s*False|torch\.load\(", text), path


def test_text_is_read_and_written_as_utf_8():
    """The encoding of the user's language may lack what a page, a table or a name holds."""
    nameless = []
    for file in sorted(Path(bulksample.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                opens = name == "open" and isinstance(node.func, ast.Name)
                modes = [ast.unparse(one) for one in (*node.args[1:2], *(keyword.value for keyword in node.keywords))]
                binary = opens and any("b'" in mode for mode in modes)
                named = any(keyword.arg in ("encoding", "closefd") for keyword in node.keywords)
                if (opens or name in ("read_text", "write_text")) and not named and not binary:
                    nameless.append(f"{file.name}:{node.lineno}")
    assert nameless == []


def test_every_public_module_and_class_says_what_it_is():
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not tree.body, f"{path} has no docstring"
        for node in tree.body:
            overload = any(getattr(mark, "id", None) == "overload" for mark in getattr(node, "decorator_list", []))
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_") and not overload:
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
