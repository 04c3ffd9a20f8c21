"""Draw test accuracy against bytes for the comparisons that are kept in bench/results/compare.

One panel a graph. A dot is the mean over seeds, its bar the standard deviation; bytes are those of a whole run on four ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import keep
from typer import Argument

from bulksample.report.drawing import new_figure

GROUPS = {
    "gradients": ("sync", "sync:graph=partitioned", "grappa", "cofree"), "rows": ("full", "adaqp", "bns"),
    "layers": ("retexo", "retexo-federated"), "weights": ("random-tma", "super-tma", "psgd-pa", "llcg"),
}  # fmt: skip
COLOURS = {"gradients": "#1f77b4", "rows": "#d62728", "layers": "#2ca02c", "weights": "#9467bd"}
TICKS = (30, 100, 250, 400, 1_000, 3_000, 6_000)


def plot_compare(path: Annotated[Path, Argument()] = keep.RESULTS / "compare" / "accuracy-against-bytes.png") -> None:
    graphs = keep.load("compare")
    with new_figure(len(graphs), (3.4, 3.6)) as (figure, every):
        for axes, (graph, part) in zip(every, graphs.items(), strict=True):
            draw(axes, graph, {line["method"]: line for line in part["result"]["methods"]})
        every[0].set_ylabel("test accuracy, %")
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=8)
        figure.savefig(path, dpi=80)


def draw(axes: Any, graph: str, lines: dict[str, dict[str, Any]]) -> None:
    """Draw one graph: a colour for each kind of message, a marker for each method."""
    for group, names in GROUPS.items():
        for name, marker in zip(names, "os^D", strict=False):
            megabytes, score = lines[name]["bytes"]["total"] / 1e6, lines[name]["score"]
            style = {"fmt": marker, "color": COLOURS[group], "ms": 5, "elinewidth": 0.8, "label": f"{name} ({group})"}
            axes.errorbar(megabytes, 100 * score["mean"], 100 * score["std"], **style)
    axes.set(title=graph, xscale="log", xlabel="MB of a run")
    least, most = axes.get_xlim()
    axes.minorticks_off()
    ticks = [tick for tick in TICKS if least < tick < most]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
