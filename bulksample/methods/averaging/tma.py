"""RandomTMA and SuperTMA: model averaging over parts that are alike because they are dealt at random.

    RandomTMA    every vertex in a part at random                 keeps about 1 / M of the edges
    SuperTMA     METIS clusters, each in a part at random         keeps rho + (1 - rho) (Q / M - 1) / (Q - 1) of them

with Q clusters that hold a share rho of the edges. Parts of few cut edges, as PSGD-PA has, differ in labels and features, and the
average pays for it; parts at random lose neighbours instead. Q = M is PSGD-PA, Q = n RandomTMA. The publication averages by the
clock (`--interval 2s --tolerate-failures`), weighs responders alike, and deals about 15000 clusters on graphs of a million
vertices; here parts are as even in vertices (random) or in clusters (super) as can be. Which of them is better depends on the
graph: the printed trade-off says what each loses.

Zhu et al., "Simplifying distributed neural network training on massive graphs: randomized partitions improve model aggregation",
arXiv 2305.09887.
"""

from __future__ import annotations

from typing import ClassVar

from .method import Averaging


class RandomTma(Averaging):
    """Time-based model averaging over random vertices."""

    name: ClassVar[str] = "random-tma"
    deal: ClassVar[str] = "random"


class SuperTma(Averaging):
    """Time-based model averaging over random METIS clusters."""

    name: ClassVar[str] = "super-tma"
    deal: ClassVar[str] = "super"
