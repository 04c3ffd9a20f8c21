"""The one style of all charts; charts as files, and as SVG inside a page that is light or dark.

No other module of the package imports matplotlib, and this one imports it only to draw. Inside a page, colours are CSS variables, so
that a chart follows the page: `--ink` for text and axes, `--rule` for the grid, `--c0` and so on for the entries of COLOURS.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .series import numbered

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


@contextmanager
def new_figure(panels: int = 1, size: tuple[float, float] = (3.6, 3.0), share_y: bool = False) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a matplotlib figure with panels in a row, each of `size` inches, and their axes. Draw and save inside the context.

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
    return re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _css_variable, text).strip()


def _css_variable(found: re.Match[str]) -> str:
    name = NAMES.get(found[2])
    return f"{found[1]}: var({name})" if name else found[0]


def short_labels(labels: Iterable[str], longest: int = 30) -> list[str]:
    """Shorten labels as `short_label` does, and number those that are then alike: an axis draws equal names as one."""
    return numbered(short_label(label, longest) for label in labels)


def short_label(label: str, longest: int = 30) -> str:
    """Shorten a label and escape it: matplotlib reads ``$`` as mathematics and hides labels that start with ``_``."""
    short = label if len(label) <= longest else f"{label[: longest - 1]}…"
    return (" " + short if short.startswith("_") else short).replace("$", r"\$")
