"""Functions shared by the subgraph samplers ShaDow and GraphSAINT, which sample vertices V and keep every edge of A among them.

    B = Q_V A Q_V^T,   Q_V the selection matrix of V: one row for each vertex, with a one in its column

The model runs all its layers on the same square block B.
"""

from __future__ import annotations

import numpy as np

from ..adjacency import Adjacency
from ..graph.minibatch import Block
from ..graph.selection import Selection


def induced(adjacency: Adjacency, vertices: Selection, weighted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the row pointers (R + 1) and local columns (E) of the subgraphs that the vertices of each part induce, stacked.

    If `weighted`, edges of weight 0 are left out, as by `Adjacency.restrict` with shares.
    """
    kept = adjacency.restrict(vertices, vertices, shares=weighted)
    return kept.pointers, kept.columns


def square(pointers: np.ndarray, columns: np.ndarray) -> Block:
    """Make one subgraph a block whose destinations are its sources."""
    return Block(pointers - pointers[0], columns, None, len(pointers) - 1)
