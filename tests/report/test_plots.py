"""Plots: the points of curves, one style for each method, legends, axes and files."""

import subprocess
import sys

import pytest
from launch import ROOT
from reports import line, run

from bulksample.errors import UsageError
from bulksample.report import drawing
from bulksample.report.network import NetworkModel

SLOW = NetworkModel("slow", 1e-3, 1e6)
LINES = [line(0.5), line(), line(0.75)]


@pytest.fixture
def figures(monkeypatch):
    """The figures by the names of their files. They are laid out, not rendered, which takes long."""
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    from matplotlib.figure import Figure

    seen = {}

    def note(self, file, **options):
        seen[file.name] = self
        if file.suffix == ".png":
            self.draw_without_rendering()

    monkeypatch.setattr(Figure, "savefig", note)
    return seen


def test_epochs_without_a_score_add_cost_and_no_point():
    found = drawing.curve(run(lines=LINES), lambda line: line["training_bytes"]["total"] / 1e6)
    assert found == drawing.Curve([2, 6], [0.5, 0.75])


def test_seconds_of_a_network_add_up():
    # each epoch: 0.5 s of computing, 10 messages of 1 ms, 1 MB at 1 MB/s
    assert drawing.curve(run(lines=LINES), SLOW.seconds).costs == pytest.approx([1.51, 4.53])


def test_the_mean_goes_as_far_as_every_seed():
    costs, mean, low, high = drawing.mean_curve([drawing.Curve([1, 2, 3], [0.2, 0.4, 0.9]), drawing.Curve([3, 4], [0.4, 0.8])])
    assert (costs, low, high) == ([2, 3], [0.2, 0.4], [0.4, 0.8])
    assert mean == pytest.approx([0.3, 0.6])


def test_a_method_has_one_style_in_every_plot(figures, tmp_path):
    runs = [run("gone", failure="no"), *(run(label, seed, lines=LINES) for seed in (0, 1) for label in ("sync", "full", "adaqp:bits=4"))]
    files = drawing.draw_comparison(runs, [SLOW], tmp_path)
    assert [file.name for file in files] == ["accuracy_bytes.png", "accuracy_bytes.pdf", "accuracy_seconds.png", "accuracy_seconds.pdf"]
    axes = [axis for name in ("accuracy_bytes.png", "accuracy_seconds.png") for axis in figures[name].axes]
    assert [axis.get_xlabel() for axis in axes] == ["MB sent in training, all ranks", "seconds, as measured", "seconds, slow"]
    styles = [{drawn.get_label(): drawn.get_color() for drawn in axis.lines if drawn.get_label()[0] != "_"} for axis in axes]
    assert styles[0].keys() == {"sync", "full", "adaqp:bits=4"}
    assert len(set(styles[0].values())) == 3
    assert styles[0] == styles[1] == styles[2]
    alone = drawing.draw_comparison([run("gone", lines=LINES), *runs[1:]], [SLOW], tmp_path)
    again = {drawn.get_label(): drawn.get_color() for drawn in figures[alone[0].name].axes[0].lines}
    assert styles[0].items() < again.items()  # also where another method had failed


@pytest.mark.long
def test_every_figure_is_written_in_two_forms(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    files = drawing.draw_comparison([run(lines=LINES)], [], tmp_path)
    assert [file.read_bytes()[:4] for file in files] == [b"\x89PNG", b"%PDF"] * 2
    assert all(file.stat().st_size > 2000 for file in files)


@pytest.mark.parametrize("methods", [2, 4, 13])
def test_the_legend_is_inside_the_figure_and_beside_the_axes(figures, tmp_path, methods):
    labels = ["sync:graph=partitioned", *(f"method-{i}" for i in range(methods - 1))]
    drawing.draw_comparison([run(label, lines=LINES) for label in labels], [SLOW], tmp_path)
    for figure in figures.values():
        legend, whole = figure.legends[0].get_window_extent(), figure.bbox
        assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
        assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
        assert whole.y0 <= legend.y0 < legend.y1 <= whole.y1
        assert not any(axis.get_window_extent().overlaps(legend) for axis in figure.axes)
        assert all(axis.get_window_extent().height > 150 for axis in figure.axes)


@pytest.mark.parametrize(("costs", "scale"), [((2, 6), "linear"), ((2, 90), "log"), ((0, 0), "linear")])
def test_costs_far_apart_are_drawn_on_a_logarithmic_axis(figures, tmp_path, costs, scale):
    drawing.draw_comparison([run(str(cost), lines=[line(0.5, cost), line(0.6, cost)]) for cost in costs], [], tmp_path)
    assert figures["accuracy_bytes.png"].axes[0].get_xscale() == scale


def test_scores_are_drawn_in_percent_under_their_name(figures, tmp_path):
    drawing.draw_comparison([run(metric="rocauc", split="val", lines=[line(0.5, metric="rocauc", split="val")])], [], tmp_path)
    axis = figures["accuracy_bytes.png"].axes[0]
    assert axis.get_ylabel() == "val rocauc, %"
    assert list(axis.lines[0].get_ydata()) == [50]


def test_nothing_is_drawn_where_nothing_was_scored(tmp_path):
    assert drawing.draw_comparison([run(failure="no"), run(score=None)], [], tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"plots need matplotlib .* use pip install 'bulksample\[plot\]'"):
        drawing.draw_comparison([run(lines=LINES)], [], tmp_path)


@pytest.mark.long
def test_importing_it_does_not_import_matplotlib():
    code = "import sys, bulksample.report.drawing, bulksample.report.table; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
