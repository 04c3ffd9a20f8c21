"""Draw test accuracy against bytes for the comparisons that are kept in bench/results/compare.

    python bench/plot_compare.py [FILE.png]

One panel a graph. A dot is the mean over seeds, its bar the standard deviation; bytes are those of a whole run on four ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keep

from bulksample.report.canvas import canvas

GROUPS = {
    "gradients": ("sync", "sync:graph=partitioned", "grappa", "cofree"), "rows": ("full", "adaqp", "bns"),
    "layers": ("retexo", "retexo-federated"), "weights": ("random-tma", "super-tma", "psgd-pa", "llcg"),
}  # fmt: skip
COLOURS = {"gradients": "#1f77b4", "rows": "#d62728", "layers": "#2ca02c", "weights": "#9467bd"}


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else keep.RESULTS / "compare" / "accuracy-against-bytes.png"
    graphs = keep.load("compare")
    with canvas(len(graphs), (4.4, 3.8)) as (figure, every):
        for axes, (graph, part) in zip(every, graphs.items(), strict=True):
            draw(axes, graph, {line["method"]: line for line in part["result"]["methods"]})
        every[-1].legend(fontsize=7, title="what travels", title_fontsize=7)
        figure.savefig(path, dpi=80)


def draw(axes, graph: str, lines: dict[str, dict]) -> None:
    """Draw one graph, a colour for each kind of message."""
    for group, names in GROUPS.items():
        for i, name in enumerate(names):
            megabytes, score = lines[name]["bytes"]["total"] / 1e6, lines[name]["score"]
            label = group if i == 0 else None
            axes.errorbar(megabytes, 100 * score["mean"], 100 * score["std"], fmt="o", color=COLOURS[group], ms=4, label=label)
            name = name.replace("sync:graph=partitioned", "sync, partitioned")
            axes.annotate(name, (megabytes, 100 * score["mean"]), (4, 3), textcoords="offset points", fontsize=6)
    axes.set(title=graph, xscale="log", xlabel="MB of a run", ylabel="test accuracy, %")
    axes.margins(x=0.2)


if __name__ == "__main__":
    main()
