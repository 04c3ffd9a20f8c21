"""Read the network of a plan from the JSON of `bulksample info --network`."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import DataError
from .profiles import NETWORKS, NetworkProfile, Rate, named

_ALL = 2**31 - 1  # devices of a node where every rank is on one machine


def network_named(name: str) -> NetworkProfile:
    """Return a network by its name, or that measured in a file.

    Raises
    ------
    UsageError
        If there is neither such a name nor such a file.
    DataError
        If the file is not a result of `bulksample info --network`.
    """
    if name in NETWORKS or not Path(name).exists():
        found: NetworkProfile = named(NETWORKS, name, "network")
        return found
    return _read(Path(name), Path(name).stat().st_mtime_ns)


@cache
def _read(path: Path, changed: int) -> NetworkProfile:
    """Read a file as it was at its last change."""
    try:
        found = json.loads(path.read_bytes())["network"]
        machines = [_whole(ranks) for ranks in found["ranks_of_machines"]]
        groups = {name: found[name] for name in ("inside", "between")}
        source = f"{path.name}: {', '.join(map(str, machines))} ranks on {len(machines)} machine{'s' * (len(machines) > 1)}"
        rates = {
            name: {key: Rate(_positive(group[key]), "measured", source) for key in ("latency", "bandwidth")}
            for name, group in groups.items() if group is not None
        }  # fmt: skip
        host = {name: Rate(_positive(found[name]), "measured", source) for name in ("collective", "message")}
        if not rates or not machines:
            raise ValueError("no two ranks were measured")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{path}: is no result of `mpirun -n 4 bulksample info --network --json {path.name}`: {type(error).__name__} {error}"
        ) from error
    inside, between = (rates.get(name) or _assumed(rates[other], name) for name, other in (("inside", "between"), ("between", "inside")))
    return NetworkProfile(
        between["latency"], inside["latency"], inside["bandwidth"], between["bandwidth"],
        max(machines) if groups["between"] is not None else _ALL, **host,
    )  # fmt: skip


def _assumed(rates: dict[str, Rate], name: str) -> dict[str, Rate]:
    """Return the rates of the other kind of links where the file has none of this kind."""
    where = {"inside": "inside a machine", "between": "between machines"}[name]
    return {key: Rate(rate.value, "assumed", f"{rate.source}; none {where} was measured") for key, rate in rates.items()}


def _whole(value: Any) -> int:
    if _positive(value) != int(value):
        raise ValueError(f"ranks of a machine are a whole number; got {value!r}")
    return int(value)


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"a figure must be positive; got {value!r}")
    return float(value)
