"""Group runs that differ only in the seed into series with unique labels, and series that differ only in the number of ranks into families.

A family is predicted from its smallest run with `bulksample plan`. The computing time of a step is measured in that run; `plan` predicts
sampling and communication for the chosen network. The prediction assumes a device for each rank: ranks that share processors are slower.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from ..config.metrics import goodness
from ..errors import DataError, UsageError
from ..plan.choice import predict
from ..plan.measured import measure
from ..plan.request import PlanRequest
from ..plan.sizes import expected_sizes
from ..plan.traffic import CandidateGrid
from .reading import Run
from .table import plus_minus, scored_split, spread

# Settings that change where results go or how long a run may take, but not what it computes.
_IGNORED = frozenset({"seed", "metrics", "checkpoint", "checkpoint_every", "resume", "quiet", "timeout", "listen", "join", "track"})
_SETTINGS = (  # the settings in a report without a configuration
    "method", "model", "sampler", "fanouts", "batch_size", "frontier", "metric", "graph", "replication", "exchange", "partition",
    "bulk_size",
)  # fmt: skip
_SEPARATORS = ("-", "_", ".", ",", " ", "/")  # between the words of a name
_OF_REPORT = ("ranks", "backend", "threads")  # settings that a report holds beside its configuration
_BY_RANKS = ("ranks", "threads", "sampling_threads", "bulk_size", "memory_budget", "replication")
_PLANNED = {  # all that `plan` predicts of a run
    "method": "sync", "task": "nodes", "sampler_options": {}, "cache_bytes": 0, "fetch_together": 1, "seed_locality": None,
    "input_layer": "auto", "balance_classes": False, "sampling_weights": None,
}  # fmt: skip
# options of `train` that `plan` takes as well
_SHARED = (
    "sampler", "fanouts", "frontier", "batch_size", "drop_last", "steps_per_epoch", "model", "hidden", "exchange", "feature_codec",
)  # fmt: skip
SENT = ("topology", "features", "gradients")  # kinds of bytes that `plan` counts as `train` does


@dataclass(frozen=True)
class Series:
    """Runs with one label, in the order of reading."""

    label: str
    runs: list[Run]

    @property
    def first(self) -> dict[str, Any]:
        """Report of the first run; empty if only lines of epochs were found."""
        return self.runs[0].report

    @property
    def lines(self) -> list[list[dict[str, Any]]]:
        """Lines of epochs of the runs that have any."""
        return [run.lines for run in self.runs if run.lines]

    def has(self, key: str) -> bool:
        """True if every report has a value for the key."""
        return all(run.report.get(key) is not None for run in self.runs)

    def mean(self, number: Callable[[dict[str, Any]], float]) -> float:
        """Return the mean over runs of a number in their reports."""
        return statistics.fmean(number(run.report) for run in self.runs)

    def text(self, number: Callable[[dict[str, Any]], float | None], scale: float = 1.0) -> str:
        """Return mean and standard deviation as text; empty if a run lacks the number."""
        values = [number(run.report) for run in self.runs]
        known = [value for value in values if value is not None]
        return plus_minus(spread(known), scale) if known and len(known) == len(values) else ""


def series_of(runs: list[Run]) -> list[Series]:
    """Group runs into series, in the order of their first runs."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    return [Series(label, group) for label, group in zip(numbered(map(_label, groups.values())), groups.values(), strict=True)]


def numbered(labels: Iterable[str]) -> list[str]:
    """Return labels of which no two are alike: those that were have a number, from 1."""
    texts = list(labels)
    count, taken, unique = Counter(texts), {label for label in texts if texts.count(label) == 1}, list[str]()
    for label in texts:
        numbers = (f"{label} ({number})" for number in itertools.count(1))
        unique.append(label if count[label] == 1 else next(name for name in numbers if name not in taken))
        taken.add(unique[-1])
    return unique


def _identity(run: Run) -> str:
    """Return a text that is equal for runs that differ only in the seed."""
    if run.label:
        return json.dumps([str(run.comparison), run.label])
    if not run.trained or "config" not in run.report:
        return str(run.path)
    return json.dumps([settings(run), run.report.get("data"), run.report["environment"]["version"]], sort_keys=True, default=str)


def _label(group: list[Run]) -> str:
    if group[0].label:
        return group[0].name.removesuffix(f", seed {group[0].report.get('seed')}")
    if len(group) == 1:
        return group[0].name
    shared = os.path.commonprefix([run.name for run in group])  # noqa: RUF071  # letters, not folders
    rests = [run.name[len(shared) :] for run in group]
    whole = shared.endswith(_SEPARATORS) or all(not rest or rest[0] in _SEPARATORS or rest.isdigit() for rest in rests)
    return shared.rstrip("".join(_SEPARATORS)) if whole and shared else group[0].name


def settings(run: Run) -> dict[str, Any]:
    """Return the configuration of a run, or what an older report holds of it, without the seed and the paths of results."""
    report = run.report
    config = report.get("config") or {key: report[key] for key in _SETTINGS if key in report}
    chosen = {key: value for key, value in config.items() if key not in _IGNORED}
    return chosen | {key: report[key] for key in _OF_REPORT if key in report}


def differences(series: list[Series]) -> dict[str, list[str]]:
    """Return the settings in which series differ, each with one text for every series."""
    each = []
    for one in series:
        data, environment = one.first.get("data", {}), one.first.get("environment", {})
        also = {"data": data["name"]} if "name" in data else {}
        also |= {name: environment[name] for name in ("version", "processor") if name in environment}
        each.append({name: _text(value) for name, value in (settings(one.runs[0]) | also).items()})
    names = dict.fromkeys(name for texts in each for name in texts)
    columns = {name: [texts.get(name, "") for texts in each] for name in names}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unset" if value is None else str(value)


def environments(series: list[Series]) -> list[tuple[str, dict[str, str]]]:
    """Return every environment of the runs, each with the labels of the series that ran in it."""
    labelled: dict[str, list[str]] = {}
    for one in series:
        for run in one.runs:
            if "environment" in run.report:
                labels = labelled.setdefault(json.dumps(run.report["environment"], sort_keys=True), [])
                labels += [one.label] if one.label not in labels else []
    return [(", ".join(labels), {key: _text(value) for key, value in json.loads(text).items()}) for text, labels in labelled.items()]


def split_and_metric(series: Iterable[Series]) -> str:
    """Return the split and the metric of the scores, such as "test accuracy"; "score" if series differ in them."""
    names = {f"{scored_split(one.first)} {one.first['metric']}" for one in series if "metric" in one.first and scored_split(one.first)}
    return names.pop() if len(names) == 1 else "score"


def metric_of(series: Iterable[Series]) -> str:
    """Return the metric of the scores; empty if there is none, or series differ in it."""
    names = {str(one.first["metric"]) for one in series if one.first.get("metric")}
    return names.pop() if len(names) == 1 else ""


def by_validation(one: Series) -> float:
    """Return a number that is larger for the series with the better validation score, or score if there is no validation split."""
    metric = str(one.first["metric"])
    scores = [score(run.report) if (validation := run.report.get(f"val_{metric}")) is None else validation for run in one.runs]
    return goodness(metric, statistics.fmean(validation for validation in scores if validation is not None))


def score(report: dict[str, Any]) -> float | None:
    """Return the score at the best validation score, on the test split if there is one."""
    split = scored_split(report) if "metric" in report else None
    return report[f"{split}_{report['metric']}"] if split else None


@dataclass(frozen=True)
class Point:
    """Seconds of an epoch, and bytes of the kinds in SENT that all ranks send in it."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Family:
    """Series that differ only in the number of ranks, the fewest first."""

    label: str
    members: list[Series]
    predicted: dict[int, Point]  # by number of ranks; empty if `plan` cannot predict them
    why_not: str  # the reason, if there are none

    def measured(self, member: Series) -> Point:
        """Return the measured epoch of a series, as the mean over seeds."""
        sent = member.mean(lambda report: sum(report["training_bytes"][kind] for kind in SENT) / max(1, report["epochs_in_this_run"]))
        return Point(member.mean(lambda report: report["seconds_per_epoch"]), sent)


def families(series: list[Series], device: str = "cpu", network: str = "loopback") -> list[Family]:
    """Return the families with at least two numbers of ranks, under labels of which no two are alike."""
    groups: dict[str, list[Series]] = {}
    for one in series:
        if one.runs[0].trained and one.has("config") and one.has("data"):
            kept = {key: value for key, value in settings(one.runs[0]).items() if key not in _BY_RANKS}
            alike = [kept, one.first["data"], one.first.get("environment", {}).get("version")]
            groups.setdefault(json.dumps(alike, sort_keys=True, default=str), []).append(one)
    sorted_groups = [
        sorted(part, key=lambda one: one.first["ranks"])
        for group in groups.values() for part in _one_for_each_size(group)
        if len({one.first["ranks"] for one in part}) > 1
    ]  # fmt: skip
    return [_family(label, group, device, network) for label, group in zip(_labels(sorted_groups), sorted_groups, strict=True)]


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
    labels = []
    for one, label in zip(firsts, short, strict=True):
        alike = [settings(other.runs[0]) for other, theirs in zip(firsts, short, strict=True) if theirs == label]
        chosen = settings(one.runs[0])
        differs = [key for key in chosen if key != "ranks" and len({str(other.get(key)) for other in alike}) > 1]
        named = [key for key in ("graph", "topology", "features") if key in differs] or differs
        labels.append(", ".join([label, *(f"{key.replace('_', ' ')} {chosen[key]}" for key in named)]))
    return numbered(labels)


def _family(label: str, members: list[Series], device: str, network: str) -> Family:
    """Return a family, predicted from its smallest run unless `plan` cannot do that."""
    report, predicted = members[0].first, dict[int, Point]()
    config = report["config"]
    if strange := [key for key, value in _PLANNED.items() if config.get(key, value) != value]:
        return Family(label, members, {}, f"plan cannot predict {strange[0].replace('_', ' ')} {config.get(strange[0])!r}")
    data: dict[str, Any] = {key: report["data"][key] for key in ("vertices", "edges", "classes", "seeds")}
    shared = {"feature_width": report["data"]["features"], **{key: config[key] for key in _SHARED if key in config}}
    ranks = tuple(one.first["ranks"] for one in members)
    try:
        request = PlanRequest.of(**data, **shared, ranks=ranks, device=device, network=network, evaluate="none", device_memory=2**62)
        measured, sizes = measure(request, [members[0].runs[0].path]), expected_sizes(request)
        for p, one in zip(ranks, members, strict=True):
            graph = {"replicated+partitioned": "published"}.get(one.first["graph"], one.first["graph"])
            spread = graph in ("partitioned", "published") and p > 1
            row = predict(request, sizes, CandidateGrid(p, one.first["replication"] if spread else p, graph), inf, measured)
            predicted[p] = Point(row.seconds.epoch, sum(getattr(row.traffic, kind) for kind in SENT))
    except (UsageError, DataError) as error:
        return Family(label, members, {}, str(error))
    return Family(label, members, predicted, "")
