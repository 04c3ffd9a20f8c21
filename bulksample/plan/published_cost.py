"""The published cost of the 1.5D product P = Q A, for comparison with what is sent.

With k b rows of Q, d entries in a row of A, and p ranks on a p/c x c grid, the critical path of a process has

    k b / c              words on the column ids of Q that it gathers,
    k b d / c            words on rows of A,
    c k b d / p          words on the all-reduce over its process row.

A word is an entry: an id and its value, if there is one. The first two terms count what one process of a column sends while the
others wait, over the p / c**2 stages. So all c columns together move k b and k b d words. The p processes of the all-reduces move
c k b d words.

Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedWords:
    """Numbers (words) that one process sends by the formula of the 1.5D paper, summed over layers: one field for each of its terms."""

    ranks: int
    replication: int
    column_ids: float
    row_data: float
    all_reduce: float

    @property
    def per_process(self) -> float:
        """Words of one process: the formula as printed."""
        return self.column_ids + self.row_data + self.all_reduce

    @property
    def moved(self) -> float:
        """Words that all processes move. An all-reduce of one process (c = 1) moves none."""
        reduced = self.ranks * self.all_reduce if self.replication > 1 else 0.0
        return self.replication * (self.column_ids + self.row_data) + reduced


def published_words(ranks: int, replication: int, rows_per_layer: Sequence[float], degree: float) -> PublishedWords:
    """Evaluate the formula, given the rows of Q in each layer, summed over ranks.

    Parameters
    ----------
    ranks, replication : p and c
    rows_per_layer : k b for the layer of the seeds, then k b s, k b s**2, ... as published, without deduplication of frontiers;
        or the actual numbers of rows
    degree : d
    """
    rows = float(sum(rows_per_layer))
    return PublishedWords(ranks, replication, rows / replication, rows * degree / replication, replication * rows * degree / ranks)
