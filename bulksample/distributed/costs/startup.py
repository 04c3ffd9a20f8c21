"""What opening a graph in block rows sends, predicted: the grid, the layout, the seeds.

================= ======== ========================= ==================== ==================================================
what              kind     bytes that rank r sends   messages of rank r   where
================= ======== ========================= ==================== ==================================================
two splits        control  32 (p - 1)                2 (p - 1)            all ranks
a layout is dealt topology 4 n (p - 1) from rank 0   p - 1 from rank 0    all ranks, if it is METIS's or from a file
and faults told   control  24 (p - 1)                2 (p - 1)            all ranks
is there a seed   topology g - 1                     g - 1                process column, if no split is named
seeds             topology (8 + 4 own) (g - 1)       2 (g - 1)            process column of g ranks, if not all are seeds
================= ======== ========================= ==================== ==================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .collectives import ID, CollectiveCosts, GridSent, nothing_sent

_FAULTS = 16 + len('["", ""]')  # two words ahead, and that nothing went wrong


def grid_made(ranks: int, replication: int) -> GridSent:
    """`ProcessGrid`."""
    sent = nothing_sent(ranks // replication, replication)
    sent[1] += np.reshape([2 * (ranks - 1), 32 * (ranks - 1)], (2, 1, 1))
    return sent


def layout_broadcast(ranks: int, replication: int, n: int) -> GridSent:
    """A partition that one rank has made or read, told to all; block and random layouts are known everywhere."""
    sent = nothing_sent(ranks // replication, replication)
    sent[1] += np.reshape([2 * (ranks - 1), _FAULTS * (ranks - 1)], (2, 1, 1))
    sent[0, :, 0, 0] += ranks - 1, ID * n * (ranks - 1)
    return sent


def seeds_gathered(replication: int, own: Sequence[int], named: bool) -> GridSent:
    """`OpenBlock.seeds` of a split, `named` or the default, of which block row i holds ``own[i]`` vertices.

    A graph without such a split sends nothing. Where the default split is empty all vertices are seeds, and none are gathered.
    """
    column = CollectiveCosts("column", len(own), replication)
    counts = np.repeat(np.array(own, np.int64)[:, None], replication, axis=1)
    asked = column.allgather(np.ones_like(counts))
    gathered = column.allgather(np.full_like(counts, 8)) + column.allgather(ID * counts)
    if named:
        return gathered
    return asked + gathered if counts.any() else asked
