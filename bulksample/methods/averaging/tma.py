"""RandomTMA and SuperTMA: model averaging over parts that resemble each other because they are drawn at random.

    RandomTMA    every vertex goes to a random part                  keeps about 1 / M of the edges
    SuperTMA     METIS clusters, each goes to a random part          keeps rho + (1 - rho) (Q / M - 1) / (Q - 1) of them

with Q clusters that hold a share rho of the edges. Parts with few cut edges, as PSGD-PA has, differ in labels and features, which
costs the average accuracy; random parts lose neighbors instead. Q = M is PSGD-PA, Q = n is RandomTMA. The publication averages after
fixed seconds (`--interval 2s --tolerate-failures`), weighs responders equally, and uses about 15000 clusters on graphs of a million
vertices. Here parts are as even in vertices (random) or in clusters (super) as possible. Which method is better depends on the
graph: the trade-off that the server prints shows what each loses.

Zhu et al., "Simplifying distributed neural network training on massive graphs: randomized partitions improve model aggregation",
arXiv 2305.09887.
"""

from __future__ import annotations

from typing import ClassVar

from .method import Averaging


class RandomTMA(Averaging):
    """Time-based model averaging over random vertices."""

    name: ClassVar[str] = "random-tma"
    partition_kind: ClassVar[str] = "random"


class SuperTMA(Averaging):
    """Time-based model averaging over random METIS clusters."""

    name: ClassVar[str] = "super-tma"
    partition_kind: ClassVar[str] = "super"
