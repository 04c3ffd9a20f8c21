"""Cubins from the real CuPy and NVRTC, where no device is needed: whole ELF files that hold every kernel."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sweeps import sweep

from bulksample.backends.cuda import cubins
from bulksample.backends.cuda.device import kernels

pytest.importorskip("cupy", reason="CuPy is not installed: pip install cupy-cuda13x brings it, and needs no device")
FILES = sorted({kernel.file for kernel in kernels().values()})
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="there is no readelf of binutils")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """An empty cache, and NVRTC."""
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except Exception as error:  # of CuPy's own loader of libraries
        pytest.skip(f"CuPy finds no NVRTC: {type(error).__name__}; pip install nvidia-cuda-nvrtc brings it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def readelf(option, file):
    return subprocess.run(["readelf", option, "-W", file], check=True, capture_output=True, text=True).stdout


def number(pattern, text):
    return int(re.search(pattern, text)[1])


@needs_readelf
@sweep("architecture", (90, 80, 100))
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cubin_is_a_whole_file_with_every_kernel(file, architecture):
    made = cubins.compiled(file, str(architecture))
    header, symbols = readelf("-h", made), readelf("-s", made)
    ends = [
        number(rf"Start of {table} headers:\s+(\d+)", header)
        + number(rf"Size of {table} headers:\s+(\d+)", header) * number(rf"Number of {table} headers:\s+(\d+)", header)
        for table in ("program", "section")
    ]
    assert made.stat().st_size == max(ends)
    found = re.findall(r"FUNC\s+GLOBAL.* (\S+)$", symbols, re.MULTILINE)
    assert sorted(found) == sorted(kernel.name for kernel in kernels().values() if kernel.file == file)


def test_the_byte_that_cupy_strips_is_the_one_that_nvrtc_wrote():
    driver = pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda-bindings wheel is not installed")
    from cupy.cuda import nvrtc

    version = driver.nvrtcVersion()
    assert (int(version[1]), int(version[2])) == nvrtc.getVersion(), "two NVRTC are loaded"
    for file in FILES[:2]:
        _, program = driver.nvrtcCreateProgram(file.read_bytes(), file.name.encode(), 0, [], [])
        asked = [option.encode() for option in cubins.options("90")]
        driver.nvrtcCompileProgram(program, len(asked), asked)
        complete = bytes(driver.nvrtcGetCUBINSize(program)[1] + 16)[:-16]
        driver.nvrtcGetCUBIN(program, complete)
        assert cubins.compiled(file, "90").read_bytes() == complete


def test_the_kernel_that_spins_for_tests_on_a_card_compiles():
    made = cubins.compiled(Path(__file__).parent / "on_card" / "spin.cu", "90")
    assert b"spin" in made.read_bytes()


def test_a_second_call_compiles_nothing(monkeypatch):
    made = cubins.compiled(FILES[0], "90")
    monkeypatch.setattr(cubins, "_machine_code", None)
    assert cubins.compiled(FILES[0], "90") == made


def test_a_refused_file_gives_the_log_of_nvrtc(tmp_path):
    (tmp_path / "broken.cu").write_text('extern "C" __global__ void broken() { no_such_function(); }')
    with pytest.raises(RuntimeError, match=r'NVRTC refuses broken.cu for sm_90: (.|\n)*"no_such_function" is undefined'):
        cubins.compiled(tmp_path / "broken.cu", "90")
