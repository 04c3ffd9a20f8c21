"""Memory that node-wise sampling of a bulk takes on a device, before it is taken: the largest that each allocation can be.

    rows_0 = seeds,   drawn_h = min(rows_h s_h, k nnz),   rows_(h+1) = min(rows_h + drawn_h, k n)

With the frontier rule `new` a hop draws for at most drawn_(h-1) rows. Bounds are met where all that is drawn is new; how much less it
is depends on the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .device import DENSE_TABLE_SHARE

_NUMBERING = 20  # bytes of a place while it is numbered: slot and rank, int64; mark, int32
_SLACK = 1.02  # small arrays, and what an allocator rounds up


class BulkBytes(NamedTuple):
    """Of k minibatches."""

    peak: int  # while they are made
    kept: int  # afterwards, as long as they are used


def bulk_bytes(n: int, entries: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, free: int) -> BulkBytes:
    """Bytes of `backends.gpu.bulk.expand` at the most.

    Parameters
    ----------
    n, entries : int
        Vertices of the graph, and entries of its matrix.
    k, seeds : int
        Minibatches, and seeds of all of them together.
    fanouts : sequence of int
    free : int
        What the device plans with; decides how vertices are numbered (`numbers.Numbering`).
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
    direct = n * k <= min(4 * sum(places), free // (4 * DENSE_TABLE_SHARE))
    kept, peak, before = 4 * seeds + 8 * (k + 1), 0, 0
    for hop, found in enumerate(places):
        rows = drawn[hop - 1][0] if hop else 0
        room = rows * fanouts[hop - 1] if hop and fanouts[hop - 1] >= 0 else found  # what is asked for, though rows may have less
        kept += (8 * (rows + 1) + 4 * room) if hop else 0
        vertices = 4 * (holds[hop - 1] if hop else 0) + 4 * room
        tables = 0 if direct else 32 * min((holds[hop - 1] if hop else 0) + room, k * n)
        now = 4 * room + _NUMBERING * room + 4 * rows + vertices + tables + (4 * holds[hop] if only_new else 0)
        peak, before = max(peak, kept + now + before), vertices + tables + 4 * room
    table = 4 * n * k if direct else 0
    return BulkBytes(int(_SLACK * (peak + table)) + 8192 * (len(places) + 1), int(_SLACK * (kept + vertices)) + 8192)
