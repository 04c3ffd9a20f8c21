"""The seeds of a loader, named by a split, by ids or by a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..distributed.matrix.rank_graph import RankGraph
from ..errors import UsageError
from ..graph import Graph
from ..selection import seed_ids


def seed_vertices(graph: Graph | RankGraph, seeds: Any = None) -> NDArray[np.int32]:
    """Return the ids of seeds that are given as the name of a split, as ids or as a mask.

    Raises
    ------
    UsageError
        If there is no such split, an id is not a vertex, the mask has another length, or no vertex is chosen.
    """
    if seeds is None or isinstance(seeds, str):
        chosen = graph.default_seeds() if seeds is None else graph.seeds(seeds)
    else:
        chosen = seed_ids(seeds, graph.n)
    if not len(chosen):
        raise UsageError(f"seeds choose none of the {graph.n} vertices of graph {graph.name!r}; use seeds='all' or ids")
    chosen.flags.writeable = False  # a loader takes it without a copy
    return chosen
