"""A bulk on relations on a device: what its launches depend on, what they are given, what they leave, and bounds of its sizes.

    rows_h(j, r) = held_h(j, destination of r),   found_h(j, type) = sum over the relations r from it of rows_h(j, r) s_r
    held_(h+1)(j, type) = min(held_h + found_h, trees of j x vertices of the type)

A relation with m edges is never drawn more often than m times a tree, but with replacement. Bounds of one mini-batch and type are also
those of its hash table. Beside these arrays a hop has scratch: the best candidates of each slice of a hub, and the sets of rows of many
picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...rng import Law
from ..hops import Hop, joined
from ..relational import HeteroExpansion, RelationLaw, RelationRows, Trees
from .device import CudaDevice
from .draws import DRAWING_BLOCKS, FEW, HUBS, KEYED, LISTED_WORDS, SLICES, set_words
from .tables import HeldVertices

ROW = 32 + 8  # bytes of a row: its record (DrawnRow of csrc/relations.h) and its pointer
EDGE, NUMBERED = 4 + 8 + 4, 8  # of an edge: its source, its position in A and its local number; its slot while it is numbered
_SLOTS = 4  # of a vertex in a hash table, at most
HUB_WORDS = LISTED_WORDS + 1 + HUBS * (1 + SLICES)  # of RelationHubs of csrc/relations.h
Drawn = Sequence[tuple[int, Law]]  # fanout and law of each relation in a hop


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

    `pointers` are for each hop the row pointers of its segments side by side, those of each segment from 0: int64, shape (rows + k R,).
    `owners` is the tree of each vertex among those of its mini-batch, int32. ``nested(hops)`` returns the rows of several hops joined, one
    after another, if only new vertices are expanded.
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


class RelationBounds(NamedTuple):
    """Bounds of a hop; those of one mini-batch and type lie at ``j T + type``."""

    rows: int
    found: np.ndarray  # int64, shape (k T,)
    held: np.ndarray  # int64, shape (k T,): after the hop


class BulkBounds(NamedTuple):
    """Bounds of all hops of a bulk."""

    sizes: np.ndarray  # int64, shape (k T,): the vertices that each may hold at all
    seeds: np.ndarray  # int64, shape (k T,)
    hops: list[RelationBounds]

    @property
    def most(self) -> np.ndarray:
        """Bound the distinct vertices of each mini-batch and type: int64, shape (k T,)."""
        return self.hops[-1].held if self.hops else np.minimum(self.seeds, self.sizes)


def bounds(
    counts: Sequence[int], relations: Sequence[RelationRows], trees: Trees, laws: Sequence[Sequence[RelationLaw]], only_new: bool
) -> BulkBounds:
    """Bound a bulk by its seeds and fanouts; arguments are those of `Backend.expand_relations`."""
    own = np.diff(trees.pointers)[:, None]
    sizes = own * np.array(counts, np.int64)
    seeds = np.stack([np.diff(np.searchsorted(owner, trees.pointers)) for owner in trees.tree_of_seed], axis=1).astype(np.int64)
    held = rows = np.minimum(seeds, sizes)
    hops = []
    for of_hop in laws:
        found, total = np.zeros_like(held), 0
        for relation, law in zip(relations, of_hop, strict=True):
            frontier, edges = rows[:, relation.destination], own[:, 0] * relation.matrix.nnz
            total += int(frontier.sum())
            drawn = edges if law.fanout < 0 else frontier * law.fanout if relation.matrix.nnz else 0 * edges
            found[:, relation.source] += drawn if law.draw.law in (Law.REPLACEMENT, Law.WEIGHTED) else np.minimum(drawn, edges)
        grown = np.minimum(held + found, sizes)
        rows = np.minimum(found, sizes) if only_new else grown
        hops.append(RelationBounds(total, found.reshape(-1), grown.reshape(-1)))
        held = grown
    return BulkBounds(sizes.reshape(-1), seeds.reshape(-1), hops)


def has_hubs(drawn: Drawn, long: Sequence[bool]) -> bool:
    """True if many warps may share a row of a hop: a row of a `long` relation that draws by weight, or few by key."""
    laws = zip(drawn, long, strict=True)
    return any(hubs and s > 0 and (law is Law.WEIGHTED or (law in KEYED and s <= FEW)) for (s, law), hubs in laws)


def slice_places(drawn: Drawn, long: Sequence[bool], rows: int) -> int:
    """Return the candidates, 12 bytes each, that the slices of the hubs of a hop keep in draws by key."""
    keyed = any(0 < s <= FEW and law in KEYED for s, law in drawn)
    return 32 * SLICES * min(rows, HUBS) if keyed and has_hubs(drawn, long) else 0


def most_in_sets(drawn: Drawn) -> int:
    """Return the most picks of a row that a block of `relation_many` draws into a set: those by key or by weight are drawn elsewhere."""
    return max((s for s, law in drawn if not law.weighs), default=0)


def _scratch(drawn: Drawn, long: Sequence[bool], rows: int) -> int:
    """Bound the bytes that a hop of so many rows takes while it draws."""
    most = max((s for s, _ in drawn), default=0)
    blocks = min(rows, DRAWING_BLOCKS) if most > FEW or any(s < 0 for s, _ in drawn) else 0
    return 12 * slice_places(drawn, long, rows) + 4 * blocks * set_words(most_in_sets(drawn))


def peak_bytes(bound: BulkBounds, disjoint: bool, drawn: Sequence[Drawn], long: Sequence[bool]) -> int:
    """Bound the device bytes of a bulk: all arrays, and the scratch of the hop that takes most. `long` says which relations have hubs."""
    vertices, edges = 8 if disjoint else 4, EDGE + NUMBERED + (4 if disjoint else 0)
    total = (16 if disjoint else 8) * _SLOTS * int(bound.most.sum()) + (vertices + NUMBERED) * int(bound.seeds.sum())
    for hop in bound.hops:
        total += ROW * hop.rows + edges * int(hop.found.sum()) + vertices * int(hop.held.sum())
    total += 8 * HUB_WORDS * sum(has_hubs(of_hop, long) for of_hop in drawn)
    total += max((_scratch(of_hop, long, hop.rows) for of_hop, hop in zip(drawn, bound.hops, strict=True)), default=0)
    return total + 8192 * (len(bound.hops) + 1) + 64 * len(bound.sizes) * (len(bound.hops) + 2)


def state_words(bound: BulkBounds) -> int:
    """Return the states of all scans of a bulk: its hops count picks, and they and the seeds are numbered."""
    groups = len(bound.sizes)
    words = CudaDevice.state_words(int(bound.seeds.sum()), groups + 1)
    for hop in bound.hops:
        words += CudaDevice.state_words(hop.rows, 0) + CudaDevice.state_words(int(hop.found.sum()), groups + 1)
    return words
