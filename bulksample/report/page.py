"""One page that holds everything: what was run, figures with their numbers, differences, environments. Nothing is loaded from elsewhere.

The same tables as Markdown, and the figures of every run as CSV. Names that users chose are text on the page, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..version import __version__
from . import bars, courses
from .canvas import canvas, inline, save
from .figure import Numbers, Plot
from .plots import styles_of
from .reading import Found, Reading
from .scaling import Family, families
from .series import Series, differences, environments, score, series_of, split_and_metric
from .table import figure, head_and_body, markdown, to_csv


class Page:
    """What a report says, before it is written.

    Parameters
    ----------
    reading : Reading
    device, network : str
        Of the prediction that runs on several numbers of ranks are held against; names of `plan`.
    """

    def __init__(self, reading: Reading, device: str = "cpu", network: str = "loopback") -> None:
        self.series, self.skipped = series_of(reading.runs), reading.skipped
        self.plots = _all_plots(self.series, families(self.series, device, network), reading.benches)
        self.comparisons = [
            (name, Numbers(*head_and_body(found["methods"], list(found["networks"])))) for name, found in reading.comparisons
        ]
        alike = [one for one in self.series if one.first and one.runs[0].trained] or [one for one in self.series if one.first]
        self.differences = Numbers(["setting", *(one.label for one in alike)], _transposed(differences(alike)))
        self.environments = environments(self.series)
        self._runs = reading.runs

    @property
    def trained(self) -> Numbers:
        """A line for each series that trained."""
        head = ["run", "method", "model", "sampler", "ranks", "seeds", f"{split_and_metric(self.series)}, %"]
        return _filled([*head, "epochs", "s/epoch", "seconds", "MB sent"], [_trained(one) for one in self.series if one.runs[0].trained])

    @property
    def sampled(self) -> Numbers:
        """A line for each run of `sample`; the same digest says that the same minibatches were drawn."""
        head = ["run", "sampler", "fanouts", "ranks", "minibatches", "edges", "million edges/s", "seconds", "MB sent", "digest"]
        return _filled(head, [_sampled(one) for one in self.series if not one.runs[0].trained])

    @property
    def sentence(self) -> str:
        """What was read, in a line."""
        names = list(dict.fromkeys(str(one.first["data"]["name"]) for one in self.series if one.has("data")))
        count = sum(len(one.runs) for one in self.series)
        runs = [f"{count} run{'s' if count != 1 else ''}" + (f" in {len(self.series)} series" if count > len(self.series) else "")]
        return " · ".join([*(runs if count else []), *([f"graph {', '.join(names)}"] if names else []), f"bulksample {__version__}"])

    @property
    def best(self) -> list[tuple[str, str, str]]:
        """Where there is a choice: what, by whom, and how much."""
        trained = [one for one in self.series if one.runs[0].trained and one.first]
        if len(trained) < 2:
            return []
        scored = [one for one in trained if one.said(score)]
        found = []
        if scored:
            most = max(scored, key=lambda one: one.mean(lambda report: score(report) or 0.0))
            found.append((f"highest {split_and_metric(scored)}", most.label, f"{most.said(score, 100)} %"))
        quickest = min(trained, key=lambda one: one.mean(itemgetter("seconds_per_epoch")))
        found.append(("shortest epoch", quickest.label, f"{figure(quickest.mean(itemgetter('seconds_per_epoch')))} s"))
        several = [one for one in trained if one.first["ranks"] > 1]
        if len(several) > 1:
            least = min(several, key=lambda one: one.mean(_sent))
            found.append(("least sent", least.label, f"{figure(least.mean(_sent))} MB"))
        return found

    def write_pngs(self, folder: Path) -> list[Path]:
        """Each figure as a file of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for plot in self.plots:
            with canvas(size=plot.size) as (sheet, axes):
                plot.draw(sheet, axes[0])
                written += save(sheet, folder / plot.name)
        return written

    def to_html(self, title: str) -> str:
        """The page; raises `UsageError` where Jinja2 or matplotlib is missing."""
        try:
            from jinja2 import Environment, StrictUndefined
            from markupsafe import Markup
        except ImportError as error:
            raise UsageError(f"a page needs Jinja2 ({error}); pip install 'bulksample[plot]' would fit") from error
        drawn = [Markup(self._svg(plot, f"p{i}")) for i, plot in enumerate(self.plots)]
        sheet = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        text = (files("bulksample.report") / "page.html").read_text()
        return sheet.from_string(text).render(page=self, title=title, drawn=drawn, version=__version__) + "\n"

    def to_markdown(self, title: str) -> str:
        """The tables: a summary, the comparisons, the numbers of every figure, and the differences."""
        numbers = [(plot.title, plot.numbers) for plot in self.plots]
        tables = [("Runs", self.trained), ("Samples", self.sampled), *self.comparisons, *numbers]
        tables += [("What differs", self.differences)] if self.differences.body else []
        parts = [f"# {title}", *("\n".join([f"## {name}", "", *markdown(table.head, table.body)]) for name, table in tables if table.body)]
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """A line for each run: its figures and settings, nested ones as ``phases.sample``."""
        labels = {run.name: one.label for one in self.series for run in one.runs}
        return to_csv([{"run": run.name, "series": labels[run.name], **_plain(run.report)} for run in self._runs])

    def _svg(self, plot: Plot, prefix: str) -> str:
        with canvas(size=plot.size) as (sheet, axes):
            plot.draw(sheet, axes[0])
            return inline(sheet, prefix)


def _all_plots(series: list[Series], families: list[Family], benches: list[tuple[str, Found]]) -> list[Plot]:
    """Every figure for which there is something to show."""
    trained = [one for one in series if one.runs[0].trained and one.first]
    styles = styles_of(one.label for one in series if one.lines)
    made = [bars.phases(trained), *courses.progress(series, styles), bars.bytes_by_kind(trained), *courses.scaling(families)]
    made += [bars.balance(trained), bars.sampling(series)]
    return [plot for plot in made if plot] + [bars.bench(name, bench) for name, bench in benches]


def _filled(head: list[str], body: list[list[str]]) -> Numbers:
    """A table without the columns in which nobody has anything to say."""
    kept = [i for i in range(len(head)) if any(row[i] for row in body)]
    return Numbers([head[i] for i in kept], [[row[i] for i in kept] for row in body])


def _trained(series: Series) -> list[str]:
    if not series.first:
        done = str(len(series.runs[0].lines))
        return [series.label, "under way", *[""] * 5, done, *[""] * 3]
    about = [str(series.first.get(key, "")) for key in ("method", "model", "sampler", "ranks")]
    counted = [figure(series.mean(itemgetter("epochs"))), series.said(itemgetter("seconds_per_epoch")), series.said(itemgetter("seconds"))]
    return [series.label, *about, str(len(series.runs)), series.said(score, 100), *counted, figure(series.mean(_sent))]


def _sampled(series: Series) -> list[str]:
    report = series.first
    drawn = [report["sampler"], ",".join(map(str, report["fanouts"])), str(report["ranks"])]
    counted = [f"{report['minibatches']:,}", f"{report['sampled_edges']:,}", figure(report["sampled_edges_per_second"] / 1e6, 3)]
    return [series.label, *drawn, *counted, figure(report["seconds"]), figure(_sent(report)), (report["digest"] or "")[:12]]


def _sent(report: Found) -> float:
    return report["training_bytes" if "training_bytes" in report else "bytes_sent"]["total"] / 1e6


def _transposed(columns: dict[str, list[str]]) -> list[list[str]]:
    return [[name.replace("_", " "), *values] for name, values in columns.items()]


def _plain(report: Found) -> Found:
    """Without what is a list of its own."""
    return {key: value for key, value in report.items() if not _holds_objects(value)}


def _holds_objects(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(item, dict | list) for item in value)
