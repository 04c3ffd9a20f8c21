"""Draw the picture of README: a bulk of k mini-batches as one sparse matrix product.

    python docs/images/make_picture.py [FILE.png]

The graph, the draw and the extraction are those of bulksample, on a graph of 12 vertices.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

import bulksample as bs

matplotlib.use("Agg")
import matplotlib.pyplot as plt

N, FANOUT = 12, 2
SEEDS = [[1, 7], [4, 9], [2, 10]]
COLOURS = ["#0072b2", "#d55e00", "#009e73"]
INK, GREY, PALE, PAPER = "#1b1f24", "#8b929a", "#eef0f3", "#ffffff"


def graph() -> Any:
    """Return a ring of 12 vertices with chords: every vertex has four neighbors."""
    v = np.arange(N)
    sources, targets = np.concatenate([v, v]), np.concatenate([(v + 1) % N, (5 * v + 3) % N])
    keep = sources != targets
    return bs.from_edges(sources[keep], targets[keep], num_nodes=N, undirected=True)


def matrix(axes: Any, x: float, y: float, cells: np.ndarray, colours: list[list[str | None]], alpha: np.ndarray) -> None:
    """Draw a matrix of cells with its lower left corner at (x, y); nonzeros are rounded squares."""
    rows, columns = cells.shape
    axes.add_patch(Rectangle((x, y), columns, rows, facecolor=PALE, edgecolor="none", zorder=1))
    for i in range(rows):
        for j in range(columns):
            if cells[i, j]:
                box = (x + j + 0.1, y + rows - 1 - i + 0.1)
                style = {"facecolor": colours[i][j], "edgecolor": "none", "alpha": alpha[i, j], "zorder": 2}
                axes.add_patch(FancyBboxPatch(box, 0.8, 0.8, boxstyle="round,pad=0,rounding_size=0.2", **style))


def bipartite(axes: Any, x: float, top: float, block: Any, vertices: np.ndarray, colour: str) -> float:
    """Draw one block below `top`: drawn vertices on the left, seeds on the right, an arrow for each edge; return where it ends."""
    seeds = block.num_destinations
    places = {j: (x, top - 0.5 - 1.04 * i) for i, j in enumerate(range(seeds, len(vertices)))}
    bottom = top - 1.04 * len(places)
    places |= {i: (x + 5.0, (top + bottom) / 2 + 0.8 - 1.6 * i) for i in range(seeds)}
    for i in range(seeds):
        for j in block.indices[block.indptr[i] : block.indptr[i + 1]]:
            line = {"color": colour, "lw": 1.5, "arrowstyle": "-|>", "mutation_scale": 10, "shrinkA": 8, "shrinkB": 9}
            axes.add_patch(FancyArrowPatch(places[int(j)], places[i], **line))
    for j, (a, b) in places.items():
        seed = j < seeds
        axes.add_patch(Circle((a, b), 0.46, facecolor=colour if seed else PAPER, edgecolor=colour, lw=1.6, zorder=3))
        axes.text(a, b - 0.03, str(vertices[j]), ha="center", va="center", fontsize=8, color=PAPER if seed else colour, zorder=4)
    return bottom


def words(axes: Any, x: float, title: str, text: str) -> None:
    """Write a title and two lines below a matrix, centred at x."""
    axes.text(x, -1.4, title, ha="center", va="top", fontsize=13, color=INK, weight="bold")
    axes.text(x, -2.7, text, ha="center", va="top", fontsize=9.5, color=INK, linespacing=1.35)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("bulk.png")
    a = graph().adjacency
    dense = np.zeros((N, N), dtype=bool)
    for v in range(N):
        dense[v, a.indices[a.indptr[v] : a.indptr[v + 1]]] = True
    adjacency = bs.LocalAdjacency(a, bs.backends.make("auto"))
    bulk = bs.samplers.make("sage", (FANOUT,)).sample_bulk(adjacency, bs.Selection.of(SEEDS, N), bs.Stream(seed=3))
    rows = [seed for seeds in SEEDS for seed in seeds]
    tint = [COLOURS[i // 2] for i in range(len(rows))]
    q, drawn = np.zeros((len(rows), N), dtype=bool), np.zeros((len(rows), N), dtype=bool)
    q[np.arange(len(rows)), rows] = True
    for m, minibatch in enumerate(bulk):
        block = minibatch.blocks[-1]
        for i in range(block.num_destinations):
            drawn[2 * m + i, minibatch.vertices[block.indices[block.indptr[i] : block.indptr[i + 1]]]] = True
    wide = [[colour] * N for colour in tint]
    selected = [[tint[rows.index(v)] if v in rows else GREY] * N for v in range(N)]
    faded = np.where(np.isin(np.arange(N), rows), 0.85, 0.35)[:, None] * np.ones((1, N))

    figure, axes = plt.subplots(figsize=(14.5, 4.3), dpi=150)
    xs = [0.0, 14.6, 30.2, 46.0]
    matrix(axes, xs[0], 3, q, wide, np.ones(q.shape))
    matrix(axes, xs[1], 0, dense, selected, faded)
    matrix(axes, xs[2], 3, dense[rows], wide, np.full(q.shape, 0.85))
    matrix(axes, xs[3], 3, dense[rows], wide, np.where(drawn, 1.0, 0.16))
    for x, sign in ((13.3, "\N{MULTIPLICATION SIGN}"), (28.4, "=")):
        axes.text(x, 6, sign, ha="center", va="center", fontsize=24, color=INK)
    for x in (43.1, 59.2):
        axes.add_patch(FancyArrowPatch((x, 6), (x + 2.2, 6), color=INK, lw=1.6, arrowstyle="-|>", mutation_scale=14))
    top = 12.2
    for m, minibatch in enumerate(bulk):
        top = bipartite(axes, 63.0, top, minibatch.blocks[-1], minibatch.vertices, COLOURS[m]) - 0.5
    for i, seed in enumerate(rows):
        axes.text(-0.45, 8.5 - i, str(seed), ha="right", va="center", fontsize=8.5, color=tint[i])
    words(axes, xs[0] + 6, "Q", "k = 3 mini-batches, stacked:\none row for each seed")
    words(axes, xs[1] + 6, "A", "the adjacency: row v lists\nthe neighbors of v")
    words(axes, xs[2] + 6, "P = Q A", "the candidates of all\nmini-batches, in one product")
    words(axes, xs[3] + 6, "SAMPLE(P, s = 2)", "s draws in each row; the counter of a\nrandom number names the draw")
    words(axes, 65.5, "EXTRACT", "k mini-batches, the same bits\non every machine")
    axes.add_patch(
        FancyBboxPatch((-2.2, -6.4), 74.6, 20.2, boxstyle="round,pad=0,rounding_size=1.2", facecolor=PAPER, edgecolor="#d0d7de", zorder=0)
    )
    axes.set(xlim=(-2.6, 72.8), ylim=(-6.8, 14.2), aspect="equal")
    axes.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    figure.savefig(path, transparent=True)


if __name__ == "__main__":
    main()
