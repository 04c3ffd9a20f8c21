"""Charts made of bars: seconds by phase, bytes by kind, balance of ranks, sampling rates, and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..distributed.comm.base import KINDS
from ..distributed.comm.ledger import ASIDE, PHASES
from . import drawing
from .chart import Chart, TextTable
from .chart_style import COLOURS, short_labels
from .checks import JsonObject
from .series import Series
from .table import format_number

_PHASE_COLOURS = dict(zip(PHASES, (*COLOURS[:6], COLOURS[7], COLOURS[7]), strict=True))
_KIND_COLOURS = dict(zip(KINDS, COLOURS, strict=False))
_LONGEST = 14  # rows of the chart of balance


def phases(series: list[Series]) -> Chart | None:
    """Chart the seconds of an epoch by phase, each from the slowest rank."""
    note = f"Sample and fetch are what a step waited for. {ASIDE[0].capitalize()} and {ASIDE[1]} run beside training; they are grey."
    return _stacked(
        series, "phases", _PHASE_COLOURS, (1.0, "s"), "Seconds by phase", "seconds of an epoch, slowest rank in each phase", note
    )


def bytes_by_kind(series: list[Series]) -> Chart | None:
    """Chart the bytes that all ranks send in an epoch, by kind."""
    note = "Each message counts once. Set-up is included, evaluation is not."
    unit, axis_label = (1e-6, "MB"), "MB sent in an epoch of training, all ranks"
    return _stacked(series, "training_bytes", _KIND_COLOURS, unit, "Bytes by kind", axis_label, note)


def _stacked(
    series: list[Series], key: str, colours: Mapping[str, str], unit: tuple[float, str], title: str, axis_label: str, note: str
) -> Chart | None:
    """Chart one bar for each series, made of the parts under `key` of its reports; None if every part is zero."""
    scale, unit_name = unit
    parts = {part: [_per_epoch(one, key, part) * scale for one in series] for part in colours}
    used = [part for part, values in parts.items() if any(values)]
    if not used:
        return None
    labels = short_labels(one.label for one in series)
    totals = [sum(values) for values in zip(*parts.values(), strict=True)]

    def draw(figure: Any, axis: Any) -> None:
        drawing.stacked(axis, labels, parts, colours)
        axis.set_xlabel(axis_label)
        drawing.legend(figure, axis, 5)

    body = [
        [one.label, *(format_number(parts[part][i]) for part in used), format_number(totals[i])] for i, one in enumerate(series)
    ]  # fmt: skip
    largest = [max(used, key=lambda part: parts[part][i]) for i in range(len(series))]
    texts = [f"{one.label}: {format_number(totals[i], 3)} {unit_name}, most of it {largest[i]}" for i, one in enumerate(series)]
    description = f"Stacked bars of {axis_label}. {'. '.join(texts)}."
    return Chart(key.removeprefix("training_"), title, description, note, draw, _size(len(series)), TextTable(["run", *used, "all"], body))


def _per_epoch(series: Series, key: str, part: str) -> float:
    return series.mean(lambda report: report[key][part] / max(1, report["epochs_in_this_run"]))


def _size(bars: int) -> tuple[float, float]:
    return 5.0, 1.3 + 0.34 * bars


def balance(series: list[Series]) -> Chart | None:
    """Chart the least, median and most seconds of a rank in the longest phases, for the first seed of each series on several ranks."""
    spread = [one for one in series if one.first["ranks"] > 1 and "balance" in one.first]
    if not spread:
        return None
    found = [(one.label, phase, one.first["balance"]["seconds"][phase]) for one in spread for phase in PHASES]
    least = sorted((item[2]["max"] for item in found), reverse=True)[:_LONGEST][-1]
    busy = [item for item in found if item[2]["max"] >= least and item[2]["max"] > 0]
    single = len(spread) == 1

    def draw(figure: Any, axis: Any) -> None:
        short = dict(zip(labels := [one.label for one in spread], short_labels(labels, 22), strict=True))
        names = [phase if single else f"{short[label]}: {phase}" for label, phase, _ in busy]
        drawing.ranges(axis, names, [item[2] for item in busy], [_PHASE_COLOURS[item[1]] for item in busy])
        axis.set_xlabel("seconds of the run: least, median and most of a rank")

    body = [
        [f"{label}: {phase}", *(format_number(of[key]) for key in ("min", "median", "max")), str(of["rank"])] for label, phase, of in busy
    ]
    texts = [f"{row[0]} from {row[1]} to {row[3]} s, most on rank {row[4]}" for row in body]
    note = f"The {_LONGEST} longest phases, first seed. A rank that waits for others in reduce was early, not slow."
    numbers = TextTable(["run and phase", "least", "median", "most", "rank of the most"], body)
    description = f"Seconds by rank. {'. '.join(texts)}."
    return Chart("balance", "Balance of ranks", description, note, draw, (5.0, 1.2 + 0.25 * len(busy)), numbers)


def sampling(series: list[Series]) -> Chart | None:
    """Chart the edges a second of the runs of `sample`."""
    sampled = [one for one in series if not one.runs[0].trained]
    if not sampled:
        return None
    rates = [one.mean(lambda report: report["sampled_edges_per_second"] / 1e6) for one in sampled]
    body = [
        [one.label, format_number(rate, 3), f"{one.first['ranks']}", str(one.first["digest"] or "")[:12]]
        for one, rate in zip(sampled, rates, strict=True)
    ]  # fmt: skip
    description = ". ".join(f"{row[0]}: {row[1]} million edges a second" for row in body) + "."
    note = "Runs with the same digest sampled the same mini-batches."
    spreads = [dict.fromkeys(("min", "median", "max"), rate) for rate in rates]
    draw = _bars([one.label for one in sampled], spreads, "million sampled edges a second, all ranks")
    numbers = TextTable(["run", "million edges/s", "ranks", "digest"], body)
    return Chart("sampling", "Sampling", description, note, draw, _size(len(sampled)), numbers)


def benchmark(name: str, bench: JsonObject) -> Chart:
    """Chart a benchmark that has a median, a minimum and a maximum for each contestant."""
    results, unit = bench["results"], str(bench["unit"])
    body = [[label, *(format_number(of[key], 3) for key in ("median", "min", "max"))] for label, of in results.items()]
    description = f"{unit}. {'. '.join(f'{row[0]}: {row[1]}' for row in body)}."
    note, draw = "Medians, with the least and the most.", _bars(list(results), list(results.values()), unit)
    numbers = TextTable(["contestant", "median", "least", "most"], body)
    return Chart(f"bench_{name}", name, description, note, draw, _size(len(results)), numbers)


def _bars(labels: Sequence[str], spreads: Sequence[Mapping[str, float]], axis_label: str) -> Any:
    def draw(figure: Any, axis: Any) -> None:
        drawing.bars(axis, short_labels(labels), spreads)
        axis.set_xlabel(axis_label)

    return draw
