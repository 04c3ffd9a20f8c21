"""Devices and networks by name: their rates, and the source of every figure.

A rank keeps its share of the data on one device and computes there. Rates say where they come from: `measured` with this package,
`published` in a paper or a data sheet, `assumed` by reducing a published one, or `given` by the user. The JSON of
`bulksample info --network` is a network too.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import DataError, UsageError, unknown

Origin = Literal["measured", "published", "assumed", "given"]


class Rate(NamedTuple):
    """A figure, its origin, and its source."""

    value: float
    origin: Origin
    source: str


_MIRRORED = "bulksample info --network, on an AMD EPYC; no message moves"
_COLLECTIVE, _MESSAGE = Rate(2.6e-5, "measured", _MIRRORED), Rate(1.0e-6, "measured", _MIRRORED)

_PROCESS = Rate(172e6, "measured", "bench/results/scale/README.md: Python, torch and bulksample; CUDA's own part is not counted")


@dataclass(frozen=True)
class DeviceProfile:
    """Memory and speed of the device of one rank."""

    memory: Rate  # bytes
    sampling: Rate  # sampled edges a second, deduplicated and renumbered
    gather: Rate  # bytes of feature rows a second
    bandwidth: Rate  # bytes of rows that aggregation reads or writes a second
    operations: Rate  # float32 multiplications and additions a second in dense products
    host: Rate  # bytes a second of rows that the device reads from the memory of its machine
    network: str  # the network that usually connects it
    process: Rate = _PROCESS  # bytes of a rank's process in the memory of its machine


@dataclass(frozen=True)
class NetworkProfile:
    """Latency and bandwidth between ranks. Bytes a second are those that one device can send."""

    latency: Rate  # seconds before a message arrives from another node
    latency_inside: Rate  # the same inside a node
    inside: Rate  # bytes a second to devices of the same node
    between: Rate  # bytes a second to other nodes
    per_node: int
    collective: Rate = _COLLECTIVE  # seconds of a rank's processor for an all-to-all
    message: Rate = _MESSAGE  # seconds of a rank's processor for each of its messages


_GSAMPLER = "gSampler (SOSP 2023) on a V100, ogbn-products, without renumbering; bulksample's own is not measured on this device"
_PAPER = "Tripathy, Yelick, Buluc, MLSys 2024: Perlmutter"
_NODE = "NVIDIA's data sheet: NVLink 4, 900 GB/s for both directions"
_SPMM = "bench/results/spmm/latest.json, quiet, 600,000 rows of 100 floats, 1 thread"
_LATENCY = "the launch of a collective library included"
_ALL = 2**31 - 1  # devices of a node where every rank is on one machine


def _peak(share: float, peak: float, what: str) -> Rate:
    return Rate(share * peak, "assumed", f"{share:.0%} of {what}")


DEVICES = {
    "a100-80gb": DeviceProfile(
        memory=Rate(80e9, "published", "NVIDIA's data sheet"),
        sampling=Rate(1.5e9, "published", _GSAMPLER),
        gather=_peak(0.5, 1.552e12, f"the 1552 GB/s of {_PAPER}"),
        bandwidth=_peak(0.5, 1.552e12, f"the 1552 GB/s of {_PAPER}"),
        operations=_peak(0.5, 19.5e12, "the 19.5 TFLOP/s (float32) of NVIDIA's data sheet"),
        host=_peak(0.5, 32e9, "the 32 GB/s of PCIe 4.0 x16 in one direction"),
        network="perlmutter",
    ),
    "h200": DeviceProfile(
        memory=Rate(141e9, "published", "NVIDIA's data sheet"),
        sampling=Rate(1.5e9, "published", _GSAMPLER),
        gather=_peak(0.5, 4.8e12, "the 4.8 TB/s of NVIDIA's data sheet"),
        bandwidth=_peak(0.5, 4.8e12, "the 4.8 TB/s of NVIDIA's data sheet"),
        operations=_peak(0.5, 67e12, "the 67 TFLOP/s (float32) of NVIDIA's data sheet"),
        host=_peak(0.5, 64e9, "the 64 GB/s of PCIe 5.0 x16 in one direction"),
        network="hgx-h200",
    ),
    "cpu": DeviceProfile(
        memory=Rate(16e9, "assumed", "a small machine"),
        sampling=Rate(54.44e6, "measured", "bench/results/sampling/latest.json, 1-thread, frontier all, 1 thread"),
        gather=Rate(8.904e9, "measured", _SPMM),
        bandwidth=Rate(8.904e9, "measured", _SPMM),
        operations=Rate(70.70e9, "measured", "bench/results/spmm/latest.json, quiet, 40,000 x 256 x 256, 1 thread"),
        host=Rate(8.904e9, "measured", _SPMM),
        network="ethernet-10g",
    ),
}  # fmt: skip

NETWORKS = {
    "perlmutter": NetworkProfile(
        latency=Rate(5e-6, "assumed", _LATENCY),
        latency_inside=Rate(5e-6, "assumed", _LATENCY),
        inside=Rate(100e9, "published", f"{_PAPER}: NVLink 3 between two devices, one direction; with three peers at once, more"),
        between=Rate(25e9, "published", f"{_PAPER}: 4 Slingshot-11 cards of 25 GB/s for 4 devices"),
        per_node=4,
    ),
    "hgx-h200": NetworkProfile(
        latency=Rate(5e-6, "assumed", _LATENCY),
        latency_inside=Rate(5e-6, "assumed", _LATENCY),
        inside=Rate(450e9, "published", _NODE),
        between=Rate(50e9, "assumed", "a card of 400 Gbit/s for each device"),
        per_node=8,
    ),
    "ethernet-10g": NetworkProfile(
        latency=Rate(50e-6, "assumed", "TCP between two machines"),
        latency_inside=Rate(20e-6, "assumed", "ranks of one machine share its processors"),
        inside=Rate(5e9, "assumed", "a copy through shared memory"),
        between=Rate(1.25e9, "published", "10 Gbit/s, one rank a machine"),
        per_node=1,
    ),
    "loopback": NetworkProfile(
        latency=Rate(20e-6, "assumed", "ranks of one machine share its processors"),
        latency_inside=Rate(20e-6, "assumed", "ranks of one machine share its processors"),
        inside=Rate(5e9, "assumed", "a copy through shared memory"),
        between=Rate(5e9, "assumed", "a copy through shared memory"),
        per_node=_ALL,
    ),
}


def named(table: dict[str, Any], name: str, what: str) -> Any:
    """Return an entry of a table of profiles; raise `UsageError` for an unknown name."""
    if name not in table:
        raise UsageError(unknown(what, name, table))
    return table[name]


def network_named(name: str) -> NetworkProfile:
    """Return a network by its name, or that measured in a file.

    Raises `UsageError` if there is neither such a name nor such a file, and `DataError` if the file is not a result of
    `bulksample info --network`.
    """
    if name in NETWORKS or not Path(name).exists():
        network: NetworkProfile = named(NETWORKS, name, "network")
        return network
    return _read(Path(name), Path(name).stat().st_mtime_ns)


@cache
def _read(path: Path, changed: int) -> NetworkProfile:
    """Read a file as it was at its last change."""
    try:
        measured = json.loads(path.read_bytes())["network"]
        machines = [_whole(ranks) for ranks in measured["ranks_of_machines"]]
        groups = {name: measured[name] for name in ("inside", "between")}
        source = f"{path.name}: {', '.join(map(str, machines))} ranks on {len(machines)} machine{'s' * (len(machines) > 1)}"
        rates = {
            name: {key: Rate(positive(group[key]), "measured", source) for key in ("latency", "bandwidth")}
            for name, group in groups.items() if group is not None
        }  # fmt: skip
        host = {name: Rate(positive(measured[name]), "measured", source) for name in ("collective", "message")}
        if not rates or not machines:
            raise ValueError("no two ranks were measured")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        fault = f"{type(error).__name__} {error}"
        raise DataError(f"{path}: is no result of `mpirun -n 4 bulksample info --network --json {path.name}`: {fault}") from error
    for name, other, where in (("inside", "between", "inside a machine"), ("between", "inside", "between machines")):
        if name not in rates:  # the rates of the other kind of links stand for those of this kind
            rates[name] = {
                key: Rate(rate.value, "assumed", f"{rate.source}; none {where} was measured") for key, rate in rates[other].items()
            }
    inside, between = rates["inside"], rates["between"]
    return NetworkProfile(
        between["latency"], inside["latency"], inside["bandwidth"], between["bandwidth"],
        max(machines) if groups["between"] is not None else _ALL, **host,
    )  # fmt: skip


def _whole(value: Any) -> int:
    if positive(value) != int(value):
        raise ValueError(f"ranks of a machine are a whole number; got {value!r}")
    return int(value)


def positive(value: Any) -> float:
    """Return a figure as a float; raise `ValueError` unless it is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"a figure must be positive; got {value!r}")
    return float(value)
