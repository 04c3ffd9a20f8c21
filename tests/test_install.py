"""The install itself: what ships, and that it survives a machine without a compiler."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def install(tmp_path, **environment):
    """Copy the sources and install them into a folder of their own; returns that folder."""
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "csrc", source / "csrc")
    shutil.copytree(ROOT / "bulksample", source / "bulksample", ignore=shutil.ignore_patterns("*.so", "__pycache__", "native_missing.txt"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


# An editable install answers for whatever a package of the same name lacks, and would lend it the extension.
INFO = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in getattr(finder, "__name__", "")]
sys.argv = ["bulksample", "info", "--json", "-"]
from bulksample.cli import main
main()
"""


def info(site):
    command = [sys.executable, "-c", INFO]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_a_compiler_the_reference_serves_and_info_says_why(tmp_path):
    site = install(tmp_path, CC="/bin/false", CXX="/bin/false")
    got = info(site)
    assert got["backends"] == ["reference"]
    assert "could not be compiled" in got["native"]
    assert "/bin/false" in got["native"]


def test_headers_and_the_extension_ship_inside_the_package(tmp_path):
    site = install(tmp_path)
    sources = {path.name for path in (ROOT / "csrc").iterdir() if path.suffix in (".h", ".cu")}
    assert sources <= {path.name for path in (site / "bulksample" / "csrc").iterdir()}
    assert (site / "bulksample" / "py.typed").exists()  # type checkers read the annotations of an installed package only with it
    assert info(site)["backends"] == ["reference", "native"]


def test_build_ext_alone_fails_without_pybind11(tmp_path):
    """An install goes on without the extension; a developer who asks for the extension hears that there is none."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bulksample").mkdir()
    (tmp_path / "hidden" / "pybind11").mkdir(parents=True)
    (tmp_path / "hidden" / "pybind11" / "__init__.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "bulksample: no native back end: ModuleNotFoundError: pybind11 is not installed" in done.stderr
    assert "Traceback" not in done.stderr
