"""The environment of a run: versions, and the kind of machine, without names of hosts or users."""

from __future__ import annotations

import importlib.metadata
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..backends.native import processors
from ..version import __version__

_PACKAGES = ("numpy", "scipy", "torch", "mpi4py", "mpich", "openmpi", "cupy-cuda13x", "cupy-cuda12x")


def environment() -> dict[str, Any]:
    """Return the versions of this package, of Python and of the libraries it uses, the processor, and the number of usable processors."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "processors": processors(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def processor() -> str:
    """Return the model name of the CPU; an empty string if the system does not know it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
