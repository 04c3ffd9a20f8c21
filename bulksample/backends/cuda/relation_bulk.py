"""A bulk on relations on a device: what its launches depend on, what they are given, and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...rng import Law
from ..hops import Hop, joined, part_of
from ..relational import HeteroExpansion, Trees
from .device import CudaDevice
from .predicted_relations import BulkBounds
from .tables import HeldVertices


class Shape(NamedTuple):
    """Fix the launches of a bulk, together with its arrays: sizes, laws and bounds."""

    counts: tuple[int, ...]
    order: tuple[int, ...]  # the relations by source type
    ends: tuple[tuple[int, int], ...]  # source and destination of each, in that order
    drawn: tuple[tuple[tuple[int, Law], ...], ...]  # [hop][relation in that order]: fanout and law
    bound: BulkBounds
    only_new: bool
    disjoint: bool

    @property
    def groups(self) -> int:
        """k T."""
        return len(self.bound.sizes)

    @property
    def segments(self) -> int:
        """k R."""
        return self.groups // len(self.counts) * len(self.order)


class Inputs(NamedTuple):
    """Hold the arrays that a bulk copies to the device."""

    relations: Any  # int64: an array of `RELATION` for each hop
    firsts: Any  # int64, shape (T,)
    pointers: Any  # int64, shape (k T + 1,): the seeds of each group
    seeds: Any  # int32
    trees: Any  # int32: the tree of each seed
    none: Any  # int64, shape (k T + 1,): zeros
    names: Any  # int64, shape (t,)
    starts: Any  # int64, shape (t,)
    ends: Any  # int64, shape (t,)


class OpenRelationHop(NamedTuple):
    """Hold the picks of a hop before their number is known on the host."""

    pointers: Any  # int64, shape (rows + 1,)
    local: Any  # int32
    entries: Any  # int64


class OpenRelationBulk(NamedTuple):
    """A bulk on relations before its sizes are known on the host; arrays may be longer than they say."""

    sizes: Any  # int64: for each step k T + 1 pointers of the vertices held, and as many of those found; the k R + 1 segments of each hop
    seed_rows: Any  # int32
    held: HeldVertices
    hops: list[OpenRelationHop]


def close(
    device: CudaDevice, shape: Shape, trees: Trees, bulk: OpenRelationBulk, array_of: Callable[[Any], Any] = lambda array: array
) -> list[HeteroExpansion]:
    """Wait for the sizes of a bulk, copy it to the host and cut it into its mini-batches."""
    count, groups = len(shape.drawn), shape.groups
    sizes = device.get(array_of(bulk.sizes))
    steps, segments = np.split(sizes, [(count + 1) * (2 * groups + 2)])
    ends, found = steps.reshape(count + 1, 2, groups + 1).swapaxes(0, 1)
    segments = segments.reshape(count, shape.segments + 1)
    with device.phase("copy to host"):
        hops = []
        for hop, rows, edges in zip(bulk.hops, segments[:, -1], found[1:, -1], strict=True):
            parts = (hop.pointers[: rows + 1], hop.local[:edges], hop.entries[:edges])
            pointers, local, entries = (device.get(array_of(part)) for part in parts)
            hops.append(Hop(pointers, local, None, entries))
        lists = (bulk.held.vertices, bulk.held.trees)
        vertices, owners = (None if array is None else device.get(array_of(array[: ends[-1, -1]])) for array in lists)
        seed_rows = device.get(array_of(bulk.seed_rows))
    assert vertices is not None
    seeds, out = np.append(0, np.cumsum(shape.bound.seeds)), []
    types, relations = len(shape.counts), len(shape.order)
    place = np.argsort(shape.order)
    for j in range(groups // types):
        own = range(j * types, (j + 1) * types)
        spans = [slice(ends[-1, g], ends[-1, g + 1]) for g in own]
        trees_of = [
            np.zeros(span.stop - span.start, np.int32) if owners is None else owners[span] - np.int32(trees.pointers[j]) for span in spans
        ]
        at = j * relations + place
        parts_of = [
            [part_of(hop, first, last) for first, last in zip(rows[at], rows[at + 1], strict=True)]
            for hop, rows in zip(hops, segments, strict=True)
        ]
        if shape.only_new:
            parts_of = [[joined([of_hop[r] for of_hop in parts_of]) for r in range(relations)]]
        rows_of = [seed_rows[seeds[g] : seeds[g + 1]] for g in own]
        held = np.diff(ends[:, j * types : (j + 1) * types + 1], axis=1)
        out.append(HeteroExpansion(rows_of, [vertices[span] for span in spans], trees_of, held, parts_of))
    return out
