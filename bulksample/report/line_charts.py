"""Charts made of lines: scores and losses during training, and seconds and bytes of an epoch by the number of ranks."""

from __future__ import annotations

from typing import Any

from ..config.metrics import goodness, percent, titled
from . import drawing
from .chart import Chart, TextTable
from .chart_style import COLOURS, INK, short_label, short_labels
from .scaling import SENT, Family
from .series import Series, metric_of, split_and_metric
from .table import SPLITS, format_number, scored_split


def progress(series: list[Series], styles: drawing.Styles) -> list[Chart | None]:
    """Chart scores against seconds and against bytes, and the loss against epochs."""
    curved = [one for one in series if one.lines]
    score, metric = split_and_metric(curved), metric_of(curved)
    score_keys = {one.label: key for one in curved if (key := _score_key(one))}
    costs: dict[str, tuple[str, str, drawing.Cost]] = {
        "score_seconds": ("against time", "seconds of training, as measured", lambda line: line["seconds"]),
        "score_bytes": ("against bytes", "MB sent in training, all ranks", drawing.sent_megabytes),
    }
    scored = [one for one in curved if one.label in score_keys]
    charts: list[Chart | None] = []
    for name, (title, unit, cost) in costs.items():
        grouped = {one.label: [drawing.curve_of(lines, cost, score_keys[one.label]) for lines in one.lines] for one in scored}
        heading = f"{score.capitalize() if score != 'score' else 'Score'} {title}"
        charts.append(_curves(name, heading, unit, titled(score, metric), grouped, styles, percent(metric), goodness(metric, 1.0) < 0))
    losses = {one.label: [drawing.curve_of(lines, lambda line: 1, "loss") for lines in one.lines] for one in curved}
    return [*charts, _curves("loss", "Training loss", "epoch", "loss", losses, styles, 1.0)]


def _score_key(series: Series) -> str | None:
    """Return the key of the score in the lines of epochs; without a report, that of the best split the lines hold."""
    if series.first:
        split = scored_split(series.first) if "metric" in series.first else None
        return f"{split}_{series.first['metric']}" if split else None
    keys = [key for lines in series.lines for line in lines for key in line]
    return next((key for split in SPLITS for key in keys if key.startswith(f"{split}_")), None)


def _curves(
    name: str,
    title: str,
    unit: str,
    height: str,
    grouped: dict[str, list[drawing.Curve]],
    styles: drawing.Styles,
    scale: float,
    lowest: bool = False,
) -> Chart | None:
    """Chart a curve for each label; None if no curve has a cost."""
    drawn = {label: each for label, each in grouped.items() if all(one.costs for one in each) and any(one.costs[-1] for one in each)}
    if not drawn:
        return None
    means = {label: drawing.mean_curve(each)[:2] for label, each in drawn.items()}
    is_loss = name == "loss"
    best, best_name = (min, "lowest") if is_loss or lowest else (max, "highest")
    body = [
        [label, format_number(costs[-1]), format_number(scale * values[-1]), format_number(scale * best(values))]
        for label, (costs, values) in means.items()
    ]

    def draw(figure: Any, axis: Any) -> None:
        short = dict(zip(drawn, short_labels(drawn), strict=True))
        own = {short[label]: styles[label] for label in drawn}
        drawing.curves(axis, {short[label]: each for label, each in drawn.items()}, own, scale, straight=is_loss)
        axis.set(xlabel=unit, ylabel=height)
        drawing.legend(figure, axis, 3)

    texts = [f"{row[0]} ends at {row[2]} after {row[1]}, its {best_name} is {row[3]}" for row in body]
    seeds = max(map(len, drawn.values()))
    note = "A line is the mean over seeds, a band the range between the smallest and the largest." if seeds > 1 else ""
    numbers = TextTable(["run", f"{unit}, at the end", f"{height}, at the end", best_name], body)
    return Chart(name, title, f"{height} against {unit}. {'. '.join(texts)}.", note, draw, (4.6, 3.3), numbers)


def scaling(families: list[Family]) -> list[Chart | None]:
    """Chart the seconds and the bytes of an epoch by the number of ranks."""
    seconds = "from the run on the fewest ranks, for ranks with processors of their own"
    return [
        _by_ranks(families, "seconds", "Seconds by ranks", "seconds of an epoch", 1.0, seconds),
        _by_ranks(families, "bytes", "Bytes by ranks", "MB sent in an epoch, all ranks", 1e-6, f"for {', '.join(SENT)}"),
    ]


def _by_ranks(families: list[Family], what: str, title: str, unit: str, scale: float, prediction: str) -> Chart | None:
    """Chart measurements as dots and predictions as crosses; None if every measurement is zero."""
    points = {
        family.label: [(one.first["ranks"], scale * getattr(family.measured(one), what), family.predicted.get(one.first["ranks"]))
                       for one in family.members]
        for family in families
    }  # fmt: skip
    if not any(value for each in points.values() for _, value, _ in each):
        return None

    def draw(figure: Any, axis: Any) -> None:
        for colour, each, short in zip(COLOURS * len(points), points.values(), short_labels(points, 40), strict=False):
            axis.plot([p for p, _, _ in each], [value for _, value, _ in each], "o-", color=colour, label=short)
            predicted = [(p, scale * getattr(point, what)) for p, _, point in each if point]
            if predicted:
                axis.plot(*zip(*predicted, strict=True), "x--", color=INK, linewidth=1.1, label=short_label(f"{short}, predicted", 52))
        ranks = sorted({p for each in points.values() for p, _, _ in each})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, ranks)
        axis.minorticks_off()
        axis.set(xlabel="ranks", ylabel=unit)
        axis.set_ylim(bottom=0)
        drawing.legend(figure, axis, 2)

    body = [
        [f"{label}, {p} ranks", format_number(value), format_number(scale * getattr(point, what)) if point else ""]
        for label, each in points.items() for p, value, point in each
    ]  # fmt: skip
    texts = [f"{row[0]}: {row[1]} measured" + (f", {row[2]} predicted" if row[2] else "") for row in body]
    reasons = [f"No prediction for {family.label}: {family.why_not}." for family in families if family.why_not]
    note = " ".join([f"Crosses are predictions of bulksample plan {prediction}.", *reasons])
    numbers = TextTable(["run", "measured", "predicted"], body)
    return Chart(f"scaling_{what}", title, f"{unit} by ranks. {'. '.join(texts)}.", note, draw, (4.6, 3.3), numbers)
