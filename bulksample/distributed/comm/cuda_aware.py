"""Ask the MPI library whether it reads and writes CUDA device memory. Its name and version are not evidence.

`MPIX_Query_cuda_support` is an extension that Open MPI and MPICH export. A library without it is taken as not CUDA-aware.
An environment variable can turn the support off for one run even where the library answers yes, so the variables are read too.

https://docs.open-mpi.org/en/main/man-openmpi/man3/MPIX_Query_cuda_support.3.html
https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Running_MPICH_with_GPU.md
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import NamedTuple

SYMBOL = "MPIX_Query_cuda_support"
SWITCHES = ("MPIR_CVAR_ENABLE_GPU", "MPICH_GPU_SUPPORT_ENABLED", "OMPI_MCA_opal_cuda_support", "MV2_USE_CUDA")
_OFF = ("0", "no", "false", "off")


class CudaAware(NamedTuple):
    """Answer of the MPI library: True if it accepts device memory, and the reason."""

    aware: bool
    reason: str


def ask(library: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> CudaAware:
    """Query a library that is loaded and initialized.

    Parameters
    ----------
    library : path
        The MPI library, or a module linked with it, such as mpi4py's.
    environment : mapping of str to str
        Where the switches that turn the support off are looked up.
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
