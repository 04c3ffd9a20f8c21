"""Bound the sizes of a bulk before it is drawn, and predict the memory that it takes on a device from them.

Node-wise sampling:

    rows_0 = seeds,   drawn_h = rows_h s_h  (k nnz for all neighbors),   rows_(h+1) = min(rows_h + drawn_h, k n)

With the frontier rule `new` a hop draws for at most drawn_(h-1) rows. The bounds are reached if every draw finds a new vertex; how
much less is used depends on the graph. Layer-wise sampling:

    rows_0 = seeds,   entries_h = k top(rows_h / k),   drawn_h = k s_h,   edges_h = min(entries_h, rows_h s_h)

top(r) is the sum of the r largest degrees, which no r vertices exceed; it is concave, so mini-batches of unequal size have fewer
neighbors. How much less is needed depends on how much larger those degrees are than the ones that are met. What belongs to the graph, its
matrices, row sums and factors, is placed once and not counted.

On relations, for a mini-batch j and a type:

    rows_h(j, r) = held_h(j, destination of r),   found_h(j, type) = sum over the relations r from it of rows_h(j, r) s_r
    held_(h+1)(j, type) = min(held_h + found_h, trees of j x vertices of the type)

A relation with m edges is never drawn more often than m times a tree, but with replacement. Bounds of one mini-batch and type are also
those of its hash table. Beside these arrays a hop has scratch: the best candidates of each slice of a hub, and the sets of rows of many
picks.

If the prediction is at most an eighth of the free memory, arrays have these sizes and the host waits once a bulk; otherwise it waits once
a hop, and arrays have room for the fanouts or the neighbors of the rows that are really there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...rng import Law
from ..relational import RelationLaw, RelationMatrix, Trees
from .device import CudaDevice
from .draws import DRAWING_BLOCKS, FEW, HUBS, KEYED, LISTED_WORDS, ROW_WORDS, SLICES, arrival_bytes, hub_words, set_words, slice_bytes
from .tables import HASHED, Name, TableBytes, chosen, table_bytes, table_slots

NUMBERING = 1  # bytes of a place while it is numbered, beside its slot: bounds the states of tiles
_SLACK = 1.02  # small arrays, and what an allocator rounds up
_LAYER_SLACK = 1.05  # small arrays, and what an allocator, or a recording that places arrays into two allocations, cannot fill
_SUM = 12  # bytes of a slot: a vertex and a sum
_KEY = 12  # bytes of a key, and of a place among the candidates
_DRAWN = 12  # bytes of a drawn vertex and its inclusion probability
_ROW = 32 + 8  # bytes of a row on relations: its record (DrawnRow of csrc/relations.h) and its pointer
_EDGE, _NUMBERED = 4 + 8 + 4, 8  # of an edge: its source, its position in A and its local number; its slot while it is numbered
_SLOTS = 4  # of a vertex in a hash table, at most
HUB_WORDS = LISTED_WORDS + 1 + HUBS * (1 + SLICES)  # of RelationHubs of csrc/relations.h
_ARRIVALS = 16  # a hop of s picks races in a shared row if it has fewer columns than so many times s; see `samplers.arrivals`


def most_found(seeds: int, fanouts: Sequence[int], entries: int, k: int) -> int:
    """Bound the number of vertices found, repetitions included."""
    total = rows = seeds
    for fanout in fanouts:
        drawn = k * entries if fanout < 0 else min(rows * fanout, k * entries) if entries else 0
        total, rows = total + drawn, rows + drawn
    return total


def growth(seeds: Any, fanouts: Sequence[int], n: int, only_new: bool, entries: int = 0) -> Iterator[tuple[Any, Any, Any]]:
    """Bound the rows, the edges and the vertices held after it of each hop, by the number of seeds; a hop of all neighbors has `entries`.

    Numbers are of all mini-batches, whose vertices are n together, or arrays of those of each.
    """
    least = np.minimum if isinstance(seeds, np.ndarray) else min
    held = rows = least(seeds, n)
    for fanout in fanouts:
        edges = entries if fanout < 0 else rows * fanout
        held = least(held + edges, n)
        yield rows, edges, held
        rows = least(edges, held) if only_new else held


def most_held(seeds: np.ndarray, fanouts: Sequence[int], n: int, only_new: bool) -> np.ndarray | None:
    """Bound the distinct vertices of each mini-batch by its number of seeds: int64, shape (k,); None if a hop takes all neighbors."""
    if min(fanouts, default=0) < 0:
        return None
    held: np.ndarray = [np.minimum(seeds, n), *(held for _, _, held in growth(seeds, fanouts, n, only_new))][-1]
    return held


def state_words(n: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool) -> int:
    """Bound the states of all scans of a bulk without a hop of all neighbors: its hops count draws, and they and the seeds are numbered."""
    of_hops = growth(seeds, fanouts, k * n, only_new)
    states = [CudaDevice.state_words(rows, 0) + CudaDevice.state_words(edges, k + 1) for rows, edges, _ in of_hops]
    return CudaDevice.state_words(seeds, k + 1) + sum(states)


class BulkBytes(NamedTuple):
    """Predicted device bytes of a bulk of k mini-batches."""

    peak: int  # while they are sampled
    kept: int  # afterwards, while they are used


def bulk_bytes(
    n: int, entries: int, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, free: int, numbering: Name | None = None,
    longest: int = 0, laws: Sequence[Law] | None = None,
) -> BulkBytes:  # fmt: skip
    """Predict the peak bytes of `bulk.expand`, for k mini-batches with `seeds` in all, of a matrix of n rows and so many entries.

    `free` are the bytes that the device plans with, and `numbering` the structure that numbers vertices, by default chosen by size
    (`tables.chosen`). Many warps share a hub, so the entries of the `longest` row count. `laws` are those of the hops, by default the one
    that takes most, a draw by key.
    """
    laws = [Law.RACE] * len(fanouts) if laws is None else laws
    steps = [(0, seeds, min(seeds, k * n)), *growth(seeds, fanouts, k * n, only_new, k * entries)]
    structure = numbering or chosen(n, k, most_found(seeds, fanouts, entries, k), free)
    most = None if min(fanouts, default=0) < 0 else steps[-1][2]
    kept, peak, before, drawing = 4 * seeds + 8 * (k + 1), 0, 0, 0
    for hop, (rows, edges, held) in enumerate(steps):
        before_hop = steps[hop - 1][2] if hop else 0
        tables, vertices = table_bytes(structure, n, k, before_hop, edges, most), 4 * min(before_hop + edges, k * n)
        numbered = tables.entered + (NUMBERING + 4) * edges + vertices + (4 * held if only_new else 0)
        kept += 8 * (rows + 1) if hop else 0
        s = fanouts[hop - 1] if hop else 0
        scratch = slice_bytes(longest, s, laws[hop - 1], rows) if hop else 0
        if s > FEW:  # rows are drawn by blocks
            scratch += 4 * min(rows, DRAWING_BLOCKS) * set_words(s)
        peak = max(peak, kept + before + 4 * edges + 4 * rows + max(scratch, numbered))
        drawing = max(drawing, 4 * edges + 4 * rows + scratch)
        kept, before = kept + (4 * edges if hop else 0), vertices + 4 * edges
    small = 8192 * (len(steps) + 1) + 8 * sum(hub_words(longest, s, law) for s, law in zip(fanouts, laws, strict=True))
    peak = max(peak, kept + vertices + drawing)  # a bulk that is enqueued in one call has room for its result from the start
    return BulkBytes(int(_SLACK * (peak + tables.standing)) + small, int(_SLACK * (kept + vertices)) + 8192)


class LayerBounds(NamedTuple):
    """Upper bounds of the sizes of a hop, of all mini-batches together."""

    rows: int
    entries: int  # neighbors of the rows
    slots: int  # of their sums
    keys: int  # that race: of all slots, or of all columns of a row that the mini-batches share; 0 if columns arrive
    arriving: int  # bytes of scratch if they do
    drawn: int
    edges: int
    held: int  # vertices before it


def layer_bounds(
    n: int, top: np.ndarray, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, shared: Sequence[int] | None = None
) -> list[LayerBounds]:
    """Bound the sizes of all hops; see `layer_bytes`. Hop h races in ``shared[h]`` columns, or among the neighbors of its frontier."""
    rows = vertices = min(seeds, k * n)
    bounds = []
    for hop, s in enumerate(fanouts):
        entries = k * int(top[min(n, -(-rows // k))]) if k else 0
        slots = 4 * min(entries, k * n) if shared is None else 0  # a power of two is below twice what it covers: twice the sums
        drawn = min(slots // 4 if shared is None else k * n, k * s if s >= 0 else k * n)
        edges = min(entries, rows * s) if s >= 0 else entries
        keys, arrives = slots if shared is None else k * shared[hop], shared is not None and not shared[hop]
        bounds.append(LayerBounds(rows, entries, slots, keys, arrival_bytes(k, s) if arrives else 0, drawn, edges, vertices))
        vertices = min(vertices + drawn, k * n)
        rows = drawn if only_new else vertices
    return bounds


def layer_bytes(
    n: int, top: np.ndarray, k: int, seeds: int, fanouts: Sequence[int], only_new: bool, from_frontier: bool, free: int,
    numbering: Name | None = None, shared: Sequence[int] | None = None,
) -> BulkBytes:  # fmt: skip
    """Predict the peak bytes of layer-wise `expand_layers`; see `bulk_bytes`.

    `top` (int64, shape (n + 1,)) are the sums of the largest degrees: of none, of one, of two, ... Hops draw `from_frontier`, from the
    neighbors of their frontiers, or all from one row. Then `shared` are the columns among which each hop races, and 0 where columns arrive;
    by default guessed from n and s.
    """
    drawn = [n if s < 0 and not from_frontier else s for s in fanouts]  # a row that all share has at most n columns
    if not from_frontier and shared is None:
        shared = [n if _ARRIVALS * (s + 1) > n else 0 for s in drawn]
    bounds = layer_bounds(n, top, k, seeds, drawn, only_new, shared)
    structure = numbering or chosen(n, k, seeds + k * sum(max(s, 0) for s in drawn), free)
    most = None if min(drawn, default=0) < 0 else seeds + k * sum(drawn)
    tables = table_bytes(structure, n, k, 0, seeds, most)
    standing = tables.standing + 8 * zeroed_words(k, seeds, bounds)
    if min(drawn, default=-1) >= 0:
        standing += HASHED // 4 * len(drawn) * k * table_slots(min(max(drawn), n))  # the tables of all picks: `tables.equal_tables`
    kept = 4 * seeds + 8 * (k + 1) + sum(8 * (bound.rows + 1) + 8 * bound.edges for bound in bounds)
    before, vertices, scratch = 0, 4 * seeds, tables.entered + (NUMBERING + 8) * seeds
    for bound in bounds:
        tables = table_bytes(structure, n, k, bound.held, bound.edges, most)
        scratch = max(scratch, before + vertices + _making(bound, tables, only_new))
        vertices = 4 * (bound.held + bound.edges)
        before = 8 * bound.rows + _DRAWN * bound.drawn + 4 * bound.edges + (4 * bound.drawn if only_new else 0)
    small = 8192 * (len(fanouts) + 2)
    return BulkBytes(int(_LAYER_SLACK * (kept + scratch + standing)) + small, int(_LAYER_SLACK * (kept + vertices)) + small)


def zeroed_words(k: int, seeds: int, bounds: Sequence[LayerBounds]) -> int:
    """Return the words that one fill zeroes for the launches of a bulk: states of scans, and counts of keys."""
    words = CudaDevice.state_words(seeds, k + 1)
    for bound in bounds:
        words += 2 * CudaDevice.state_words(bound.rows, 1) + CudaDevice.state_words(bound.entries, 0)  # pointers, kept edges
        words += CudaDevice.state_words(bound.edges, k + 1) + CudaDevice.state_words(k, 0)  # numbers, and tables that are made for a hop
        words += CudaDevice.state_words(bound.keys, 0) + ROW_WORDS * k if bound.keys else 0
    return words


def _making(bound: LayerBounds, tables: TableBytes, only_new: bool) -> int:
    """Bound the scratch of a hop: the largest of the draw, the restriction, the weights of the edges, and the numbering."""
    numbered = tables.entered + (NUMBERING + 4) * bound.edges + 4 * (bound.held + bound.edges) + (4 * bound.drawn if only_new else 0)
    draw = _SUM * bound.slots + _KEY * bound.keys + bound.arriving
    restriction = HASHED * bound.drawn + 12 * bound.edges
    weights = 28 * bound.edges + tables.entered
    return 16 * bound.rows + max(draw, _DRAWN * bound.drawn + max(restriction, weights, 8 * bound.edges + numbered))


Drawn = Sequence[tuple[int, Law]]  # fanout and law of each relation in a hop


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


def relation_bounds(
    counts: Sequence[int], relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]], only_new: bool
) -> BulkBounds:
    """Bound a bulk by its seeds and fanouts; arguments are those of `Backend.expand_relations`."""
    trees_of = np.diff(trees.pointers)[:, None]
    sizes = trees_of * np.array(counts, np.int64)
    seeds = np.stack([np.diff(np.searchsorted(owner, trees.pointers)) for owner in trees.tree_of_seed], axis=1).astype(np.int64)
    vertices = rows = np.minimum(seeds, sizes)
    hops = []
    for of_hop in laws:
        drawn_by_type, total = np.zeros_like(vertices), 0
        for relation, law in zip(relations, of_hop, strict=True):
            frontier, edges = rows[:, relation.destination], trees_of[:, 0] * relation.matrix.nnz
            total += int(frontier.sum())
            drawn = edges if law.fanout < 0 else frontier * law.fanout if relation.matrix.nnz else 0 * edges
            drawn_by_type[:, relation.source] += drawn if law.draw.law in (Law.REPLACEMENT, Law.WEIGHTED) else np.minimum(drawn, edges)
        grown = np.minimum(vertices + drawn_by_type, sizes)
        rows = np.minimum(drawn_by_type, sizes) if only_new else grown
        hops.append(RelationBounds(total, drawn_by_type.reshape(-1), grown.reshape(-1)))
        vertices = grown
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


def relation_bytes(bound: BulkBounds, disjoint: bool, drawn: Sequence[Drawn], long: Sequence[bool]) -> int:
    """Bound the device bytes of a bulk: all arrays, and the scratch of the hop that takes most. `long` says which relations have hubs."""
    vertices, edges = 8 if disjoint else 4, _EDGE + _NUMBERED + (4 if disjoint else 0)
    total = (16 if disjoint else 8) * _SLOTS * int(bound.most.sum()) + (vertices + _NUMBERED) * int(bound.seeds.sum())
    for hop in bound.hops:
        total += _ROW * hop.rows + edges * int(hop.found.sum()) + vertices * int(hop.held.sum())
    total += 8 * HUB_WORDS * sum(has_hubs(of_hop, long) for of_hop in drawn)
    total += max((_scratch(of_hop, long, hop.rows) for of_hop, hop in zip(drawn, bound.hops, strict=True)), default=0)
    return total + 8192 * (len(bound.hops) + 1) + 64 * len(bound.sizes) * (len(bound.hops) + 2)


def relation_state_words(bound: BulkBounds) -> int:
    """Return the states of all scans of a bulk: its hops count picks, and they and the seeds are numbered."""
    groups = len(bound.sizes)
    words = CudaDevice.state_words(int(bound.seeds.sum()), groups + 1)
    for hop in bound.hops:
        words += CudaDevice.state_words(hop.rows, 0) + CudaDevice.state_words(int(hop.found.sum()), groups + 1)
    return words
