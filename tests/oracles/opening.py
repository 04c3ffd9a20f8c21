"""Predict what ranks send when they open a graph in block rows: the seeds, the relations, the edges that links are drawn of.

The g ranks of a process column gather the seeds:

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

from bulksample.distributed.matrix.layout import Layout

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


def predict_opening(relations: int, rows: int, replication: int) -> GridSent:
    """Predict what ranks send when they open relations in block rows: 16 bytes for each relation to the others of the process column."""
    return CollectiveCosts("column", rows, replication).allgather(np.full((rows, replication), 16 * relations))


def predict_link_opening(sources: np.ndarray, destinations: np.ndarray, of_source: Layout, of_destination: Layout, c: int) -> GridSent:
    """Predict what `PartitionedLinks.prepare` sends: 8 bytes for each edge whose ends two ranks of a process column own."""
    rows = of_source.blocks
    place = of_destination.blocks_of(destinations).astype(np.int64) * rows + of_source.blocks_of(sources)
    moved = np.bincount(place, minlength=rows * rows).reshape(rows, 1, rows)
    return CollectiveCosts("column", rows, c).alltoall(2 * ID * np.repeat(moved, c, axis=1))
