"""Bound the sizes of a bulk before it is drawn, and predict the memory that node-wise sampling takes on a device from them.

    rows_0 = seeds,   drawn_h = rows_h s_h  (k nnz for all neighbors),   rows_(h+1) = min(rows_h + drawn_h, k n)

With the frontier rule `new` a hop draws for at most drawn_(h-1) rows. The bounds are reached if every draw finds a new vertex; how
much less is used depends on the graph. If the prediction is at most an eighth of the free memory, arrays have these sizes and the host
waits once a bulk; otherwise it waits once a hop, and arrays have room for the fanouts of the rows that are really there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...rng import Law
from .device import CudaDevice
from .draws import DRAWING_BLOCKS, FEW, hub_words, slice_bytes
from .tables import STRUCTURES, Name, chosen

NUMBERING = 1  # bytes of a place while it is numbered, beside its slot: bounds the states of tiles
SLACK = 1.02  # small arrays, and what an allocator rounds up


def most_found(seeds: int, fanouts: Sequence[int], entries: int, k: int) -> int:
    """Bound the number of vertices found, repetitions included."""
    found = rows = seeds
    for fanout in fanouts:
        drawn = k * entries if fanout < 0 else min(rows * fanout, k * entries) if entries else 0
        found, rows = found + drawn, rows + drawn
    return found


def most_held(seeds: np.ndarray, fanouts: Sequence[int], n: int, only_new: bool) -> np.ndarray | None:
    """Bound the distinct vertices of each mini-batch by its number of seeds: int64, shape (k,); None if a hop takes all neighbors."""
    if min(fanouts, default=0) < 0:
        return None
    held: np.ndarray = np.minimum(seeds, n)
    rows = held
    for fanout in fanouts:
        found = np.minimum(rows * fanout, n)
        held = np.minimum(held + found, n)
        rows = found if only_new else held
    return held


def state_words(n: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int:
    """Bound the states of all scans of a bulk without a hop of all neighbors: its hops count draws, and they and the seeds are numbered."""
    held = rows = min(seeds, k * n)
    words = CudaDevice.state_words(seeds, k + 1)
    for fanout in fanouts:
        found = rows * fanout
        words += CudaDevice.state_words(rows, 0) + CudaDevice.state_words(found, k + 1)
        held = min(held + found, k * n)
        rows = min(found, held) if only_new else held
    return words


class BulkBytes(NamedTuple):
    """Predicted device bytes of a bulk of k mini-batches."""

    peak: int  # while they are sampled
    kept: int  # afterwards, while they are used


def bulk_bytes(
    n: int, entries: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, free: int, numbering: Name | None = None,
    longest: int = 0, laws: Sequence[Law] | None = None,
) -> BulkBytes:  # fmt: skip
    """Predict the peak bytes of `bulk.expand`.

    Parameters
    ----------
    n, entries : int
        Vertices of the graph, and entries of its matrix.
    k, seeds : int
        Mini-batches, and seeds of all of them together.
    fanouts : sequence of int
    only_new : bool
        The frontier rule `new`.
    free : int
        Bytes that the device plans with.
    numbering : str, optional
        The structure that numbers vertices; by default chosen by size (`tables.chosen`).
    longest : int
        Entries of the longest row: many warps share a hub.
    laws : sequence of Law, optional
        Those of the hops; by default the one that takes most, a draw by key.
    """
    laws = [Law.RACE] * len(fanouts) if laws is None else laws
    places, frontier, drawn = [seeds], seeds, []
    held = min(seeds, k * n)
    holds = [held]
    for fanout in fanouts:
        found = k * entries if fanout < 0 else frontier * fanout
        drawn.append((frontier, found))
        places.append(found)
        held = min(held + found, k * n)
        holds.append(held)
        frontier = min(found, k * n) if only_new else held
    structure = STRUCTURES[numbering or chosen(n, k, most_found(seeds, fanouts, entries, k), free)]
    most = None if min(fanouts, default=0) < 0 else held
    kept, peak, before, drawing = 4 * seeds + 8 * (k + 1), 0, 0, 0
    for hop, found in enumerate(places):
        rows, own = (drawn[hop - 1][0], holds[hop - 1]) if hop else (0, 0)
        tables, vertices = structure.bytes(n, k, own, found, most), 4 * min(own + found, k * n)
        numbered = tables.left + (NUMBERING + 4) * found + vertices + (4 * holds[hop] if only_new else 0)
        kept += 8 * (rows + 1) if hop else 0
        s = fanouts[hop - 1] if hop else 0
        scratch = _scratch(rows, s) + (slice_bytes(longest, s, laws[hop - 1], rows) if hop else 0)
        peak = max(peak, kept + before + 4 * found + 4 * rows + max(scratch, tables.entering, numbered))
        drawing = max(drawing, 4 * found + 4 * rows + scratch)
        kept, before = kept + (4 * found if hop else 0), vertices + 4 * found
    small = 8192 * (len(places) + 1) + 8 * sum(hub_words(longest, s, law) for s, law in zip(fanouts, laws, strict=True))
    peak = max(peak, kept + vertices + drawing)  # a bulk that is enqueued in one call has room for its result from the start
    return BulkBytes(int(SLACK * (peak + tables.standing)) + small, int(SLACK * (kept + vertices)) + 8192)


def _scratch(rows: int, s: int) -> int:
    """Return the scratch bytes of rows that are drawn by blocks, which have more than `draws.FEW` picks each."""
    return 4 * min(rows, DRAWING_BLOCKS) * ((2 << (2 * s - 1).bit_length()) + s) if s > FEW else 0
