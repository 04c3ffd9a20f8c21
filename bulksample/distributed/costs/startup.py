"""Predict what gathering the seeds of a graph in block rows sends. The g ranks of a process column take part.

================= ======== ====================== ========== ===========================
step              kind     bytes of each rank     messages   when
================= ======== ====================== ========== ===========================
is there a seed   topology g - 1                  g - 1      no split is named
seeds             topology (8 + 4 own) (g - 1)    2 (g - 1)  unless all vertices are seeds
================= ======== ====================== ========== ===========================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .collectives import ID, CollectiveCosts, GridSent


def seeds_gathered(replication: int, own: Sequence[int], named: bool) -> GridSent:
    """Predict `OpenBlock.seeds` of a split, `named` or the default, with ``own[i]`` vertices in block row i.

    A graph without masks sends nothing. If the default split is empty, ranks learn it and raise.
    """
    column = CollectiveCosts("column", len(own), replication)
    counts = np.repeat(np.array(own, np.int64)[:, None], replication, axis=1)
    asked = column.allgather(np.ones_like(counts))
    gathered = column.allgather(np.full_like(counts, 8)) + column.allgather(ID * counts)
    if named:
        return gathered
    return asked + gathered if counts.any() else asked
