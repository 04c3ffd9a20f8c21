"""Name the card, the programs and the packages of a machine, and those that are missing. Needs nothing but the standard library."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

PROGRAMS = ("g++", "nvcc", "nvidia-smi", "compute-sanitizer", "ncu", "mpirun")
PACKAGES = (
    "numpy", "scipy", "pydantic", "typer", "rich", "pyyaml", "torch", "safetensors", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc",
    "pip", "pybind11", "setuptools", "mpi4py", "mpich", "pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "scikit-learn",
    "torch_geometric", "torch-quiver", "cugraph", "dgl",
)  # fmt: skip


def tools() -> dict[str, Callable[[], Any]]:
    """Return a check of each kind; none fails."""
    return {"machine": _machine, "card": _card, "programs": _programs, "packages": _packages}


def _machine() -> dict[str, Any]:
    return {"kernel": platform.release(), "python": platform.python_version(), "processors": os.cpu_count()}


def _card() -> str:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.mem,mig.mode.current", "--format=csv"]
    if shutil.which("nvidia-smi") is None:
        return "none is known: nvidia-smi is not on the path"
    return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()


def _programs() -> dict[str, str]:
    return {name: shutil.which(name) or "missing" for name in PROGRAMS}


def _packages() -> dict[str, str]:
    def version(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "missing"

    return {name: version(name) for name in PACKAGES}
