"""`bulksample info`: versions, back ends and extras of this installation, and what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys

from ..backends import available, why_not
from ..backends.native import processors
from ..version import __version__
from .output import JsonOption, emit
from .outputs import OverwriteOption, check_outputs

EXTRAS = {
    "torch": "train", "safetensors": "train", "mpi4py": "mpi", "mpich": "mpi", "pymetis": "partition",
    "cupy": "cuda", "torch_geometric": "pyg", "ogb": "ogb", "matplotlib": "plot",
    "jinja2": "plot", "pandas": "tables", "pyarrow": "tables", "tensorboard": "tensorboard", "wandb": "wandb", "mlflow-skinny": "mlflow",
}  # fmt: skip
_MPI_SECONDS = 20  # for one process to start MPI


def info(overwrite: OverwriteOption = False, json_file: JsonOption = None) -> None:
    """Show versions, back ends and extras, and the reason why one is missing."""
    check_outputs(overwrite, json_file)
    emit(
        {
            "version": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "processors": processors(),
            "backends": available(),
            **{name: f"missing: {why_not(name)}" if why_not(name) else "available" for name in ("native", "cuda")},
            "mpi_reads_device_memory": _cuda_aware(),
            "extras": {name: _version(name) or f"missing: pip install 'bulksample[{extra}]'" for name, extra in EXTRAS.items()},
            "executable": sys.executable,
        },
        json_file,
        "bulksample",
    )


def _cuda_aware() -> str:
    """Return whether MPI reads device memory. Another process starts MPI, which some machines refuse outside a job."""
    code = "from bulksample.distributed.comm.world import cuda_aware as a; print(*('yes' if a().aware else 'no', a().reason), sep=': ')"
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_MPI_SECONDS)
    except subprocess.TimeoutExpired:
        return f"unknown: MPI did not start within {_MPI_SECONDS} s"
    return ended.stdout.strip() if ended.returncode == 0 else f"unknown: MPI did not start here (exit {ended.returncode})"


def _version(distribution: str) -> str | None:
    names = {name for name in (distribution, f"{distribution}-cuda13x", f"{distribution}-cuda12x")}
    for name in sorted(names, key=len):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
