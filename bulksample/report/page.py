"""Write runs as one HTML page: tables, charts with their numbers, differences in settings, environments. The page loads nothing else.

The same tables are written as Markdown, and the numbers of every run as CSV. Names that users chose are escaped.
"""

from __future__ import annotations

from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..config.metrics import percent, titled
from ..errors import UsageError
from ..printable import printable
from ..version import __version__
from . import charts
from .drawing import TextTable, inline, new_figure, save, styles_of
from .files import JsonObject
from .reading import Reading
from .series import Series, by_validation, differences, environments, families, metric_of, score, series_of, split_and_metric
from .table import format_number, head_and_body, markdown, to_csv


class Page:
    """The contents of a report: tables and charts, before they are written.

    `device` and `network` of `plan` are those of the predictions that runs on several numbers of ranks are compared with.
    """

    def __init__(self, reading: Reading, device: str = "cpu", network: str = "loopback") -> None:
        self.series, self.skipped = series_of(reading.runs), reading.skipped
        self._finished = trained = [one for one in self.series if one.runs[0].trained and one.first]
        styles = styles_of(one.label for one in self.series if one.lines)
        drawn = [charts.phases(trained), *charts.progress(self.series, styles), charts.bytes_by_kind(trained)]
        drawn += [*charts.scaling(families(self.series, device, network)), charts.balance(trained), charts.sampling(self.series)]
        self.charts = [chart for chart in drawn if chart] + [charts.benchmark(name, bench) for name, bench in reading.benches]
        tables = [(name, head_and_body(one["methods"], list(one["networks"]))) for name, one in reading.comparisons]
        self.comparisons = [(name, TextTable(*table)) for name, table in tables]
        alike = trained or [one for one in self.series if one.first]
        rows = [[name.replace("_", " "), *values] for name, values in differences(alike).items()]
        self.differences = TextTable(["setting", *(one.label for one in alike)], rows)
        self.environments = environments(self.series)
        self._runs = reading.runs

    @property
    def trained(self) -> TextTable:
        """Table with a row for each series of `train`."""
        head = ["run", "method", "model", "sampler", "ranks", "seeds", titled(split_and_metric(self.series), metric_of(self.series))]
        head += ["epochs", "s/epoch", "seconds", "MB sent", "warning"]
        return _without_empty_columns(head, [_trained(one) for one in self.series if one.runs[0].trained])

    @property
    def sampled(self) -> TextTable:
        """Table with a row for each run of `sample`. Equal digests mean equal mini-batches."""
        head = ["run", "sampler", "fanouts", "ranks", "minibatches", "edges", "million edges/s", "seconds", "MB sent", "digest"]
        return _without_empty_columns(head, [_sampled(one) for one in self.series if not one.runs[0].trained])

    @property
    def sentence(self) -> str:
        """Return one line about the runs that were read: their number, graphs and version."""
        names = list(dict.fromkeys(str(one.first["data"]["name"]) for one in self.series if one.has("data")))
        count = sum(len(one.runs) for one in self.series)
        runs = [f"{count} run{'s' if count != 1 else ''}" + (f" in {len(self.series)} series" if count > len(self.series) else "")]
        return " · ".join([*(runs if count else []), *([f"graph {', '.join(names)}"] if names else []), f"bulksample {__version__}"])

    @property
    def best(self) -> list[tuple[str, str, str]]:
        """The best of several series: a title, the label, and the value."""
        trained = self._finished
        if len(trained) < 2:
            return []
        scored = [one for one in trained if one.text(score)]
        winners = []
        if metric := metric_of(scored):
            most, scale = max(scored, key=by_validation), percent(metric)
            value = f"{most.text(score, scale)} %" if scale == 100 else most.text(score, scale)
            winners.append((f"{split_and_metric(scored)} of the best by validation", most.label, value))
        quickest = min(trained, key=lambda one: one.mean(itemgetter("seconds_per_epoch")))
        winners.append(("shortest epoch", quickest.label, f"{format_number(quickest.mean(itemgetter('seconds_per_epoch')))} s"))
        several = [one for one in trained if one.first["ranks"] > 1]
        if len(several) > 1:
            least = min(several, key=lambda one: one.mean(_sent))
            winners.append(("least sent", least.label, f"{format_number(least.mean(_sent))} MB"))
        return winners

    def write_pngs(self, folder: Path) -> list[Path]:
        """Write each chart as a PNG file and return the paths."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for chart in self.charts:
            with new_figure(size=chart.size) as (figure, axes):
                chart.draw(figure, axes[0])
                written += save(figure, folder / chart.name)
        return written

    def to_html(self, title: str) -> str:
        """Return the page as HTML; raise `UsageError` if Jinja2 or matplotlib is missing."""
        try:
            from jinja2 import Environment, StrictUndefined
            from markupsafe import Markup
        except ImportError as error:
            raise UsageError(f"a page needs Jinja2 ({error}); use pip install 'bulksample[plot]'") from error
        drawn = []
        for i, chart in enumerate(self.charts):
            with new_figure(size=chart.size) as (figure, axes):
                chart.draw(figure, axes[0])
                drawn.append(Markup(inline(figure, f"p{i}")))
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown)
        text = (files("bulksample.report") / "page.html").read_text(encoding="utf-8")
        return environment.from_string(text).render(page=self, title=title, drawn=drawn, version=__version__) + "\n"

    def to_markdown(self, title: str) -> str:
        """Return the tables as Markdown: runs, samples, comparisons, the numbers of every chart, and the differences."""
        numbers = [(chart.title, chart.numbers) for chart in self.charts]
        tables = [("Runs", self.trained), ("Samples", self.sampled), *self.comparisons, *numbers]
        tables += [("What differs", self.differences)] if self.differences.body else []
        parts = [
            f"# {printable(title)}",
            *("\n".join([f"## {name}", "", *markdown(table.head, table.body)]) for name, table in tables if table.body),
        ]
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """Return CSV with a line for each run: its numbers and settings, nested ones as ``phases.sample``."""
        labels = {id(run): one.label for one in self.series for run in one.runs}
        return to_csv([{"run": run.name, "series": labels[id(run)], **_plain(run.report)} for run in self._runs])


def _shown(value: Any) -> Any:
    """Return a value as the page shows it; only text of the page itself is left as it is."""
    return printable(" ".join(value.split())) if type(value) is str else value


def _without_empty_columns(head: list[str], body: list[list[str]]) -> TextTable:
    kept = [i for i in range(len(head)) if any(row[i] for row in body)]
    return TextTable([head[i] for i in kept], [[row[i] for i in kept] for row in body])


def _trained(series: Series) -> list[str]:
    if not series.first:
        done = str(len(series.runs[0].lines))
        return [series.label, "not finished", *[""] * 5, done, *[""] * 4]
    about = [str(series.first.get(key, "")) for key in ("method", "model", "sampler", "ranks")]
    seconds = [series.text(itemgetter("seconds_per_epoch")), series.text(itemgetter("seconds"))]
    counted = [format_number(series.mean(itemgetter("epochs"))), *seconds, format_number(series.mean(_sent))]
    warning = "; ".join(series.first.get("warnings", []))
    return [series.label, *about, str(len(series.runs)), series.text(score, percent(series.first.get("metric", ""))), *counted, warning]


def _sampled(series: Series) -> list[str]:
    report = series.first
    drawn = [report["sampler"], ",".join(map(str, report["fanouts"])), str(report["ranks"])]
    counted = [f"{report['minibatches']:,}", f"{report['sampled_edges']:,}", format_number(report["sampled_edges_per_second"] / 1e6, 3)]
    cost = [format_number(report["seconds"]), format_number(_sent(report))]
    return [series.label, *drawn, *counted, *cost, (report["digest"] or "")[:12]]


def _sent(report: JsonObject) -> float:
    return float(report["training_bytes" if "training_bytes" in report else "bytes_sent"]["total"]) / 1e6


def _plain(report: JsonObject) -> JsonObject:
    """Return a report without lists of objects, which have no place in a line of CSV."""
    lists = {key: value for key, value in report.items() if isinstance(value, list)}
    nested = {key for key, items in lists.items() if any(isinstance(item, dict | list) for item in items)}
    return {key: value for key, value in report.items() if key not in nested}
