"""Figures made of lines: scores and losses as training went on, and what an epoch takes and sends by the number of ranks."""

from __future__ import annotations

from typing import Any

from . import plots
from .canvas import COLOURS, INK, shown
from .figure import Numbers, Plot
from .scaling import SENT, Family
from .series import Series, split_and_metric
from .table import SPLITS, figure, scored_split


def score_key(series: Series) -> str | None:
    """The key of the score in lines of epochs; of lines alone, the best split that they tell of."""
    if series.first:
        split = scored_split(series.first) if "metric" in series.first else None
        return f"{split}_{series.first['metric']}" if split else None
    keys = [key for lines in series.lines for line in lines for key in line]
    return next((key for split in SPLITS for key in keys if key.startswith(f"{split}_")), None)


def progress(series: list[Series], styles: plots.Styles) -> list[Plot | None]:
    """Scores against seconds and against bytes, and the loss."""
    curved = [one for one in series if one.lines]
    score = split_and_metric(curved)
    scored = {one.label: key for one in curved if (key := score_key(one))}
    costs: dict[str, tuple[str, str, plots.Cost]] = {
        "score_seconds": ("against time", "seconds of training, as measured", lambda line: line["seconds"]),
        "score_bytes": ("against bytes", "MB sent in training, all ranks", plots.sent_megabytes),
    }
    made: list[Plot | None] = []
    for name, (title, unit, cost) in costs.items():
        shared = [one for one in curved if one.label in scored]
        grouped = {one.label: [plots.curve_of(lines, cost, scored[one.label]) for lines in one.lines] for one in shared}
        heading = f"{score.capitalize() if score != 'score' else 'Score'} {title}"
        made.append(_curves(name, heading, unit, f"{score}, %", grouped, styles, 100.0))
    losses = {one.label: [plots.curve_of(lines, lambda line: 1, "loss") for lines in one.lines] for one in curved}
    return [*made, _curves("loss", "Training loss", "epoch", "loss", losses, styles, 1.0)]


def _curves(
    name: str, title: str, unit: str, height: str, grouped: dict[str, list[plots.Curve]], styles: plots.Styles, scale: float
) -> Plot | None:
    drawn = {label: each for label, each in grouped.items() if all(one.costs for one in each) and any(one.costs[-1] for one in each)}
    if not drawn:
        return None
    ends = {label: plots.mean_curve(each) for label, each in drawn.items()}
    body = [[label, figure(end[0][-1]), figure(scale * end[1][-1]), figure(scale * max(end[1]))] for label, end in ends.items()]
    best = "lowest" if name == "loss" else "highest"
    if name == "loss":
        body = [[*row[:3], figure(min(end[1]))] for row, end in zip(body, ends.values(), strict=True)]

    def draw(sheet: Any, axis: Any) -> None:
        plots.curves(axis, {shown(key): value for key, value in drawn.items()}, {shown(key): style for key, style in styles.items()}, scale,
                     straight=name == "loss")  # fmt: skip
        axis.set(xlabel=unit, ylabel=height)
        plots.legend(sheet, axis, 3)

    said = ". ".join(f"{row[0]} ends at {row[2]} after {row[1]}, its {best} is {row[3]}" for row in body)
    seeds = max(map(len, drawn.values()))
    note = "A line is the mean over seeds, a band the smallest and the largest of them." if seeds > 1 else ""
    numbers = Numbers(["run", f"{unit}, at the end", f"{height}, at the end", best], body)
    return Plot(name, title, f"{height} against {unit}. {said}.", note, draw, (4.6, 3.3), numbers)


def scaling(families: list[Family]) -> list[Plot | None]:
    """Seconds and bytes of an epoch by the number of ranks."""
    return [_by_ranks(families, "seconds", 1.0), _by_ranks(families, "bytes", 1e-6)]


def _by_ranks(families: list[Family], what: str, scale: float) -> Plot | None:
    """Measured as dots, predicted as crosses."""
    points = {
        family.label: [(one.first["ranks"], scale * getattr(family.measured(one), what), family.predicted.get(one.first["ranks"]))
                       for one in family.members]
        for family in families
    }  # fmt: skip
    if not any(value for each in points.values() for _, value, _ in each):
        return None
    unit = "seconds of an epoch" if what == "seconds" else "MB sent in an epoch, all ranks"

    def draw(sheet: Any, axis: Any) -> None:
        for colour, (label, each) in zip(COLOURS * len(points), points.items(), strict=False):
            axis.plot([p for p, _, _ in each], [value for _, value, _ in each], "o-", color=colour, label=shown(label))
            foreseen = [(p, scale * getattr(point, what)) for p, _, point in each if point]
            if foreseen:
                axis.plot(*zip(*foreseen, strict=True), "x--", color=INK, linewidth=1.1, label=shown(f"{label}, predicted", 40))
        ranks = sorted({p for each in points.values() for p, _, _ in each})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, ranks)
        axis.minorticks_off()
        axis.set(xlabel="ranks", ylabel=unit)
        axis.set_ylim(bottom=0)
        plots.legend(sheet, axis, 2)

    body = [
        [f"{label}, {p} ranks", figure(value), figure(scale * getattr(point, what)) if point else ""]
        for label, each in points.items() for p, value, point in each
    ]  # fmt: skip
    said = ". ".join(f"{row[0]}: {row[1]} measured" + (f", {row[2]} predicted" if row[2] else "") for row in body)
    reasons = [f"No prediction for {family.label}: {family.why_not}." for family in families if family.why_not]
    how = "from the run on the fewest ranks, for ranks with processors of their own" if what == "seconds" else f"for {', '.join(SENT)}"
    note = " ".join([f"Crosses are predicted by bulksample plan {how}.", *reasons])
    title = "Seconds by ranks" if what == "seconds" else "Bytes by ranks"
    numbers = Numbers(["run", "measured", "predicted"], body)
    return Plot(f"scaling_{what}", title, f"{unit} by ranks. {said}.", note, draw, (4.6, 3.3), numbers)
