"""Draw on matplotlib axes: curves over seeds, stacked bars, ranges over ranks; and the two figures of a comparison.

A line is the mean score over seeds after each evaluated epoch, a band the range over seeds, a dot the last epoch.
A label has the same colour and dashes in every figure; dashes tell labels apart without colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from ..config.metrics import percent, titled
from .chart_style import COLOURS, INK, new_figure, save
from .network import NetworkModel
from .table import scored_split

_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
_SERIES = len(COLOURS) - 1
_LETTER, _LINE, _HANDLE = 0.075, 0.21, 0.65  # sizes in a legend, in inches: a letter, a line, the sample beside a label
_ROWS = 3  # most rows of a legend above the panels
_LOG_FROM = 5.0  # ratio of the largest to the smallest cost from which the axis is logarithmic

Line = Mapping[str, Any]
Cost = Callable[[Line], float]
Styles = dict[str, dict[str, Any]]


class LabelledRun(Protocol):
    """A run with the label that all its seeds share."""

    @property
    def label(self) -> str: ...
    @property
    def report(self) -> dict[str, Any] | None: ...
    @property
    def lines(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Curve:
    """The cost of training so far and the score after each evaluated epoch of one seed."""

    costs: list[float]
    scores: list[float]


def draw_comparison(runs: Sequence[LabelledRun], networks: list[NetworkModel], out: Path) -> list[Path]:
    """Write ``accuracy_bytes`` and ``accuracy_seconds``, each as .png and .pdf, for the runs that did not fail.

    Seconds have one panel as measured, and one for each network.

    Raises
    ------
    UsageError
        If matplotlib is missing.
    """
    good = [run for run in runs if run.report and scored_split(run.report)]
    clock: dict[str, Cost] = {"seconds, as measured": lambda line: line["seconds"]}
    networked: dict[str, Cost] = {f"seconds, {network.label}": network.seconds for network in networks}
    figures: dict[str, dict[str, Cost]] = {
        "accuracy_bytes": {"MB sent in training, all ranks": sent_megabytes},
        "accuracy_seconds": clock | networked,
    }
    styles = styles_of(run.label for run in runs)
    return [path for name, panels in figures.items() for path in _figure(good, panels, styles, out / name)]


def sent_megabytes(line: Line) -> float:
    """Return the MB that all ranks sent in training, from a line of an epoch or a report."""
    return float(line["training_bytes"]["total"]) / 1e6


def styles_of(labels: Iterable[str]) -> Styles:
    """Assign a colour and dashes to each label, in order."""
    return {
        label: {"color": COLOURS[i % _SERIES], "linestyle": _DASHES[i % len(_DASHES)], "zorder": 3 + i}
        for i, label in enumerate(dict.fromkeys(labels))
    }


def curve(run: LabelledRun, cost: Cost) -> Curve:
    """Return the score of a run against its cost. Epochs without an evaluation add cost but no point."""
    assert run.report is not None
    return curve_of(run.lines, cost, f"{scored_split(run.report)}_{run.report['metric']}")


def curve_of(lines: Sequence[Line], cost: Cost, key: str) -> Curve:
    """Return the value of `key` in the lines of epochs against the cost so far. Lines without the key add cost but no point."""
    points = [(so_far, line[key]) for so_far, line in zip(accumulate(map(cost, lines)), lines, strict=True) if line.get(key) is not None]
    return Curve([point[0] for point in points], [point[1] for point in points])


def mean_curve(curves: list[Curve]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return mean cost, mean score, smallest and largest score over seeds, as far as all of them go."""
    costs = [sum(column) / len(column) for column in zip(*(one.costs for one in curves), strict=False)]
    columns = list(zip(*(one.scores for one in curves), strict=False))
    return costs, [sum(column) / len(column) for column in columns], list(map(min, columns)), list(map(max, columns))


def _figure(runs: Sequence[LabelledRun], panels: dict[str, Cost], styles: Styles, path: Path) -> list[Path]:
    with new_figure(len(panels), (3.4, 3.0), share_y=True) as (figure, axes):
        if not runs:
            return []
        for axis, (title, cost) in zip(axes, panels.items(), strict=True):
            labels = dict.fromkeys(run.label for run in runs)
            grouped = {label: [curve(run, cost) for run in runs if run.label == label] for label in labels}
            curves(axis, grouped, styles, scale=percent(runs[0].report["metric"]) if runs[0].report else 100)
            axis.set_xlabel(title)
        report = runs[0].report or {}
        axes[0].set_ylabel(titled(f"{scored_split(report)} {report['metric']}", report["metric"]))
        legend(figure, axes[0], 2 + 2 * len(panels))
        return save(figure, path, (".png", ".pdf"))


def legend(figure: Any, axis: Any, columns: int) -> None:
    """Draw a legend above the panels, or beside them on a wider figure if labels are many or long; none for a single label."""
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) < 2:
        return
    width, height = figure.get_size_inches()
    entry = _HANDLE + _LETTER * max(map(len, labels))
    columns = max(1, min(len(labels), columns, int(width / entry)))
    if len(labels) <= _ROWS * columns:
        figure.legend(handles, labels, loc="outside upper center", ncols=columns)
    else:
        figure.set_size_inches(width + entry, max(height, _LINE * len(labels)))
        figure.legend(handles, labels, loc="outside right upper")


def curves(axis: Any, grouped: Mapping[str, list[Curve]], styles: Styles, scale: float = 1.0, straight: bool = False) -> None:
    """Draw a line, a band and a dot for each label. The axis is logarithmic if costs differ widely, unless `straight`."""
    ends = []
    for label, each in grouped.items():
        costs, *scores = mean_curve(each)
        if not costs:
            continue
        mean, low, high = ([scale * value for value in values] for values in scores)
        axis.plot(costs, mean, label=label, **styles[label])
        axis.plot(costs[-1:], mean[-1:], "o", markersize=4, **styles[label])
        axis.fill_between(costs, low, high, alpha=0.15, linewidth=0, color=styles[label]["color"])
        ends.append((costs[0], costs[-1]))
    lasts = [last for _, last in ends]
    if not straight and ends and min(first for first, _ in ends) > 0 and max(lasts) >= _LOG_FROM * min(lasts):
        axis.set_xscale("log")


def stacked(axis: Any, labels: list[str], parts: Mapping[str, list[float]], colours: Mapping[str, str]) -> None:
    """Draw a bar for each label, from the top down, made of its parts. Parts that are zero for every label are left out."""
    so_far = [0.0] * len(labels)
    for part, values in parts.items():
        if any(values):
            axis.barh(range(len(labels)), values, left=so_far, color=colours[part], label=part, height=0.62)
            so_far = [a + b for a, b in zip(so_far, values, strict=True)]
    _label_rows(axis, labels)


def bars(axis: Any, labels: list[str], spreads: Sequence[Mapping[str, float]], colours: Sequence[str] = COLOURS[:1]) -> None:
    """Draw a bar to the median of each spread, and a line from its minimum to its maximum."""
    middle = [spread["median"] for spread in spreads]
    reach = [[abs(spread[end] - spread["median"]) for spread in spreads] for end in ("min", "max")]
    axis.barh(range(len(labels)), middle, color=[colours[i % len(colours)] for i in range(len(labels))], height=0.62)
    if any(map(any, reach)):
        axis.errorbar(middle, range(len(labels)), xerr=reach, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
    _label_rows(axis, labels)


def ranges(axis: Any, labels: list[str], spreads: Sequence[Mapping[str, float]], colours: Sequence[str]) -> None:
    """Draw a line from the minimum to the maximum of each spread, and a dot at its median."""
    for place, (spread, colour) in enumerate(zip(spreads, colours, strict=True)):
        axis.plot([spread["min"], spread["max"]], [place, place], color=colour, linewidth=5, alpha=0.45, solid_capstyle="round")
        axis.plot([spread["median"]], [place], "o", color=colour, markersize=5)
    _label_rows(axis, labels)


def _label_rows(axis: Any, labels: list[str]) -> None:
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlim(left=0)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)
