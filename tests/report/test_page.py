"""A page holds the numbers of its runs in words and tables, loads nothing, and runs no script."""

import csv
import io
import json
import re
import shutil
import sys
from html.parser import HTMLParser

import pytest

from bulksample.errors import UsageError
from bulksample.report.drawing import new_figure
from bulksample.report.page import Page
from bulksample.report.reading import read
from bulksample.report.series import families, numbered, series_of

VOID = {"meta", "br", "use", "path", "rect", "line", "image"}


class Elements(HTMLParser):
    """Parser that collects every element with its attributes and text, and fails on unbalanced ones."""

    def __init__(self, text):
        super().__init__()
        self.open, self.all = [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes), []))
        if tag not in VOID:
            self.open.append(self.all[-1])

    def handle_startendtag(self, tag, attributes):
        self.all.append((tag, dict(attributes), []))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][2].append(data)

    def of(self, tag):
        return [(attributes, "".join(text)) for name, attributes, text in self.all if name == tag]


@pytest.fixture(scope="module")
def page(trained):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    return Page(read([trained]))


@pytest.fixture(scope="module")
def html(page):
    return page.to_html("A few runs")


def test_it_has_every_chart_that_its_runs_allow(page):
    names = ["phases", "score_seconds", "score_bytes", "loss", "bytes", "scaling_seconds", "scaling_bytes", "balance"]
    assert [chart.name for chart in page.charts] == names


@pytest.mark.long
def test_every_chart_has_a_description_and_numbers(html, page):
    elements = Elements(html)
    said = [attributes["aria-label"] for attributes, _ in elements.of("div") if attributes.get("role") == "img"]
    assert said == [chart.description for chart in page.charts]
    assert all(len(words) > 40 for words in said)
    assert len(elements.of("svg")) == len(page.charts) == len(elements.of("details"))
    assert all(attributes.get("scope") in ("col", "row") for attributes, _ in elements.of("th"))
    assert all(len(row) == len(chart.numbers.head) for chart in page.charts for row in chart.numbers.body)


def test_ids_are_unique(html):
    found = re.findall(r'\bid="([^"]*)"', html)
    assert len(found) == len(set(found))
    assert set(re.findall(r"url\(#([^)]*)\)", html)) | set(re.findall(r'href="#([^"]*)"', html)) <= set(found)


def test_it_loads_nothing_else(html):
    elements = Elements(html)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _, _ in elements.all}
    targets = [attributes[key] for _, attributes, _ in elements.all for key in ("src", "href", "xlink:href") if key in attributes]
    assert all(target.startswith("#") for target in targets)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_charts_use_the_colours_of_the_page(html):
    """Charts follow a dark page because their colours are variables of the page."""
    drawn = html[html.index("<main>") :]
    assert not re.search(r"(fill|stroke): ?#(?!ffffff)", drawn)
    assert "var(--ink)" in drawn


@pytest.mark.long
def test_the_same_runs_make_the_same_page(html, trained):
    assert Page(read([trained])).to_html("A few runs") == html


ODD = "<script>alert(1)<script> $x_0$ & 'q' \"d\" _"


def test_names_are_escaped(trained, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    place = tmp_path / ODD
    place.mkdir()
    for name in ("one", "two"):
        run = json.loads((trained / f"{name}.json").read_text())
        run["data"]["name"] = run["environment"]["processor"] = run["method"] = run["config"]["partition"] = f"{ODD}{name}</td>"
        (place / f"{ODD}{name}.json").write_text(json.dumps(run))
        shutil.copy(trained / f"{name}.jsonl", place / f"{ODD}{name}.jsonl")
    (place / "package.json").write_text("{}")
    page = Page(read([place]))
    html = page.to_html(ODD)
    elements = Elements(html)
    assert "<script" not in html
    assert elements.of("title")[0][1] == ODD
    assert any(text == f"{ODD}one" for attributes, text in elements.of("th"))
    assert "<script" not in page.to_markdown(ODD).replace(ODD, "")


def test_numbers_equal_those_of_the_reports(page, trained):
    two = json.loads((trained / "two.json").read_text())
    rows = {row[0]: row for chart in page.charts if chart.name == "phases" for row in chart.numbers.body}
    head = next(chart for chart in page.charts if chart.name == "phases").numbers.head
    assert float(rows["two"][head.index("forward")]) == pytest.approx(two["phases"]["forward"] / 3, rel=1e-3)
    summary = {row[0]: dict(zip(page.trained.head, row, strict=True)) for row in page.trained.body}
    assert float(summary["two"]["MB sent"]) == pytest.approx(two["training_bytes"]["total"] / 1e6, rel=1e-3)
    assert summary["two"]["test accuracy, %"] == f"{100 * two['test_accuracy']:.2f}"
    assert summary["one"]["seeds"] == "2"
    assert "±" in summary["one"]["test accuracy, %"]


def changed(trained, place, **changes):
    """Copy two runs of one rank to a folder, with some entries of their reports changed."""
    for name, more in changes.items():
        run = json.loads((trained / "one.json").read_text())
        (place / f"{name}.json").write_text(json.dumps(run | more | {"method": name, "config": run["config"] | {"hidden": len(name)}}))
    return Page(read([place]))


def test_the_best_is_chosen_by_validation_and_shown_by_its_test_score(trained, tmp_path):
    lucky, best = {"val_accuracy": 0.5, "test_accuracy": 0.9}, {"val_accuracy": 0.6, "test_accuracy": 0.4}
    page = changed(trained, tmp_path, lucky=lucky, best=best)
    assert page.best[0] == ("test accuracy of the best by validation", "best", "40.00 %")
    errors = {"low": {"metric": "mae", "val_mae": 0.1, "test_mae": 2.5}, "high": {"metric": "mae", "val_mae": 0.2, "test_mae": 1.5}}
    page = changed(trained, tmp_path, **{"lucky": errors["low"], "best": errors["high"]})
    assert page.best[0] == ("test mae of the best by validation", "lucky", "2.5"), "the lowest error, in its own unit"
    assert [row[page.trained.head.index("test mae")] for row in page.trained.body] == ["1.5", "2.5"]
    page = changed(trained, tmp_path, **{"lucky": errors["low"], "best": best})
    assert not any("validation" in title for title, _, _ in page.best), "an error and an accuracy do not compare"


def test_long_cells_wrap_so_that_the_last_column_is_on_the_page(trained, tmp_path):
    warning = "the test scores are of vertices that the model was trained on: the seeds were all, the test split among them"
    html = changed(trained, tmp_path, one={"warnings": [warning]}, two={}).to_html("a page")
    assert [text for attributes, text in Elements(html).of("td") if attributes.get("class") == "note"] == [warning]
    assert ".note { white-space: normal" in html


def test_more_ranks_are_predicted_from_the_fewest(trained):
    (family,) = families(series_of(read([trained / "one.json", trained / "two.json"]).runs))
    one, two = family.members
    assert family.why_not == ""
    assert family.predicted[1].bytes == family.measured(one).bytes == 0
    assert family.predicted[2].bytes == family.measured(two).bytes > 0
    computed = sum(one.first["phases"][phase] for phase in ("forward", "backward", "step", "fetch")) / one.first["epochs"]
    assert family.predicted[1].seconds >= computed * 0.999


def test_no_family_of_runs_takes_the_place_of_another(trained, tmp_path):
    """Same method and graph: another placement, other threads on as many ranks, another width."""
    kinds = {
        "whole": {}, "parts": {"graph": "partitioned"}, "wide": {"hidden": 64}, "busy": {"threads": 7}, "busier": {"threads": 9},
    }  # fmt: skip
    for kind, changed in kinds.items():
        for name in ("one", "two"):
            run = json.loads((trained / f"{name}.json").read_text())
            of_report = {key: value for key, value in changed.items() if key in run}
            (tmp_path / f"{kind}-{name}.json").write_text(json.dumps(run | of_report | {"config": run["config"] | changed}))
    page = Page(read([tmp_path]))
    found = families(series_of(read([tmp_path]).runs))
    labels = [family.label for family in found]
    assert len(set(labels)) == len(kinds), labels
    assert all(label.startswith("sync, ") for label in labels)
    assert sum("graph partitioned" in label for label in labels) == 1
    (chart,) = [chart for chart in page.charts if chart.name == "scaling_seconds"]
    assert len(chart.numbers.body) == len({row[0] for row in chart.numbers.body}) == 2 * len(kinds)
    with new_figure(size=chart.size) as (figure, axes):
        chart.draw(figure, axes[0])
        lines = [line.get_label() for line in axes[0].get_lines() if line.get_linestyle() == "-"]
    assert len(set(lines)) == len(kinds)


def test_bars_of_long_labels_that_begin_alike_are_not_one_bar(trained, tmp_path):
    """An axis of matplotlib draws equal names at one place."""
    begin = "a-run-of-a-method-with-a-name-longer-than-a-legend"
    for name in (f"{begin}-a", f"{begin}-b", f"{begin}-c"):
        run = json.loads((trained / "one.json").read_text())
        (tmp_path / f"{name}.json").write_text(json.dumps(run | {"config": run["config"] | {"hidden": ord(name[-1])}}))
        shutil.copy(trained / "one.jsonl", tmp_path / f"{name}.jsonl")
    page = Page(read([tmp_path]))
    assert len({one.label for one in page.series}) == 3
    for chart in page.charts:
        with new_figure(size=chart.size) as (figure, axes):
            chart.draw(figure, axes[0])
            drawn = {text.get_text() for text in axes[0].get_yticklabels() if "…" in text.get_text()}
            drawn |= {str(line.get_label()) for line in axes[0].get_lines() if "…" in str(line.get_label())}
        assert len({text.partition(":")[0] for text in drawn}) in (0, 3), chart.name


@pytest.mark.parametrize(("given", "unique"), [(["a", "b"], ["a", "b"]), (["a", "a", "a (1)"], ["a (2)", "a (3)", "a (1)"])])
def test_labels_that_were_alike_are_numbered(given, unique):
    assert numbered(given) == unique


def test_a_missing_prediction_has_a_reason(trained, tmp_path):
    for name in ("one", "two"):
        run = json.loads((trained / f"{name}.json").read_text())
        run["config"]["fetch_together"] = 4
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    (family,) = families(series_of(read([tmp_path]).runs))
    assert family.predicted == {}
    assert family.why_not == "plan cannot predict fetch together 4"


def test_an_unfinished_run_has_curves_and_a_row(trained, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    shutil.copy(trained / "one.jsonl", tmp_path / "now.jsonl")
    page = Page(read([tmp_path]))
    assert [chart.name for chart in page.charts] == ["score_seconds", "loss"]
    assert (page.trained.head, page.trained.body) == (["run", "method", "epochs"], [["now", "not finished", "3"]])
    Elements(page.to_html("now"))


@pytest.mark.long
def test_pngs_markdown_and_csv(page, trained, tmp_path):
    written = page.write_pngs(tmp_path / "png")
    assert [file.stem for file in written] == [chart.name for chart in page.charts]
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in written)
    blocks = re.findall(r"(?:^\|.*\n)+", page.to_markdown("x"), re.MULTILINE)
    assert len(blocks) == 2 + len(page.charts)
    assert all(len({line.count("|") for line in block.splitlines()}) == 1 for block in blocks)
    rows = list(csv.DictReader(io.StringIO(page.to_csv())))
    assert [row["run"] for row in rows] == ["one", "one-other", "two"]
    assert float(rows[2]["phases.forward"]) == json.loads((trained / "two.json").read_text())["phases"]["forward"]
    assert rows[2]["config.lr"] == "0.01"


def test_without_jinja_it_says_what_to_install(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"a page needs Jinja2 .* use pip install 'bulksample\[plot\]'"):
        page.to_html("x")


def test_warnings_of_a_run_have_a_column_where_there_are_any(trained, tmp_path):
    report = json.loads(next(trained.glob("*.json")).read_text())
    for name, seeds, warnings in (("fair", None, []), ("seen", "all", ["the test scores are of seeds", "and so are the val scores"])):
        (tmp_path / f"{name}.json").write_text(json.dumps({**report, "warnings": warnings, "config": {**report["config"], "seeds": seeds}}))
    both, fair = (Page(read(files)).trained for files in ([tmp_path / "fair.json", tmp_path / "seen.json"], [tmp_path / "fair.json"]))
    assert both.head[-1] == "warning"
    assert sorted(row[-1] for row in both.body) == ["", "the test scores are of seeds; and so are the val scores"]
    assert "warning" not in fair.head
