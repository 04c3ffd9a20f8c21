"""The charts of a report: bars of phases, bytes, ranks, sampling rates and benchmarks; lines of scores, losses and scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..config.metrics import goodness, percent, titled
from ..distributed.comm.base import KINDS
from ..distributed.comm.ledger import ASIDE, PHASES
from . import drawing
from .drawing import COLOURS, INK, Chart, TextTable, short_label, short_labels
from .files import JsonObject
from .series import SENT, Family, Series, metric_of, split_and_metric
from .table import SPLITS, format_number, scored_split

_PHASE_COLOURS = dict(zip(PHASES, (*COLOURS[:6], COLOURS[7], COLOURS[7]), strict=True))
_KIND_COLOURS = dict(zip(KINDS, COLOURS, strict=False))
_LONGEST = 14  # rows of the chart of balance


def phases(series: list[Series]) -> Chart | None:
    """Chart the seconds of an epoch by phase, each from the slowest rank."""
    note = f"Sample and fetch are what a step waited for. {ASIDE[0].capitalize()} and {ASIDE[1]} run beside training; they are grey."
    axis_label = "seconds of an epoch, slowest rank in each phase"
    return _stacked(series, "phases", _PHASE_COLOURS, (1.0, "s"), "Seconds by phase", axis_label, note)


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

    def per_epoch(one: Series, part: str) -> float:
        return one.mean(lambda report: report[key][part] / max(1, report["epochs_in_this_run"])) * scale

    parts = {part: [per_epoch(one, part) for one in series] for part in colours}
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


def _size(bars: int) -> tuple[float, float]:
    return 5.0, 1.3 + 0.34 * bars


def balance(series: list[Series]) -> Chart | None:
    """Chart the least, median and most seconds of a rank in the longest phases, for the first seed of each series on several ranks."""
    spread = [one for one in series if one.first["ranks"] > 1 and "balance" in one.first]
    if not spread:
        return None
    spreads = [(one.label, phase, one.first["balance"]["seconds"][phase]) for one in spread for phase in PHASES]
    least = sorted((item[2]["max"] for item in spreads), reverse=True)[:_LONGEST][-1]
    busy = [item for item in spreads if item[2]["max"] >= least and item[2]["max"] > 0]
    single = len(spread) == 1

    def draw(figure: Any, axis: Any) -> None:
        short = dict(zip(labels := [one.label for one in spread], short_labels(labels, 22), strict=True))
        names = [phase if single else f"{short[label]}: {phase}" for label, phase, _ in busy]
        drawing.ranges(axis, names, [item[2] for item in busy], [_PHASE_COLOURS[item[1]] for item in busy])
        axis.set_xlabel("seconds of the run: least, median and most of a rank")

    ends = ("min", "median", "max")
    body = [[f"{label}: {phase}", *(format_number(of[key]) for key in ends), str(of["rank"])] for label, phase, of in busy]
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
    name: str, title: str, unit: str, height: str, grouped: dict[str, list[drawing.Curve]], styles: drawing.Styles, scale: float,
    lowest: bool = False,
) -> Chart | None:  # fmt: skip
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
        styles_of_short = {short[label]: styles[label] for label in drawn}
        drawing.curves(axis, {short[label]: each for label, each in drawn.items()}, styles_of_short, scale, straight=is_loss)
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
