"""`bulksample info`: versions, back ends and extras of this installation, and what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..backends import available, why_not
from ..backends.native import processors
from ..errors import UsageError
from ..version import __version__
from .output import JsonOption, OverwriteOption, emit, hold_outputs

EXTRAS = {
    "torch": "train", "safetensors": "train", "mpi4py": "mpi", "mpich": "mpi", "pymetis": "partition",
    "cupy": "cuda", "torch_geometric": "pyg", "ogb": "ogb", "matplotlib": "plot",
    "jinja2": "plot", "pandas": "tables", "pyarrow": "tables", "tensorboard": "tensorboard", "wandb": "wandb", "mlflow-skinny": "mlflow",
}  # fmt: skip
_MPI_SECONDS = 20  # for one process to start MPI


NetworkOption = Annotated[bool, typer.Option("--network", help="Measure messages between ranks, under mpirun, srun or torchrun.")]


def info(network: NetworkOption = False, overwrite: OverwriteOption = False, json_file: JsonOption = None) -> None:
    """Show versions, back ends and extras, the reason why one is missing, and the rates of this machine that bound a training step.

    With --network, ranks started by mpirun, srun or torchrun measure latency and bytes a second inside a machine and between machines,
    and what a collective and a message cost the processor. `bulksample plan --network FILE` reads the JSON.
    """
    if network:
        _measured(overwrite, json_file)
    else:
        hold_outputs(overwrite, json_file)
        emit(_installed() | {"mpi_reads_device_memory": _cuda_aware(), "rates": _rates()}, json_file, "bulksample")


def _measured(overwrite: bool, json_file: Path | None) -> None:
    """Measure the network between the ranks of a job; rank 0 shows it."""
    from ..distributed.comm.agree import checked_on_rank_0
    from ..distributed.comm.launchers import launched
    from ..distributed.comm.network_probe import measure_network
    from ..distributed.comm.world import world

    with world() as comm:
        if comm.size == 1:
            raise UsageError("--network measures messages between ranks, and there is one: use mpirun -n 4 bulksample info --network")
        checked_on_rank_0(comm, lambda: hold_outputs(overwrite, json_file))
        aware = comm.cuda_aware
        result = _installed() | {
            "mpi_reads_device_memory": f"{'yes' if aware.aware else 'no'}: {aware.reason}",
            "network": {"launcher": launched().launcher, "ranks": comm.size, **measure_network(comm)},
        }
        if comm.rank == 0:
            emit(result, json_file, "bulksample")


def _installed() -> dict[str, Any]:
    """Return versions, back ends and extras of this installation."""
    return {
        "version": __version__, "python": platform.python_version(), "machine": platform.machine(), "processors": processors(),
        "backends": available(),
        **{name: f"missing: {why_not(name)}" if why_not(name) else "available" for name in ("native", "cuda")},
        "extras": {name: _version(name) or f"missing: pip install 'bulksample[{extra}]'" for name, extra in EXTRAS.items()},
        "executable": sys.executable,
    }  # fmt: skip


def _rates() -> dict[str, Any] | str:
    """Return what a copy and matrix products reach here, which takes a part of a second; or the reason why it is not known."""
    try:
        from ..training.machine_rates import describe_rates
    except ImportError:
        return f"not measured: torch is missing: pip install 'bulksample[{EXTRAS['torch']}]'"
    except OSError as error:  # a library that torch needs
        return f"not measured: torch cannot be imported ({error})"
    rates = describe_rates()
    if (ratio := rates["bf16_over_fp32"]) is None:
        return rates | {"bf16": "this processor has no bf16 instructions; --precision bf16 will not pay"}
    return rates | {"bf16": f"bf16 products {ratio:.1f} times fp32{'' if ratio > 1 else '; --precision bf16 will not pay'}"}


def _cuda_aware() -> str:
    """Return whether MPI reads device memory. Another process starts MPI, which some machines refuse outside a job."""
    code = "from bulksample.distributed.comm.world import cuda_aware as a; print(*('yes' if a().aware else 'no', a().reason), sep=': ')"
    try:
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_MPI_SECONDS)
    except subprocess.TimeoutExpired:
        return f"unknown: MPI did not start within {_MPI_SECONDS} s"
    return ended.stdout.strip() if ended.returncode == 0 else f"unknown: MPI did not start here (exit {ended.returncode})"


def _version(distribution: str) -> str | None:
    for name in (distribution, f"{distribution}-cuda13x", f"{distribution}-cuda12x"):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None
