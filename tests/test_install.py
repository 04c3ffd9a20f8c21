"""The install itself: what ships, and that it survives a machine without a compiler."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from bulksample import __version__

ROOT = Path(__file__).parents[1]
TRY = ROOT / ".ci" / "try_install.py"  # compares the digests of the native back end with the reference's
pytestmark = pytest.mark.long


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


def test_build_ext_alone_fails_without_pybind11(tmp_path):
    """An install goes on without the extension; a developer who asks for the extension hears that there is none."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bulksample" / "backends").mkdir(parents=True)
    shutil.copy(ROOT / "bulksample" / "backends" / "sources.py", tmp_path / "bulksample" / "backends")
    (tmp_path / "hidden" / "pybind11").mkdir(parents=True)
    (tmp_path / "hidden" / "pybind11" / "__init__.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "bulksample: no native back end: ModuleNotFoundError: pybind11 is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def run(*command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """An archive of the sources, built from the files under version control."""
    place = tmp_path_factory.mktemp("sdist")
    (place / "source").mkdir()
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    for name in filter(None, files.decode().split("\0")):
        (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / "source" / name)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(place), str(place / "source"))
    (archive,) = place.glob("*.tar.gz")
    return archive


def test_an_sdist_holds_the_whole_project(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    left_out = {name for name in filter(None, tracked) if name not in held}
    assert all(name.startswith((".github/", ".gitignore")) for name in left_out), left_out


@pytest.fixture(scope="module")
def raw(sdist, tmp_path_factory):
    """A wheel of the archive, which this compiles."""
    place = tmp_path_factory.mktemp("raw")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(sdist))
    (wheel,) = place.glob("*.whl")
    return wheel


def test_headers_and_the_extension_ship_inside_the_package(raw, tmp_path):
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(raw))
    sources = {path.name for path in (ROOT / "csrc").iterdir() if path.suffix in (".h", ".cu")}
    assert sources <= {path.name for path in (site / "bulksample" / "csrc").iterdir()}
    assert (site / "bulksample" / "py.typed").exists()  # type checkers read the annotations of an installed package only with it
    assert info(site)["backends"] == ["reference", "native"]


def test_a_wheel_of_the_sdist_works_without_a_compiler(raw, tmp_path):
    """The wheel brings its own OpenMP library, and code for three levels of x86-64 processors."""
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path / "wheel"), str(raw), **tools)
    (wheel,) = (tmp_path / "wheel").glob("*manylinux*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (extension,) = [name for name in names if name.startswith("bulksample/_native")]
        code = archive.read(extension)
    assert any("libgomp" in name for name in names)
    assert all(f"arch_x86_64_v{level}".encode() in code for level in (3, 4))
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    bare = {"CC": "/bin/false", "CXX": "/bin/false", "PYTHONPATH": ""}
    run(python, "-m", "pip", "install", "--quiet", str(wheel), **bare)
    assert f"bulksample {__version__} works in {tmp_path}" in run(python, str(TRY), **bare)


# In an environment with the extra `cuda` and without a toolkit: compile by NVRTC what every kernel of CuPy's own includes, for `cupy.full`
# is one, with the headers that CuPy finds.
KERNEL = r"""
import ctypes, sys
from cuda.pathfinder import find_nvidia_header_directory, load_nvidia_dynamic_lib
from cupy._core import core

headers = find_nvidia_header_directory("cudart")
assert headers and headers.startswith(sys.prefix), f"the headers of CUDA's runtime are not in this environment: {headers}"
source = "".join(f"#include <{name}>\n" for name in (*core._cupy_header_list, "cupy/float16.cuh"))
source += 'extern "C" __global__ void full(CArray<float16, 1, 1, 1> a, float16 v) { a[0] = v; }'
nvrtc, program, size = ctypes.CDLL(load_nvidia_dynamic_lib("nvrtc").abs_path), ctypes.c_void_p(), ctypes.c_size_t()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"full.cu", 0, None, None) == 0
found = [f"-I{core._get_header_dir_path()}", *core._get_cccl_include_options(), f"-I{headers}", "-std=c++17", "-arch=sm_90"]
code = nvrtc.nvrtcCompileProgram(program, len(found), (ctypes.c_char_p * len(found))(*map(str.encode, found)))
nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetProgramLog(program, log)
assert code == 0, log.value.decode()
"""


def test_the_extra_for_gpus_has_the_headers_that_kernels_of_cupy_include(tmp_path):
    """The program asserts: that the headers lie in the environment, and that NVRTC takes the kernel."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cuda"]
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *extra, PYTHONPATH="")
    run(python, "-c", KERNEL, PYTHONPATH="", CUDA_PATH="", CUDA_HOME="")


@pytest.mark.skipif(
    shutil.which("mpiexec", path="/usr/bin:/usr/local/bin") is None, reason="the steps of the Dockerfile need the system's MPICH"
)
@pytest.mark.skipif(
    subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode != 0, reason="they start from a checkout"
)
def test_the_steps_of_the_dockerfile_work_in_a_clean_environment(tmp_path):
    clean = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin", os.path.dirname(os.path.realpath(sys.executable))])
    known = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    ).stdout.strip()
    out = run(sys.executable, str(ROOT / ".ci" / "image"), str(tmp_path), PATH=clean, TORCH_INDEX=known or "https://pypi.org/simple")
    assert f"works in {tmp_path}" in out
    assert re.search(r"RUN python -m bulksample data make .* mpiexec -n 2 python -m bulksample train", out)  # a step that fails ends it


def test_the_citation_names_this_version():
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
