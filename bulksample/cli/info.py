"""`bulksample info`: what this installation can do, and what it lacks."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from .. import __version__
from ..backends import available, why_not
from ..backends.native import processors
from .output import JsonOption, emit

EXTRAS = {
    "torch": "train", "safetensors": "train", "mpi4py": "mpi", "mpich": "mpi", "pymetis": "partition",
    "cupy": "cuda", "torch_geometric": "pyg", "ogb": "ogb", "matplotlib": "plot",
    "jinja2": "plot", "tensorboard": "tensorboard", "wandb": "wandb", "mlflow-skinny": "mlflow",
}  # fmt: skip


def info(json_file: JsonOption = None) -> None:
    """Show versions, back ends and extras, and why one is missing."""
    emit(
        {
            "version": __version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "processors": processors(),
            "backends": available(),
            **{name: f"missing: {why_not(name)}" if why_not(name) else "available" for name in ("native", "cuda")},
            "extras": {name: _version(name) or f"missing: pip install 'bulksample[{extra}]'" for name, extra in EXTRAS.items()},
            "executable": sys.executable,
        },
        json_file,
        "bulksample",
    )


def _version(distribution: str) -> str | None:
    names = {name for name in (distribution, f"{distribution}-cuda13x", f"{distribution}-cuda12x")}
    for name in sorted(names, key=len):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
