"""A bulk on relations on a device: what its launches depend on, what they are given, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...rng import Law
from ..hops import Hop, joined
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
    hubs: tuple[bool, ...]  # for each relation in that order, whether it has rows that many warps share

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


class RelationHop(NamedTuple):
    """Hold the picks of a hop; before their number is known on the host, arrays may be longer than it."""

    pointers: Any  # int64, shape (rows + 1,)
    local: Any  # int32
    entries: Any  # int64


class OpenRelationBulk(NamedTuple):
    """A bulk on relations before its sizes are known on the host; arrays may be longer than they say."""

    sizes: Any  # int64: k T + 1 pointers of the vertices held and of those found, for each step; then of each hop the rows, and the edges,
    # before each of the k R segments
    seed_rows: Any  # int32
    held: HeldVertices
    hops: list[RelationHop]


class RelationBulk(NamedTuple):
    """A bulk on relations whose sizes are on the host; its arrays are on the device, or copies on the host."""

    shape: Shape
    ends: np.ndarray  # int64, shape (L + 1, k T + 1): pointers of the vertices held before the first hop and after each
    rows: np.ndarray  # int64, shape (L, k R + 1): the rows before each segment of each hop
    edges: np.ndarray  # int64, shape (L, k R + 1)
    segments: Any  # int64, shape (2 L (k R + 1),): `rows` and `edges`, on the device
    seed_rows: Any
    vertices: Any
    owners: Any  # int32: the tree of each vertex; None if every mini-batch is one tree
    hops: list[RelationHop]

    def to_host(self, device: CudaDevice) -> RelationBulk:
        """Copy the arrays to the host."""
        with device.phase("copy to host"):
            hops = [RelationHop(*(device.get(array) for array in hop)) for hop in self.hops]
            owners = None if self.owners is None else device.get(self.owners)
            return self._replace(seed_rows=device.get(self.seed_rows), vertices=device.get(self.vertices), owners=owners, hops=hops)

    def held_by_minibatch(self) -> np.ndarray:
        """Return how many vertices each mini-batch holds: int64, shape (k,)."""
        held: np.ndarray = np.diff(self.ends[-1, :: len(self.shape.counts)])
        return held


def close(
    device: CudaDevice, shape: Shape, bulk: OpenRelationBulk, array_of: Callable[[Any], Any] = lambda array: array
) -> RelationBulk:  # fmt: skip
    """Wait for the sizes of a bulk, and cut its arrays to their lengths. `array_of` is that of `Recording.enqueue`."""
    count, groups, own = len(shape.drawn), shape.groups, shape.segments + 1
    sizes = array_of(bulk.sizes)
    steps, rows, edges = np.split(device.get(sizes), np.cumsum([(count + 1) * (2 * groups + 2), count * own]))
    ends = steps.reshape(count + 1, 2, groups + 1)[:, 0]
    rows, edges = rows.reshape(count, own), edges.reshape(count, own)
    hops = []
    for hop, last_row, last_edge in zip(bulk.hops, rows[:, -1], edges[:, -1], strict=True):
        hops.append(RelationHop(array_of(hop.pointers[: last_row + 1]), *(array_of(part[:last_edge]) for part in hop[1:])))
    vertices, owners = (None if array is None else array_of(array[: ends[-1, -1]]) for array in (bulk.held.vertices, bulk.held.trees))
    return RelationBulk(shape, ends, rows, edges, sizes[len(steps) :], array_of(bulk.seed_rows), vertices, owners, hops)


def cut(
    bulk: RelationBulk, pointers: Sequence[Any], owners: Any, nested: Callable[[list[Hop]], list[Hop]]
) -> list[HeteroExpansion]:  # fmt: skip
    """Cut a bulk into its mini-batches; arrays are views of those of the bulk, wherever they are.

    Parameters
    ----------
    pointers : sequence of int64 of shape (rows + k R,)
        For each hop the row pointers of its segments side by side, those of each segment from 0.
    owners : int32
        The tree of each vertex among those of its mini-batch.
    nested : callable
        Returns the rows of several hops joined, one after another, if only new vertices are expanded.
    """
    shape, out = bulk.shape, []
    types, relations = len(shape.counts), len(shape.order)
    seeds, place = np.append(0, np.cumsum(shape.bound.seeds)).tolist(), np.argsort(shape.order)
    ends = bulk.ends[-1].tolist()
    hops = list(zip(pointers, bulk.hops, bulk.rows.tolist(), bulk.edges.tolist(), strict=True))
    for j in range(shape.groups // types):
        own, segments = range(j * types, (j + 1) * types), (j * relations + place).tolist()
        spans = [slice(ends[g], ends[g + 1]) for g in own]
        parts = [[_segment(*hop, s) for s in segments] for hop in hops]
        if shape.only_new:
            parts = [list(of_hop) for of_hop in zip(*(nested([of_hop[r] for of_hop in parts]) for r in range(relations)), strict=True)]
        rows = [bulk.seed_rows[seeds[g] : seeds[g + 1]] for g in own]
        held = np.diff(bulk.ends[:, j * types : (j + 1) * types + 1], axis=1)
        out.append(HeteroExpansion(rows, [bulk.vertices[span] for span in spans], [owners[span] for span in spans], held, parts))
    return out


def _segment(pointers: Any, hop: RelationHop, rows: list[int], edges: list[int], s: int) -> Hop:
    own = slice(edges[s], edges[s + 1])
    return Hop(pointers[rows[s] + s : rows[s + 1] + s + 1], hop.local[own], None, hop.entries[own])


def cut_on_host(bulk: RelationBulk, trees: Trees) -> list[HeteroExpansion]:
    """Cut a bulk whose arrays are on the host into its mini-batches."""
    pointers = []
    for hop, rows, edges in zip(bulk.hops, bulk.rows, bulk.edges, strict=True):
        segment = np.repeat(np.arange(len(rows) - 1), np.diff(rows) + 1)
        pointers.append(hop.pointers[np.arange(len(segment)) - segment] - edges[segment])
    first_trees = np.repeat(trees.pointers[:-1], bulk.held_by_minibatch())
    owners = np.zeros(len(bulk.vertices), np.int32) if bulk.owners is None else (bulk.owners - first_trees).astype(np.int32)
    return cut(bulk, pointers, owners, lambda parts: [joined(parts)])
