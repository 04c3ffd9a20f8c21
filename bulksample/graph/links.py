"""Links of a relation: when each one is asked about, and the destinations that its source has no edge to.

    eligible(u, t) = { w of the destination type : time_w <= t,  no edge u -> w,  w != u in a relation within one type }

The destinations of a type stand in the order of time, so those of time t are a prefix of m. Of these, k are forbidden: place i of the
m - k others is i plus the number of forbidden places before it, which a binary search finds. So draws are exactly uniform, without retries.
With whole-number weights a destination has as many places as its weight, and draws are exactly by weight.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import DataError
from ..sparse import MAX_VERTICES, row_pointers
from .graph import Graph
from .times import with_times
from .types import Relation

Ends = tuple[np.ndarray, np.ndarray]  # sources and destinations of edges


def link_times(graph: Graph, relation: Relation) -> np.ndarray | None:
    """Return when each edge of a relation came to be: int64, shape (m,). None if neither the relation nor its ends have times.

    It is the time of the edge, or else that of the later one of its ends. Raises `DataError` if edges have times before the first
    destination came to be, since no negative can be drawn for them.
    """
    if relation.times is not None:
        check_destinations(graph, relation, relation.times, (relation.adjacency.indices, relation.adjacency.row_of_entry()))
        return relation.times
    return times_of_ends(graph, relation, relation.adjacency.indices, relation.adjacency.row_of_entry())


def times_of_ends(graph: Graph, relation: Relation, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray | None:
    """Return the later time of the ends of some pairs: int64, shape (m,); None if neither type has times."""
    ends = (relation.source, sources), (relation.destination, destinations)
    stamps = [times[vertices] for kind, vertices in ends if (times := graph.type(kind).times) is not None]
    return None if not stamps else np.maximum(stamps[0], stamps[-1])


def check_destinations(graph: Graph, relation: Relation, times: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> None:
    """Raise `DataError` if edges, given by their times, sources and destinations, have times before the first destination came to be."""
    born = graph.type(relation.destination).times
    if born is None or not len(born):
        return
    first = born.min()
    early = times < first
    if relation.source == relation.destination and early.any():
        early &= ends[0] != ends[1]  # a loop is no link
    if early.any():
        raise DataError(
            f"{early.sum()} edges of {relation} have times before {first}, when the first {relation.destination!r} came to be, so they "
            "have no negatives; leave these edges out, or mend the times"
        )


def among_targets(
    edges: Ends, targets: np.ndarray, times: tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]] | None = None
) -> np.ndarray:  # fmt: skip
    """Return which edges run from the source of a target to its destination, parallel ones too: bool, shape (m,).

    `targets` are sources and destinations, int64 of shape (2, e). `times` are theirs, int64 of shape (e,), and the function that returns
    those of some edges, given their positions: an edge of another time is then no target.
    """
    keys, wanted = (ends[1].astype(np.int64) * MAX_VERTICES + ends[0] for ends in (edges, targets))
    among = np.isin(keys, wanted)
    if times is not None:
        same_ends = np.flatnonzero(among)
        of_targets, times_of = times
        among[same_ends] = np.isin(with_times(keys[same_ends], times_of(same_ends)), with_times(wanted, of_targets))
    return np.asarray(among)


class NonNeighbors:
    """The destinations that each source has no edge to, at any time.

    `ends` are the sources and the destinations of the edges that are known here, by default all edges of the relation. Sorts them once and
    keeps 8 bytes for each pair that they join, and 16 for each destination; with `weights` of destinations, int64 of shape (n,) with a sum
    below 2**62, 8 more for each. `eligible` then counts weight, and `at` takes a place for each unit of it.
    """

    def __init__(self, graph: Graph, relation: Relation, ends: Ends | None = None, weights: np.ndarray | None = None) -> None:
        kind = graph.type(relation.destination)
        sources, destinations = ends or (relation.adjacency.indices, relation.adjacency.row_of_entry())
        self._count = kind.count
        self._order = np.arange(kind.count) if kind.times is None else np.argsort(kind.times, kind="stable")
        self._times = None if kind.times is None else kind.times[self._order]
        rank = np.empty(kind.count, np.int64)
        rank[self._order] = np.arange(kind.count)
        keys = sources.astype(np.int64) * kind.count + rank[destinations]
        if relation.source == relation.destination:
            keys = np.concatenate([keys, np.arange(kind.count) * kind.count + rank])
        keys.sort()  # `np.unique` hashes, which takes 50 times as long
        self._keys = keys[np.diff(keys, prepend=-1) > 0]  # source, and the place of the destination in the order of time
        self._before = self._gone = None  # the weight of the destinations before a place, and of the keys before one, modulo 2**64
        if weights is not None:
            self._before = row_pointers(weights[self._order])
            self._gone = row_pointers(np.diff(self._before)[self._keys % max(1, kind.count)])

    def existing(self, sources: np.ndarray, times: np.ndarray | None) -> np.ndarray:
        """Count the destinations that exist at the time of each of R sources: int64, shape (R,); all without times."""
        if self._times is None or times is None:
            return np.full(len(sources), self._count)
        return np.searchsorted(self._times, times, side="right")

    def eligible(self, sources: np.ndarray, existing: np.ndarray) -> np.ndarray:
        """Count the eligible ones among the first `existing` destinations: int64, shape (R,)."""
        first, last = self._forbidden(sources, existing)
        return np.asarray(_weight(self._before, existing) - (_weight(self._gone, last) - _weight(self._gone, first)))

    def at(self, sources: np.ndarray, existing: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the eligible destination at a place, 0 .. eligible - 1, of each source: int64, shape (R,)."""
        first, last = self._forbidden(sources, existing)
        start, low, high = sources.astype(np.int64) * self._count, first.copy(), last
        while len(open_ := np.flatnonzero(low < high)):  # the first forbidden place that does not lie before the wanted one
            middle = (low[open_] + high[open_]) >> 1
            gone = _weight(self._gone, middle) - _weight(self._gone, first[open_])
            before = _weight(self._before, self._keys[middle] - start[open_]) - gone <= places[open_]
            low[open_[before]], high[open_[~before]] = middle[before] + 1, middle[~before]
        found = places + (_weight(self._gone, low) - _weight(self._gone, first))
        return np.asarray(self._order[found if self._before is None else np.searchsorted(self._before, found, side="right") - 1])

    def joined(self, sources: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return which destinations, given by their places in the order of time, are forbidden to their sources: bool, shape (R,)."""
        wanted = sources.astype(np.int64) * self._count + places
        at = np.searchsorted(self._keys, wanted)
        found = at < len(self._keys)
        found[found] = self._keys[at[found]] == wanted[found]
        return np.asarray(found)

    def anyone(self, places: np.ndarray) -> np.ndarray:
        """Return the destination at a place of the order of time, eligible or not: int64."""
        return np.asarray(self._order[places])

    def _forbidden(self, sources: np.ndarray, existing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = sources.astype(np.int64) * self._count
        return np.searchsorted(self._keys, start), np.searchsorted(self._keys, start + existing)


def _weight(running: np.ndarray | None, at: np.ndarray) -> np.ndarray:
    """Return a running sum at some places; without weights each place counts one."""
    return at if running is None else np.asarray(running[at])
