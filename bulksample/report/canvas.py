"""Where figures are drawn: one style, files for papers, and SVG for a page that may be light or dark.

The only place that imports matplotlib, and only when something is drawn. Colours on a page are names (CSS variables), so that a
figure follows the page: ink for words and axes, rule for the grid, and a colour for each entry of COLOURS.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError

# Okabe and Ito, "Color universal design", 2008; without its yellow, which is faint on white. The last is for what stands aside.
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


@contextmanager
def canvas(panels: int = 1, size: tuple[float, float] = (3.6, 3.0), share_y: bool = False) -> Iterator[tuple[Any, list[Any]]]:
    """A figure of so many panels in a row, each of a size in inches, and their axes; saved inside, it keeps the style.

    Raises
    ------
    UsageError
        If matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"plots need matplotlib ({error}); pip install 'bulksample[plot]' would fit, or --no-plots") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(size[0] * panels, size[1]))
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(1, panels, sharey=share_y, squeeze=False)[0])


def save(figure: Any, path: Path, suffixes: tuple[str, ...] = (".png",)) -> list[Path]:
    """Write a figure in each of the forms; the same figure gives the same bytes."""
    written = [path.with_suffix(suffix) for suffix in suffixes]
    for file in written:
        undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(file.suffix)
        figure.savefig(file, dpi=200, metadata=undated)
    return written


def inline(figure: Any, prefix: str) -> str:
    """A figure as an SVG element to stand in a page: no size of its own, ids that are unlike those of other figures, named colours."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
    text = re.sub(r"(font: [^']*?)'[^;\"]*", r"\1var(--font)", text)
    return re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _by_name, text).strip()


def _by_name(found: re.Match[str]) -> str:
    name = NAMES.get(found[2])
    return f"{found[1]}: var({name})" if name else found[0]


def shown(label: str, longest: int = 30) -> str:
    """A label as a figure can show it: short, and without what matplotlib would read as mathematics or as a label to hide."""
    short = label if len(label) <= longest else f"{label[: longest - 1]}…"
    return (" " + short if short.startswith("_") else short).replace("$", r"\$")
