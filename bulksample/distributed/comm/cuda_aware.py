"""Whether the MPI library reads and writes the memory of CUDA devices: it is asked, and nothing is concluded from its name or version.

`MPIX_Query_cuda_support` is an extension that Open MPI and MPICH export; a library without it cannot say, and is not trusted with a
device. What turns the support off for a run is set in the environment, where the library may have been asked before it was looked at.

https://docs.open-mpi.org/en/main/man-openmpi/man3/MPIX_Query_cuda_support.3.html
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Running_MPICH_with_GPU.md
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import NamedTuple

SYMBOL = "MPIX_Query_cuda_support"
SWITCHES = ("MPIR_CVAR_ENABLE_GPU", "MPICH_GPU_SUPPORT_ENABLED", "OMPI_MCA_opal_cuda_support", "MV2_USE_CUDA")  # of libraries that have it
_OFF = ("0", "no", "false", "off")


class CudaAware(NamedTuple):
    """Whether device memory can be handed to MPI, and who says so."""

    aware: bool
    reason: str


def ask(library: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> CudaAware:
    """Ask a library that is loaded and initialised.

    Parameters
    ----------
    library : path
        Of the MPI library, or of anything that is linked with it, such as mpi4py's module.
    environment : mapping of str to str
    """
    try:
        query = getattr(ctypes.CDLL(os.fspath(library)), SYMBOL)
    except OSError as error:
        return CudaAware(False, f"the MPI library cannot be asked: {error}")
    except AttributeError:
        return CudaAware(False, f"the MPI library has no {SYMBOL} to ask")
    query.restype, query.argtypes = ctypes.c_int, []
    if query() != 1:
        return CudaAware(False, f"the MPI library says that it does not read device memory ({SYMBOL})")
    off = next((name for name in SWITCHES if environment.get(name, "").lower() in _OFF), None)
    if off:
        return CudaAware(False, f"{off}={environment[off]} keeps the MPI library from device memory")
    return CudaAware(True, f"the MPI library says that it reads device memory ({SYMBOL})")
