"""Seconds under a named network, by the alpha-beta model, from what a run counted.

    T = C + alpha m + z / beta

C are the seconds that the rank computes which computes longest, m and z the messages and bytes of the rank that sends
most, alpha the latency of a message, and beta the bytes a second that one rank can send: those inside a node where all
ranks fit into one. Nothing overlaps and no message waits for another, so T is neither a lower nor an upper bound; it
orders methods at equal conditions, whatever the machine was busy with when they ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..plan.profiles import NETWORKS, NetworkProfile, named

_GIVEN = ("latency", "inside", "between")


@dataclass(frozen=True)
class Link:
    """A network as it is between the ranks of a run: alpha in seconds, beta in bytes a second."""

    label: str
    latency: float
    bandwidth: float

    def seconds(self, counted: Mapping[str, Any]) -> float:
        """T of what a report, or a line of an epoch, has counted in training."""
        busiest = counted["busiest_rank"]
        return counted["compute_seconds"] + self.latency * busiest["messages"] + busiest["bytes"] / self.bandwidth


def links(labels: list[str], ranks: int) -> list[Link]:
    """``ethernet-10g`` or ``ethernet-10g:between=1.25e6:latency=1e-4`` for so many ranks; raises `UsageError`."""
    if len(set(labels)) < len(labels):
        raise UsageError(f"every network is named once; got {', '.join(labels)}")
    return [_link(label, ranks) for label in labels]


def _link(label: str, ranks: int) -> Link:
    name, given = name_and_options(label)
    network: NetworkProfile = named(NETWORKS, name, "network")
    unknown = [key for key in given if key not in _GIVEN]
    if unknown:
        raise UsageError(f"a network has no {unknown[0]!r}; {', '.join(_GIVEN)} would fit")
    rates = {key: getattr(network, key).value for key in _GIVEN} | {key: _positive(key, value) for key, value in given.items()}
    return Link(label, rates["latency"], rates["inside" if ranks <= network.per_node else "between"])


def name_and_options(label: str) -> tuple[str, dict[str, str]]:
    """``name:key=value:key=value`` in parts; raises `UsageError`."""
    name, *pairs = label.split(":")
    given = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    if not name or not all(given) or not all("=" in pair for pair in pairs) or len(given) < len(pairs):
        raise UsageError(f"options are NAME:KEY=VALUE:KEY=VALUE, each key once; got {label!r}")
    return name, given


def _positive(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{key} must be a positive number; got {text!r}")
    return value
