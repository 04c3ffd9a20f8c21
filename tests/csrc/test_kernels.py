"""Every .cu file compiles without a GPU, for every architecture we name; and nothing in it escapes Python's view of the kernels."""

import re
import subprocess

import pytest
from sweeps import sweep
from test_headers import compiled, nvrtc  # noqa: F401  # skips where the wheel is missing
from waiting import PATIENCE

from bulksample.backends.cuda.device import THREADS, WIDE, kernels
from bulksample.backends.sources import kernel_directory

FILES = sorted(kernel_directory().glob("*.cu"))
ARCHITECTURES = (90, 80, 100)


@sweep("arch", ARCHITECTURES)
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_kernels_compile_for_the_device(file, arch):
    assert compiled(file.read_text(), arch).startswith(b"\x7fELF")


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_nvcc_takes_them_too_where_it_is(file, tmp_path):
    try:
        subprocess.run(["nvcc", "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no nvcc here")
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", f"-I{kernel_directory()}", "-o", tmp_path / "kernels.cubin", file]
    subprocess.run(command, check=True, timeout=PATIENCE)


def test_every_kernel_is_known_by_name_and_type():
    for file in FILES:
        declared = re.findall(r"__global__", file.read_text())
        assert len(declared) == sum(kernel.file == file for kernel in kernels().values()), file.name
    assert all(kernel.parameters for kernel in kernels().values())


def test_python_and_the_kernels_agree_on_the_block():
    text = (kernel_directory() / "device.h").read_text()
    assert f"BS_BLOCK = {THREADS};" in text
    assert f"BS_WIDE = {WIDE};" in text
    bounds = {name: re.search(rf"__launch_bounds__\((\w+)\) {name}\(", kernel.file.read_text()) for name, kernel in kernels().items()}
    assert {name: kernel.threads for name, kernel in kernels().items()} == {
        name: {"BS_BLOCK": THREADS, "BS_WIDE": WIDE}[bound[1]] for name, bound in bounds.items()
    }
