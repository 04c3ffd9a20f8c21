"""Runs put together: those that differ in nothing but the seed are one series, with a label that no other series has."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from .reading import Run
from .table import plus_minus, scored_split, spread

# Settings that say where results go or how far a run was let go, not what was run.
_ASIDE = frozenset({"seed", "metrics", "checkpoint", "checkpoint_every", "resume", "quiet", "timeout", "listen", "join", "track"})
_TOLD = (  # of a report without a configuration
    "method", "model", "sampler", "fanouts", "batch_size", "frontier", "metric", "graph", "replication", "exchange", "partition",
    "bulk_size",
)  # fmt: skip
_BETWEEN = ("-", "_", ".", ",", " ", "/")  # words of a name
_BESIDE = ("ranks", "backend", "threads")


@dataclass(frozen=True)
class Series:
    """Runs of one label, in the order in which they were read."""

    label: str
    runs: list[Run]

    @property
    def first(self) -> dict[str, Any]:
        """The report of its first run; empty where only lines of epochs were found."""
        return self.runs[0].report

    @property
    def lines(self) -> list[list[dict[str, Any]]]:
        """Of the runs that have any."""
        return [run.lines for run in self.runs if run.lines]

    def has(self, key: str) -> bool:
        """Whether all reports say it."""
        return all(run.report.get(key) is not None for run in self.runs)

    def mean(self, figure: Callable[[dict[str, Any]], float]) -> float:
        """Of a figure of the reports."""
        return statistics.fmean(figure(run.report) for run in self.runs)

    def said(self, figure: Callable[[dict[str, Any]], float | None], scale: float = 1.0) -> str:
        """Mean and deviation in words; empty where a run does not say."""
        values = [figure(run.report) for run in self.runs]
        known = [value for value in values if value is not None]
        return plus_minus(spread(known), scale) if known and len(known) == len(values) else ""


def series_of(runs: list[Run]) -> list[Series]:
    """Runs in series, in the order of their first runs."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    labels = [_label(group) for group in groups.values()]
    often, seen = Counter(labels), Counter[str]()
    made = []
    for label, group in zip(labels, groups.values(), strict=True):
        seen[label] += 1
        made.append(Series(f"{label} ({seen[label]})" if often[label] > 1 else label, group))
    return made


def _identity(run: Run) -> str:
    """Equal for runs that differ in the seed alone."""
    if run.label:
        return json.dumps([str(run.out), run.label])
    if not run.trained or "config" not in run.report:
        return str(run.path)
    return json.dumps([settings(run), run.report.get("data"), run.report["environment"]["version"]], sort_keys=True, default=str)


def _label(group: list[Run]) -> str:
    if group[0].label:
        return group[0].name.removesuffix(f", seed {group[0].report.get('seed')}")
    if len(group) == 1:
        return group[0].name
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(run.name for run in group), strict=False))
    shared = "".join(letters[0] for letters in alike)
    rests = [run.name[len(shared) :] for run in group]
    whole = shared.endswith(_BETWEEN) or all(not rest or rest[0] in _BETWEEN or rest.isdigit() for rest in rests)
    return shared.rstrip("".join(_BETWEEN)) if whole and shared else group[0].name


def settings(run: Run) -> dict[str, Any]:
    """What was run: the configuration, or as much of it as an older report tells; seeds and places of results left out."""
    report = run.report
    given = report.get("config") or {key: report[key] for key in _TOLD if key in report}
    chosen = {key: value for key, value in given.items() if key not in _ASIDE}
    return chosen | {key: report[key] for key in _BESIDE if key in report}


def differences(series: list[Series]) -> dict[str, list[str]]:
    """Settings in which series differ, each with a value in words for every series; those that come to nothing else are left out."""
    each = [_in_words(one) for one in series]
    names = dict.fromkeys(name for settings in each for name in settings)
    columns = {name: [settings.get(name, "") for settings in each] for name in names}
    return {name: values for name, values in columns.items() if len(set(values)) > 1}


def _in_words(series: Series) -> dict[str, str]:
    data, around = series.first.get("data", {}), series.first.get("environment", {})
    said = {name: _word(value) for name, value in settings(series.runs[0]).items()}
    said |= {"data": _word(data["name"])} if "name" in data else {}
    return said | {name: _word(around[name]) for name in ("version", "processor") if name in around}


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_word, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={_word(inner)}" for key, inner in value.items()) or "none"
    return {True: "yes", False: "no", None: "unset"}.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)


def environments(series: list[Series]) -> list[tuple[str, dict[str, str]]]:
    """Every environment that runs stood in, with the labels of those; what cannot be told is left out."""
    found: dict[str, list[str]] = {}
    for one in series:
        for run in one.runs:
            if "environment" in run.report:
                labels = found.setdefault(json.dumps(run.report["environment"], sort_keys=True), [])
                labels += [one.label] if one.label not in labels else []
    return [(", ".join(labels), {key: _word(value) for key, value in json.loads(text).items()}) for text, labels in found.items()]


def split_and_metric(series: Iterable[Series]) -> str:
    """What scores are of, if all series agree on it; else "score"."""
    said = {f"{scored_split(one.first)} {one.first['metric']}" for one in series if "metric" in one.first and scored_split(one.first)}
    return said.pop() if len(said) == 1 else "score"


def score(report: dict[str, Any]) -> float | None:
    """At the best validation score, on the test split where there is one."""
    split = scored_split(report) if "metric" in report else None
    return report[f"{split}_{report['metric']}"] if split else None
