"""Figures made of bars: seconds by phase, bytes by kind, how evenly ranks worked, how fast was sampled, and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..distributed.comm.base import KINDS
from ..distributed.comm.ledger import ASIDE, PHASES
from . import plots
from .canvas import COLOURS, shown
from .figure import Numbers, Plot
from .reading import Found
from .series import Series
from .table import figure

_PHASE_COLOURS = dict(zip(PHASES, (*COLOURS[:6], COLOURS[7], COLOURS[7]), strict=True))
_KIND_COLOURS = dict(zip(KINDS, COLOURS, strict=False))
_LONGEST = 14  # rows of the figure of balance


def _rows(count: int) -> tuple[float, float]:
    return 5.0, 1.3 + 0.34 * count


def _per_epoch(series: Series, key: str, name: str) -> float:
    return series.mean(lambda report: report[key][name] / max(1, report["epochs_in_this_run"]))


def _stack(series: list[Series], key: str, names: Sequence[str], scale: float) -> tuple[dict[str, list[float]], Numbers]:
    """Of an epoch, by part and series; and as a table with the parts that anybody has."""
    parts = {name: [_per_epoch(one, key, name) * scale for one in series] for name in names}
    used = [name for name, values in parts.items() if any(values)]
    totals = [sum(values) for values in zip(*parts.values(), strict=True)]
    body = [[one.label, *(figure(parts[name][i]) for name in used), figure(totals[i])] for i, one in enumerate(series)]
    return parts, Numbers(["run", *used, "all"], body)


def _largest(label: str, parts: dict[str, list[float]], place: int, unit: str) -> str:
    most = max(parts, key=lambda name: parts[name][place])
    return f"{label}: {figure(sum(values[place] for values in parts.values()), 3)} {unit}, most of it {most}"


def phases(series: list[Series]) -> Plot | None:
    """Seconds of an epoch by phase; the slowest rank in each."""
    if not series:
        return None
    parts, numbers = _stack(series, "phases", PHASES, 1.0)
    labels = [shown(one.label) for one in series]

    def draw(sheet: Any, axis: Any) -> None:
        plots.stacked(axis, labels, parts, _PHASE_COLOURS)
        axis.set_xlabel("seconds of an epoch, slowest rank in each phase")
        plots.legend(sheet, axis, 5)

    said = ". ".join(_largest(one.label, parts, i, "s") for i, one in enumerate(series))
    note = f"Sample and fetch are what a step waited for. {ASIDE[0].capitalize()} and {ASIDE[1]} stand beside training, in grey."
    says = f"Stacked bars of the seconds of an epoch. {said}."
    return Plot("phases", "Seconds by phase", says, note, draw, _rows(len(series)), numbers)


def bytes_by_kind(series: list[Series]) -> Plot | None:
    """What all ranks send in an epoch."""
    parts, numbers = _stack(series, "training_bytes", KINDS, 1e-6) if series else ({}, Numbers([], []))
    if not any(map(any, parts.values())):
        return None
    labels = [shown(one.label) for one in series]

    def draw(sheet: Any, axis: Any) -> None:
        plots.stacked(axis, labels, parts, _KIND_COLOURS)
        axis.set_xlabel("MB sent in an epoch of training, all ranks")
        plots.legend(sheet, axis, 4)

    said = ". ".join(_largest(one.label, parts, i, "MB") for i, one in enumerate(series))
    note = "Each message once; set-up is in it, evaluation is not."
    return Plot("bytes", "Bytes by kind", f"Stacked bars of MB sent in an epoch. {said}.", note, draw, _rows(len(series)), numbers)


def balance(series: list[Series]) -> Plot | None:
    """Of the first seed of each series on several ranks, the phases that take longest."""
    spread = [one for one in series if one.first["ranks"] > 1 and "balance" in one.first]
    if not spread:
        return None
    found = [(one.label, phase, one.first["balance"]["seconds"][phase]) for one in spread for phase in PHASES]
    least = sorted((item[2]["max"] for item in found), reverse=True)[:_LONGEST][-1]
    busy = [item for item in found if item[2]["max"] >= least and item[2]["max"] > 0]
    alone = len(spread) == 1

    def draw(sheet: Any, axis: Any) -> None:
        names = [phase if alone else f"{shown(label, 22)}: {phase}" for label, phase, _ in busy]
        plots.ranges(axis, names, [item[2] for item in busy], [_PHASE_COLOURS[item[1]] for item in busy])
        axis.set_xlabel("seconds of the run: least, median and most of a rank")

    body = [[f"{label}: {phase}", *(figure(of[key]) for key in ("min", "median", "max")), str(of["rank"])] for label, phase, of in busy]
    said = ". ".join(f"{row[0]} from {row[1]} to {row[3]} s, most on rank {row[4]}" for row in body)
    note = f"The first seed; of all phases the {_LONGEST} longest. A rank that waits for others in reduce was early, not slow."
    numbers = Numbers(["run and phase", "least", "median", "most", "rank of the most"], body)
    return Plot("balance", "Balance of ranks", f"Seconds by rank. {said}.", note, draw, (5.0, 1.2 + 0.25 * len(busy)), numbers)


def sampling(series: list[Series]) -> Plot | None:
    """Edges a second of the runs of `sample`."""
    drawn = [one for one in series if not one.runs[0].trained]
    if not drawn:
        return None
    rates = [one.mean(lambda report: report["sampled_edges_per_second"] / 1e6) for one in drawn]

    def draw(sheet: Any, axis: Any) -> None:
        plots.bars(axis, [shown(one.label) for one in drawn], [dict.fromkeys(("min", "median", "max"), rate) for rate in rates])
        axis.set_xlabel("million sampled edges a second, all ranks")

    body = [[one.label, figure(rate, 3), f"{one.first['ranks']}", str(one.first["digest"] or "")[:12]]
            for one, rate in zip(drawn, rates, strict=True)]  # fmt: skip
    said = ". ".join(f"{row[0]}: {row[1]} million edges a second" for row in body)
    note = "Runs with the same digest drew the same minibatches."
    numbers = Numbers(["run", "million edges/s", "ranks", "digest"], body)
    return Plot("sampling", "Sampling", said + ".", note, draw, _rows(len(drawn)), numbers)


def bench(name: str, bench: Found) -> Plot:
    """A benchmark with a median, a minimum and a maximum for each contestant."""
    results, unit = bench["results"], str(bench["unit"])

    def draw(sheet: Any, axis: Any) -> None:
        plots.bars(axis, [shown(label) for label in results], list(results.values()))
        axis.set_xlabel(unit)

    body = [[label, *(figure(of[key], 3) for key in ("median", "min", "max"))] for label, of in results.items()]
    said = ". ".join(f"{row[0]}: {row[1]}" for row in body)
    numbers = Numbers(["contestant", "median", "least", "most"], body)
    return Plot(f"bench_{name}", name, f"{unit}. {said}.", "Medians, with the least and the most.", draw, _rows(len(results)), numbers)
