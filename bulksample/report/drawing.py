"""Draw on matplotlib axes, in the one style of all charts; charts as files, and as SVG inside a page that is light or dark.

No other module of the package imports matplotlib, and this one imports it only to draw. Inside a page, colours are CSS variables, so
that a chart follows the page: `--ink` for text and axes, `--rule` for the grid, `--c0` and so on for the entries of COLOURS. In a chart of
curves a line is the mean score over seeds after each evaluated epoch, a band the range over seeds, a dot the last epoch. A label has the
same colour and dashes in every figure; dashes tell labels apart without colour.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..config.metrics import percent, titled
from ..errors import UsageError
from ..printable import printable
from .compare import ContestantRun
from .network import NetworkModel
from .series import numbered
from .table import scored_split

# Okabe and Ito, "Color universal design", 2008; without its yellow, which is faint on white. The last marks work beside training.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000001", "#9aa0a6")
INK, RULE = "#1b1f24", "#e3e5e8"
NAMES = {INK: "--ink", RULE: "--rule", **{colour: f"--c{i}" for i, colour in enumerate(COLOURS)}}
_STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.labelsize": 9, "legend.fontsize": 8.5, "xtick.labelsize": 8, "ytick.labelsize": 8, "lines.linewidth": 1.6,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": RULE, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "figure.constrained_layout.use": True, "svg.fonttype": "none", "pdf.fonttype": 42,
    "svg.hashsalt": "bulksample", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.linewidth": 0.7, "axes.titlesize": 9, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS[:-1])})",
}  # fmt: skip
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)))
_SERIES = len(COLOURS) - 1
_LETTER, _LINE, _HANDLE = 0.075, 0.21, 0.65  # sizes in a legend, in inches: a letter, a line, the sample beside a label
_ROWS = 3  # most rows of a legend above the panels
_LOG_FROM = 5.0  # ratio of the largest to the smallest cost from which the axis is logarithmic
Line = Mapping[str, Any]
Cost = Callable[[Line], float]
Styles = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class TextTable:
    """A table of text: labels in the first column, numbers in the others."""

    head: list[str]
    body: list[list[str]]


@dataclass(frozen=True)
class Chart:
    """A chart: how it is drawn, and what it shows as a table and in words."""

    name: str  # of its file, without suffix
    title: str
    description: str  # for readers who cannot see it
    note: str  # shown under the chart
    draw: Callable[[Any, Any], None]  # on a matplotlib figure and one of its axes
    size: tuple[float, float]  # in inches
    numbers: TextTable


@contextmanager
def new_figure(panels: int = 1, size: tuple[float, float] = (3.6, 3.0), share_y: bool = False) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a matplotlib figure with panels in a row, each of `size` inches, and their axes. Draw and save inside the context.

    Raises `UsageError` if matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"plots need matplotlib ({error}); use pip install 'bulksample[plot]', or --no-plots") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(size[0] * panels, size[1]))
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(1, panels, sharey=share_y, squeeze=False)[0])


def save(figure: Any, path: Path, suffixes: tuple[str, ...] = (".png",)) -> list[Path]:
    """Write a figure as a file of each suffix, and return the paths. The same figure gives the same bytes."""
    written = [path.with_suffix(suffix) for suffix in suffixes]
    for file in written:
        undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(file.suffix)
        figure.savefig(file, dpi=200, metadata=undated)
    return written


def inline(figure: Any, prefix: str) -> str:
    """Return a figure as an SVG element for a page: without a size, with ids that start with `prefix`, with colours as CSS variables."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r"(font: [^']*?)'[^;\"]*", r"\1var(--font)", text)
    named = "|".join(NAMES)
    return re.sub(rf"(fill|stroke): ({named})", lambda found: f"{found[1]}: var({NAMES[found[2]]})", text).strip()


def short_labels(labels: Iterable[str], longest: int = 30) -> list[str]:
    """Shorten labels as `short_label` does, and number those that are then alike: an axis draws equal names as one."""
    return numbered(short_label(label, longest) for label in labels)


def short_label(label: str, longest: int = 30) -> str:
    """Shorten a label and escape it: matplotlib reads ``$`` as mathematics and hides labels that start with ``_``."""
    label = printable(label)
    short = label if len(label) <= longest else f"{label[: longest - 1]}…"
    return (" " + short if short.startswith("_") else short).replace("$", r"\$")


@dataclass(frozen=True)
class Curve:
    """The cost of training so far and the score after each evaluated epoch of one seed."""

    costs: list[float]
    scores: list[float]


def draw_comparison(runs: Sequence[ContestantRun], networks: list[NetworkModel], out: Path) -> list[Path]:
    """Write ``accuracy_bytes`` and ``accuracy_seconds``, each as .png and .pdf, for the runs that did not fail.

    Seconds have one panel as measured, and one for each network. Raises `UsageError` if matplotlib is missing.
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


def curve(run: ContestantRun, cost: Cost) -> Curve:
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


def _figure(runs: Sequence[ContestantRun], panels: dict[str, Cost], styles: Styles, path: Path) -> list[Path]:
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


def bars(axis: Any, labels: list[str], spreads: Sequence[Mapping[str, float]]) -> None:
    """Draw a bar to the median of each spread, and a line from its minimum to its maximum."""
    middle = [spread["median"] for spread in spreads]
    reach = [[abs(spread[end] - spread["median"]) for spread in spreads] for end in ("min", "max")]
    axis.barh(range(len(labels)), middle, color=COLOURS[0], height=0.62)
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
