"""Predict the memory that layer-wise sampling of a bulk takes on a device, from the largest that each allocation can be.

    rows_0 = seeds,   entries_h = k top(rows_h / k),   drawn_h = k s_h,   edges_h = min(entries_h, rows_h s_h)

top(r) is the sum of the r largest degrees, which no r vertices exceed; it is concave, so mini-batches of unequal size have fewer
neighbors. How much less is taken depends on how much larger those degrees are than the ones that are met. What belongs to the
graph, its matrices, row sums and factors, is placed once and not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .layer_race import ROW_WORDS
from .predicted import NUMBERING, SLACK, BulkBytes
from .tables import HASHED, STRUCTURES, Name, TableBytes, chosen

_SUM = 4 * 24  # bytes of a sum: four slots, each a vertex, a sum, a key and a place among the candidates
_SCANS = 16384  # words of zeros for the scans of a hop; those over more than some five million neighbors are zeroed apart
_DRAWN = 12  # bytes of a drawn vertex and its inclusion probability


class _Hop(NamedTuple):
    """Upper bounds of the sizes of a hop."""

    rows: int
    entries: int  # neighbors of the rows
    sums: int  # different ones
    drawn: int
    edges: int
    held: int  # vertices before it


def layer_bytes(
    n: int, top: np.ndarray, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool, free: int,
    numbering: Name | None = None,
) -> BulkBytes:  # fmt: skip
    """Predict the peak bytes of layer-wise `expand_layers`.

    Parameters
    ----------
    n : int
    top : int64, shape (n + 1,)
        Sums of the largest degrees: of none, of one, of two, ...
    k, seeds : int
        Mini-batches, and seeds of all of them together.
    fanouts : sequence of int
    only_new : bool
        The frontier rule `new`.
    from_frontier : bool
        True if hops draw from the neighbors of their frontiers; false if their picks are given.
    free, numbering
        See `predicted.bulk_bytes`.
    """
    drawn = [n if s < 0 and not from_frontier else s for s in fanouts]  # given picks have a size, also those of all vertices
    structure = STRUCTURES[numbering or chosen(n, k, seeds + k * sum(max(s, 0) for s in drawn), free)]
    most = None if min(drawn, default=0) < 0 else seeds + k * sum(drawn)
    tables = structure.bytes(n, k, 0, seeds, most)
    standing = tables.standing + 8 * zeroed_words(k, len(fanouts), from_frontier)
    kept, before, vertices = 4 * seeds + 8 * (k + 1), 0, 4 * seeds
    peak = kept + max(tables.entering, tables.left + (NUMBERING + 8) * seeds)
    room = 0  # rows of the frontier that is coming; it has room for more where the host does not wait for their number
    for hop in _hops(n, top, k, seeds, fanouts, only_new, from_frontier):
        tables = structure.bytes(n, k, hop.held, hop.edges, most)
        unused = max(0, room - hop.rows)
        kept += 8 * unused  # pointers
        peak = max(peak, kept + before + vertices + (4 * unused if only_new else 0) + _making(hop, tables, only_new, from_frontier))
        kept += 8 * (hop.rows + 1) + 8 * hop.edges
        room = 0 if most is None else min(most, hop.edges if only_new else hop.held + hop.edges)
        vertices = 4 * (hop.held + hop.edges)
        before = 8 * hop.rows + _DRAWN * hop.drawn + 4 * hop.edges + (4 * hop.drawn if only_new else 0)
    small = 8192 * (len(fanouts) + 2)
    return BulkBytes(int(SLACK * (peak + standing)) + small, int(SLACK * (kept + vertices)) + small)


def zeroed_words(k: int, hops: int, from_frontier: bool) -> int:
    """Return the words that one fill zeroes for the launches of a bulk: scans, and counts of keys."""
    return hops * (_SCANS + 4 * k + (ROW_WORDS * k if from_frontier else 0))


def _hops(n: int, top: np.ndarray, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool) -> Iterator[_Hop]:
    rows = held = min(seeds, k * n)
    for s in fanouts:
        entries = k * int(top[min(n, -(-rows // k))])
        sums = min(entries, k * n)
        drawn = min(sums if from_frontier else k * n, k * s if s >= 0 else k * n)
        edges = min(entries, rows * s) if s >= 0 else entries
        yield _Hop(rows, entries, sums, drawn, edges, held)
        held = min(held + drawn, k * n)
        rows = drawn if only_new else held


def _making(hop: _Hop, tables: TableBytes, only_new: bool, from_frontier: bool) -> int:
    """Bound the scratch of a hop: the largest of the product, the restriction, the weights of the edges, and the numbering."""
    numbered = tables.left + (NUMBERING + 4) * hop.edges + 4 * (hop.held + hop.edges) + (4 * hop.drawn if only_new else 0)
    product = 12 * hop.rows + _SUM * hop.sums if from_frontier else 0
    restriction = HASHED * hop.drawn + 12 * hop.edges
    weights = 28 * hop.edges
    return 16 * hop.rows + max(product, _DRAWN * hop.drawn + max(restriction, weights, 8 * hop.edges + max(tables.entering, numbered)))
