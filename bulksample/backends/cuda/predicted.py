"""Predict the memory that node-wise sampling of a bulk takes on a device, from the largest that each allocation can be.

    rows_0 = seeds,   drawn_h = min(rows_h s_h, k nnz),   rows_(h+1) = min(rows_h + drawn_h, k n)

With the frontier rule `new` a hop draws for at most drawn_(h-1) rows. The bounds are reached if every draw finds a new vertex; how
much less is needed depends on the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .bulk import most_found
from .draws import DRAWING_BLOCKS, FEW
from .tables import STRUCTURES, Name, chosen

NUMBERING = 1  # bytes of a place while it is numbered, beside its slot: bounds the states of tiles
SLACK = 1.02  # small arrays, and what an allocator rounds up


class BulkBytes(NamedTuple):
    """Predicted device bytes of a bulk of k mini-batches."""

    peak: int  # while they are sampled
    kept: int  # afterwards, while they are used


def bulk_bytes(
    n: int, entries: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, free: int, numbering: Name | None = None
) -> BulkBytes:
    """Predict the peak bytes of `bulk.expand`.

    Parameters
    ----------
    n, entries : int
        Vertices of the graph, and entries of its matrix.
    k, seeds : int
        Mini-batches, and seeds of all of them together.
    fanouts : sequence of int
    free : int
        Bytes that the device plans with.
    numbering : str, optional
        The structure that numbers vertices; by default chosen by size (`tables.chosen`).
    """
    places, frontier, drawn = [seeds], seeds, []
    held = min(seeds, k * n)
    holds = [held]
    for fanout in fanouts:
        found = k * entries if fanout < 0 else min(frontier * fanout, k * entries)
        drawn.append((frontier, found))
        places.append(found)
        held = min(held + found, k * n)
        holds.append(held)
        frontier = min(found, k * n) if only_new else held
    structure = STRUCTURES[numbering or chosen(n, k, most_found(seeds, fanouts, entries, k), free)]
    kept, peak, before = 4 * seeds + 8 * (k + 1), 0, 0
    for hop, found in enumerate(places):
        rows, own = (drawn[hop - 1][0], holds[hop - 1]) if hop else (0, 0)
        room = rows * fanouts[hop - 1] if hop and fanouts[hop - 1] >= 0 else found  # room for the fanout of every row
        tables, vertices = structure.bytes(n, k, own, room), 4 * own + 4 * room
        numbered = tables.left + (NUMBERING + 4) * room + vertices + (4 * holds[hop] if only_new else 0)
        kept += 8 * (rows + 1) if hop else 0
        scratch = _scratch(rows, fanouts[hop - 1] if hop else 0)
        peak = max(peak, kept + before + 4 * room + 4 * rows + max(scratch, tables.entering, numbered))
        kept, before = kept + (4 * room if hop else 0), vertices + 4 * room
    return BulkBytes(int(SLACK * (peak + tables.standing)) + 8192 * (len(places) + 1), int(SLACK * (kept + vertices)) + 8192)


def _scratch(rows: int, s: int) -> int:
    """Return the scratch bytes of rows that are drawn by blocks, which have more than `draws.FEW` picks each."""
    return 4 * min(rows, DRAWING_BLOCKS) * ((2 << (2 * s - 1).bit_length()) + s) if s > FEW else 0
