"""Seconds of a run under a named network, by the alpha-beta model, from the messages and bytes it counted.

    T = C + alpha m + z / beta

C is the computing time of the slowest rank; m and z are the messages and bytes of the rank that sends most; alpha is the latency of
a message; beta is the bandwidth of one rank, inside a node if all ranks fit into one. The model has no overlap and no congestion,
so T is neither a lower nor an upper bound. It orders methods under equal conditions, independent of the load of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..plan.profiles import NETWORKS, NetworkProfile, named, positive

_GIVEN = ("latency", "inside", "between")


@dataclass(frozen=True)
class NetworkModel:
    """Latency (seconds) and bandwidth (bytes a second) between the ranks of a run."""

    label: str
    latency: float
    bandwidth: float

    def seconds(self, counted: Mapping[str, Any]) -> float:
        """Return T for the training counted by a report or by the line of an epoch."""
        busiest = counted["busiest_rank"]
        return float(counted["compute_seconds"] + self.latency * busiest["messages"] + busiest["bytes"] / self.bandwidth)


def network_models(labels: list[str], ranks: int) -> list[NetworkModel]:
    """Parse ``ethernet-10g`` or ``ethernet-10g:between=1.25e6:latency=1e-4`` for a number of ranks; raise `UsageError`."""
    if len(set(labels)) < len(labels):
        raise UsageError(f"networks must differ; got {', '.join(labels)}; use each name once")
    models = []
    for label in labels:
        name, options = name_and_options(label)
        network: NetworkProfile = named(NETWORKS, name, "network")
        if unknown := [key for key in options if key not in _GIVEN]:
            raise UsageError(f"a network has no {unknown[0]!r}; use {', '.join(_GIVEN)}")
        rates = {key: getattr(network, key).value for key in _GIVEN} | {key: _positive(key, value) for key, value in options.items()}
        models.append(NetworkModel(label, rates["latency"], rates["inside" if ranks <= network.per_node else "between"]))
    return models


def name_and_options(label: str) -> tuple[str, dict[str, str]]:
    """Split ``name:key=value:key=value`` into the name and its options; raise `UsageError`."""
    name, *pairs = label.split(":")
    options = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    if not name or not all(options) or not all("=" in pair for pair in pairs) or len(options) < len(pairs):
        raise UsageError(f"options must be NAME:KEY=VALUE:KEY=VALUE, each key once; got {label!r}")
    return name, options


def _positive(key: str, text: str) -> float:
    try:
        return positive(float(text))
    except ValueError:
        raise UsageError(f"{key} must be a positive number; got {text!r}; use a number such as 1e9") from None
