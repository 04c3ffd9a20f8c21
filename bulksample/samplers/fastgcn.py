"""FastGCN: each layer draws s vertices of the graph from one distribution that no batch changes.

    P = 1 (A o A),  the row of all ones, A row-normalised: q(v) ~ ||A(:, v)||^2;   EXTRACT: Q_R A Q_C

P is one row for all mini-batches, computed once. Drawing then needs no graph, and for a long P its time depends on s alone
(`arrivals`). Unlike LADIES, FastGCN may draw vertices without an edge to the frontier.

Chen, Ma, Xiao, "FastGCN: fast learning with graph convolutional networks via importance sampling", ICLR 2018, eq. 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

from ..adjacency import Adjacency
from ..backends.layer_draws import SharedDraws
from ..graph.selection import Selection
from ..rng import Draw
from .arrivals import SharedRow
from .layer_wise import LayerWise

_IMPORTANCE: WeakKeyDictionary[Adjacency, SharedRow] = WeakKeyDictionary()  # depends on the graph alone, and lives as long as it


@dataclass(frozen=True)
class FastGcn(LayerWise):
    """Sample the vertices of every layer from one distribution over all vertices, the same for every mini-batch."""

    name: ClassVar[str] = "fastgcn"
    draws_from_frontier: ClassVar[bool] = False

    def law(self, adjacency: Adjacency, seeds: Selection, draws: Sequence[Draw]) -> SharedDraws:
        return importance(adjacency).draws(adjacency.backend, self.fanouts, seeds.minibatches, draws)


def importance(adjacency: Adjacency) -> SharedRow:
    """Return P, the sum over all rows of the squared row-normalised weights: shape (1, n), fixed point."""
    if adjacency not in _IMPORTANCE:
        _IMPORTANCE[adjacency] = SharedRow(adjacency.left_multiply(Selection.everything(adjacency.n), "squares"))
    return _IMPORTANCE[adjacency]
