"""Group runs that differ only in the number of ranks, and predict them from the smallest with `bulksample plan`.

The computing time of a step is measured in the smallest run; `plan` predicts sampling and communication for the chosen network. The
prediction assumes a device for each rank: ranks that share processors are slower.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from typing import Any

from ..errors import DataError, UsageError
from ..plan.choice import predict
from ..plan.measured import measure
from ..plan.request import PlanRequest
from ..plan.sizes import expected_sizes
from ..plan.traffic import CandidateGrid
from .series import Series, numbered, settings

_BY_RANKS = ("ranks", "threads", "sampling_threads", "bulk_size", "memory_budget", "replication")
_PLANNED = {  # all that `plan` predicts of a run
    "method": "sync", "task": "nodes", "sampler_options": {}, "cache_bytes": 0, "fetch_together": 1, "seed_locality": None,
}  # fmt: skip

# options of `train` that `plan` takes as well
_SHARED = ("sampler", "fanouts", "frontier", "batch_size", "model", "hidden", "exchange", "feature_codec")
SENT = ("topology", "features", "gradients")  # kinds of bytes that `plan` counts as `train` does


@dataclass(frozen=True)
class Point:
    """Seconds of an epoch, and bytes of the kinds in SENT that all ranks send in it."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Family:
    """Series that differ only in the number of ranks, the fewest first.

    Attributes
    ----------
    predicted : predictions by number of ranks; empty if `plan` cannot predict them
    why_not : the reason, if there are none
    """

    label: str
    members: list[Series]
    predicted: dict[int, Point]
    why_not: str

    def measured(self, member: Series) -> Point:
        """Return the measured epoch of a series, as the mean over seeds."""
        sent = member.mean(lambda report: sum(report["training_bytes"][kind] for kind in SENT) / max(1, report["epochs_in_this_run"]))
        return Point(member.mean(lambda report: report["seconds_per_epoch"]), sent)


def families(series: list[Series], device: str = "cpu", network: str = "loopback") -> list[Family]:
    """Return the families with at least two numbers of ranks, under labels of which no two are alike."""
    groups: dict[str, list[Series]] = {}
    for one in series:
        if one.runs[0].trained and one.has("config") and one.has("data"):
            groups.setdefault(_identity(one), []).append(one)
    found = [
        sorted(part, key=lambda one: one.first["ranks"])
        for group in groups.values() for part in _one_for_each_size(group)
        if len({one.first["ranks"] for one in part}) > 1
    ]  # fmt: skip
    return [_family(label, group, device, network) for label, group in zip(_labels(found), found, strict=True)]


def _identity(series: Series) -> str:
    kept = {key: value for key, value in settings(series.runs[0]).items() if key not in _BY_RANKS}
    return json.dumps([kept, series.first["data"], series.first.get("environment", {}).get("version")], sort_keys=True, default=str)


def _one_for_each_size(group: list[Series]) -> list[list[Series]]:
    """Divide series by the settings in which two on equal numbers of ranks differ, such as the threads of a rank."""
    sizes: dict[int, list[dict[str, Any]]] = {}
    for one in group:
        sizes.setdefault(one.first["ranks"], []).append(settings(one.runs[0]))
    differs = [key for key in _BY_RANKS if any(len({str(each.get(key)) for each in alike}) > 1 for alike in sizes.values())]
    parts: dict[str, list[Series]] = {}
    for one in group:
        parts.setdefault(json.dumps([settings(one.runs[0]).get(key) for key in differs], default=str), []).append(one)
    return list(parts.values())


def _labels(groups: list[list[Series]]) -> list[str]:
    """Return the method and the graph of each group, and the settings in which groups of the same method and graph differ."""
    firsts = [group[0] for group in groups]
    short = [f"{one.first['config']['method']}, {one.first['data']['name']}" for one in firsts]
    told = []
    for one, label in zip(firsts, short, strict=True):
        alike = [settings(other.runs[0]) for other, theirs in zip(firsts, short, strict=True) if theirs == label]
        own = settings(one.runs[0])
        differs = [key for key in own if key != "ranks" and len({str(other.get(key)) for other in alike}) > 1]
        named = [key for key in ("graph", "topology", "features") if key in differs] or differs
        told.append(", ".join([label, *(f"{key.replace('_', ' ')} {own[key]}" for key in named)]))
    return numbered(told)


def _family(label: str, members: list[Series], device: str, network: str) -> Family:
    config = members[0].first["config"]
    strange = [key for key, value in _PLANNED.items() if config.get(key) != value]
    if strange:
        return Family(label, members, {}, f"plan cannot predict {strange[0].replace('_', ' ')} {config.get(strange[0])!r}")
    try:
        return Family(label, members, _predicted(members, device, network), "")
    except (UsageError, DataError) as error:
        return Family(label, members, {}, str(error))


def _predicted(members: list[Series], device: str, network: str) -> dict[int, Point]:
    report, config = members[0].first, members[0].first["config"]
    data: dict[str, Any] = {key: report["data"][key] for key in ("vertices", "edges", "classes", "seeds")}
    ranks = tuple(one.first["ranks"] for one in members)
    shared = {"feature_width": report["data"]["features"], **{key: config[key] for key in _SHARED}}
    request = PlanRequest.of(**data, **shared, ranks=ranks, device=device, network=network, evaluate="none", device_memory=2**62)
    measured, sizes, found = measure(request, [members[0].runs[0].path]), expected_sizes(request), {}
    for one in members:
        p = one.first["ranks"]
        graph = {"replicated+partitioned": "published"}.get(one.first["graph"], one.first["graph"])
        spread = graph in ("partitioned", "published") and p > 1
        row = predict(request, sizes, CandidateGrid(p, one.first["replication"] if spread else p, graph), inf, measured)
        found[p] = Point(row.seconds.epoch, sum(getattr(row.traffic, kind) for kind in SENT))
    return found
