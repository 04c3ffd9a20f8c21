"""Accuracy against what it costs: bytes, and seconds. The only place that imports matplotlib, and only when it draws.

A line is the mean over seeds of the score after each evaluated epoch, a band its smallest and largest value, a dot the end.
Colours and dashes are a method's own in every figure, and can be told apart without seeing colours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .compare import Run
from .network import Link
from .table import scored_split

# Okabe and Ito, "Color universal design", 2008; without its yellow, which is faint on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
_STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.labelsize": 9, "legend.fontsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8, "lines.linewidth": 1.6,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "figure.constrained_layout.use": True, "svg.fonttype": "none", "pdf.fonttype": 42,
}  # fmt: skip
_PANEL = (3.3, 2.7)  # inches
_LOG_FROM = 5.0  # the largest cost over the smallest from which an axis is logarithmic

Cost = Callable[[dict[str, Any]], float]


@dataclass(frozen=True)
class Curve:
    """One seed: the cost of training so far, and the score, after each evaluated epoch."""

    costs: list[float]
    scores: list[float]


def draw(runs: list[Run], networks: list[Link], out: Path) -> list[Path]:
    """Write ``accuracy_bytes`` and ``accuracy_seconds``, each as .png and .pdf, of the runs that did not fail.

    Seconds have a panel for what the clock said, and one for each network.

    Raises
    ------
    UsageError
        If matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"plots need matplotlib ({error}); pip install 'bulksample[plot]' would fit, or --no-plots") from error
    good = [run for run in runs if run.report and scored_split(run.report)]
    if not good:
        return []
    clock: dict[str, Cost] = {"seconds, as measured": lambda line: line["seconds"]}
    figures: dict[str, dict[str, Cost]] = {
        "accuracy_bytes": {"MB sent in training, all ranks": lambda line: line["training_bytes"]["total"] / 1e6},
        "accuracy_seconds": clock | {f"seconds, {link.label}": link.seconds for link in networks},
    }
    styles = _styles(runs)
    with matplotlib.rc_context(_STYLE):
        return [path for name, panels in figures.items() for path in _figure(good, panels, styles, out / name)]


def _styles(runs: list[Run]) -> dict[str, dict[str, Any]]:
    """A method's own colour and dashes, which it keeps whether or not others failed."""
    labels = dict.fromkeys(run.label for run in runs)
    return {
        label: {"color": _COLOURS[i % len(_COLOURS)], "linestyle": _DASHES[i % len(_DASHES)], "zorder": 3 + i}
        for i, label in enumerate(labels)
    }


def curve(run: Run, cost: Cost) -> Curve:
    """Of one run; epochs that were not evaluated cost, and have no point."""
    assert run.report is not None
    key = f"{scored_split(run.report)}_{run.report['metric']}"
    spent = accumulate(cost(line) for line in run.lines)
    points = [(so_far, line[key]) for so_far, line in zip(spent, run.lines, strict=True) if key in line]
    return Curve([point[0] for point in points], [point[1] for point in points])


def mean_curve(curves: list[Curve]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Over seeds, as far as all of them go: cost, score, and the smallest and largest score."""
    costs = [sum(column) / len(column) for column in zip(*(one.costs for one in curves), strict=False)]
    columns = list(zip(*(one.scores for one in curves), strict=False))
    return costs, [sum(column) / len(column) for column in columns], list(map(min, columns)), list(map(max, columns))


def _figure(runs: list[Run], panels: dict[str, Cost], styles: dict[str, dict[str, Any]], path: Path) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(_PANEL[0] * len(panels) + 0.3, _PANEL[1] + 0.3))
    FigureCanvasAgg(made)
    axes = made.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, cost) in zip(axes, panels.items(), strict=True):
        _panel(axis, runs, cost, styles)
        axis.set_xlabel(title)
    report = runs[0].report or {}
    axes[0].set_ylabel(f"{scored_split(report)} {report['metric']}, %")
    labels = list(dict.fromkeys(run.label for run in runs))
    if len(labels) > 1:
        made.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=min(len(labels), 2 + 2 * len(panels)))
    written = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for file in written:
        made.savefig(file, dpi=200, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)
    return written


def _panel(axis: Any, runs: list[Run], cost: Cost, styles: dict[str, dict[str, Any]]) -> None:
    ends = []
    for label in dict.fromkeys(run.label for run in runs):
        costs, *scores = mean_curve([curve(run, cost) for run in runs if run.label == label])
        if not costs:
            continue
        mean, low, high = ([100 * value for value in values] for values in scores)
        axis.plot(costs, mean, label=label, **styles[label])
        axis.plot(costs[-1:], mean[-1:], "o", markersize=4, **styles[label])
        axis.fill_between(costs, low, high, alpha=0.15, linewidth=0, color=styles[label]["color"])
        ends.append((costs[0], costs[-1]))
    lasts = [last for _, last in ends]
    if ends and min(first for first, _ in ends) > 0 and max(lasts) >= _LOG_FROM * min(lasts):
        axis.set_xscale("log")
