"""Shared steps of subgraph samplers: they find vertices first, then keep every edge among them.

    B = Q_V A Q_V

The model runs all its layers on the one square block.
"""

from __future__ import annotations

import numpy as np

from ..adjacency import Adjacency
from ..minibatch import Block
from ..selection import Selection


def induced(adjacency: Adjacency, vertices: Selection) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers (R + 1) and local columns (E) of the induced subgraphs, stacked."""
    kept = adjacency.restrict(vertices, vertices, shares=False)
    return kept.pointers, kept.columns


def square(pointers: np.ndarray, columns: np.ndarray) -> Block:
    """Make one subgraph a block whose destinations are its sources."""
    return Block(pointers - pointers[0], columns, None, len(pointers) - 1)
