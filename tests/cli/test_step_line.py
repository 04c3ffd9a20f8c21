"""`train` prints where a step went under its table."""

import json
import re

import pytest

FLAGS = ["--fanouts", "3,3", "--hidden", "8", "--batch-size", "20", "--epochs", "3", "--threads", "1"]
LINE = re.compile(r"^step ([\d.,]+) ms: products ([\d.,]+), memory ([\d.,]+) \(floor ([\d.,]+)\), waiting ([\d.,]+)$", re.MULTILINE)


def test_the_line_has_the_figures_of_the_report(command, graph, tmp_path):
    ended = command("train", graph, *FLAGS, "--json", tmp_path / "r.json")
    assert ended.code == 0, ended.err
    step = json.loads((tmp_path / "r.json").read_text())["step"]
    (shown,) = LINE.findall(ended.out)
    figures = [step[f"{name}_ms" if name else "ms"] for name in ("", "products", "memory", "floor", "waiting")]
    assert [float(one.replace(",", "")) for one in shown] == pytest.approx(figures, rel=0.006)
    assert ended.out.index("└") < ended.out.index("step ")


def test_verbose_shows_the_figures_too(command, graph):
    assert "watched_steps 3" in re.sub(r"[\s│]+", " ", command("train", graph, *FLAGS, "--verbose").out)


@pytest.mark.parametrize("flags", [["--quiet"], ["--json", "-"], ["--batch-size", "1000"], ["--method", "full"]], ids=" ".join)
def test_no_line(command, graph, flags):
    """Quiet, beside JSON on standard output, after three steps, and without mini-batches."""
    ended = command("train", graph, *FLAGS, *flags)
    assert ended.code == 0, ended.err
    assert "products" not in re.sub(r'"products_ms"', "", ended.out)
    if "-" in flags:
        assert json.loads(ended.out)["step"]["steps"] > 0
