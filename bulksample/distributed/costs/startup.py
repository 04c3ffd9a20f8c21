"""Predict what opening a graph in block rows sends: the grid, the layout, the seeds.

================= ======== ========================= ==================== ==================================================
step              kind     bytes that rank r sends   messages of rank r   among
================= ======== ========================= ==================== ==================================================
two splits        control  32 (p - 1)                2 (p - 1)            all ranks
layout            topology 4 n (p - 1) from rank 0   p - 1 from rank 0    all ranks, if METIS made it or it is from a file
its error, if any control  24 (p - 1)                2 (p - 1)            all ranks, in the same case
is there a seed   topology g - 1                     g - 1                process column, if no split is named
seeds             topology (8 + 4 own) (g - 1)       2 (g - 1)            process column of g ranks, unless all are seeds
================= ======== ========================= ==================== ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .collectives import ID, CollectiveCosts, GridSent, nothing_sent

_NO_ERROR = 16 + len('["", ""]')  # two words sent ahead, and the message that no error occurred


def grid_made(ranks: int, replication: int) -> GridSent:
    """Predict the two splits of `ProcessGrid`."""
    sent = nothing_sent(ranks // replication, replication)
    sent[1] += np.reshape([2 * (ranks - 1), 32 * (ranks - 1)], (2, 1, 1))
    return sent


def layout_broadcast(ranks: int, replication: int, n: int) -> GridSent:
    """Predict the broadcast of a partition that rank 0 made or read. Every rank makes block and random layouts itself."""
    sent = nothing_sent(ranks // replication, replication)
    sent[1] += np.reshape([2 * (ranks - 1), _NO_ERROR * (ranks - 1)], (2, 1, 1))
    sent[0, :, 0, 0] += ranks - 1, ID * n * (ranks - 1)
    return sent


def seeds_gathered(replication: int, own: Sequence[int], named: bool) -> GridSent:
    """Predict `OpenBlock.seeds` of a split, `named` or the default, with ``own[i]`` vertices in block row i.

    A graph without the split sends nothing. If the default split is empty, all vertices are seeds and none are gathered.
    """
    column = CollectiveCosts("column", len(own), replication)
    counts = np.repeat(np.array(own, np.int64)[:, None], replication, axis=1)
    asked = column.allgather(np.ones_like(counts))
    gathered = column.allgather(np.full_like(counts, 8)) + column.allgather(ID * counts)
    if named:
        return gathered
    return asked + gathered if counts.any() else asked
