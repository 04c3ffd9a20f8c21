"""Take k mini-batches through their hops on relations, on a device: sized by bounds and enqueued in one call, or hop by hop.

A mini-batch and a type (a group, ``j T + type``) take the place that a mini-batch has without relations: its vertices lie side by side
and are numbered together. The rows of a mini-batch and a relation are a segment; see csrc/relations.h for their order. Kernels read from
memory what a relation is and how it draws. So a hop takes the same launches whatever the number of relations: one for its segments, one
for its windows and counts, one for each kind of draw in it, two to number what it found, and
one more where its size is not bounded beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...rng import Law
from ..relational import RelationLaw, RelationMatrix, Trees
from .bulk import BOUND_SHARE, DeviceBulk, DeviceHop, Division, OpenBulk, sampled
from .device import CudaDevice
from .draws import DRAWING_BLOCKS, FEW, HUB, HUBS, KEYED, SLICES, set_words
from .predicted import HUB_WORDS, BulkBounds, has_hubs, most_in_sets, relation_bounds, relation_bytes, relation_state_words, slice_places
from .tables import FoundVertices, HeldVertices, Numbering

_BY_PLACE, _LAST, _STRICT = 1, 2, 4
_PLAIN = (Law.UNIFORM, Law.REPLACEMENT)
_POINTERS = ("indptr", "indices", "values", "timed")
RELATION = np.dtype(  # Relation of csrc/relations.h
    [(name, np.uint64) for name in _POINTERS]
    + [("fanout", np.int64), ("seed", np.uint64), ("tag", np.uint32), ("law", np.int32), ("flags", np.uint32)]
    + [("source", np.int32), ("destination", np.int32), ("unused", np.int32)]
)
_ROW_WORDS = 4  # of DrawnRow, in words of 64 bits


class Shape(NamedTuple):
    """The sizes, laws and bounds of a bulk, which fix its launches together with its arrays."""

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


class RelationInputs(NamedTuple):
    """The arrays that a bulk copies to the device."""

    relations: Any  # int64: an array of `RELATION` for each hop
    firsts: Any  # int64, shape (T,)
    pointers: Any  # int64, shape (k T + 1,): the seeds of each group
    seeds: Any  # int32
    trees: Any  # int32: the tree of each seed
    none: Any  # int64, shape (k T + 1,): zeros
    names: Any  # int64, shape (t,)
    starts: Any  # int64, shape (t,)
    ends: Any  # int64, shape (t,)


def expand_relations(
    device: CudaDevice, counts: Sequence[int], relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]],
    only_new: bool,
) -> DeviceBulk | None:  # fmt: skip
    """Take mini-batches through all hops on relations, where the arrays stay; see `Backend.expand_relations`.

    Returns None for windows that move, which the definition draws. Waits once, at the end, if the largest bulk that the fanouts allow takes
    at most an eighth of the free memory; otherwise once a hop.
    """
    if trees.moving:
        return None  # a vertex that a tree meets at two times is two
    laws = [[_without_zeros(*pair) for pair in zip(relations, of_hop, strict=True)] for of_hop in laws]
    order = tuple(sorted(range(len(relations)), key=lambda r: relations[r].source))
    ends = tuple((relations[r].source, relations[r].destination) for r in order)
    drawn = tuple(tuple((of_hop[r].fanout, of_hop[r].draw.law) for r in order) for of_hop in laws)
    bound = relation_bounds(counts, relations, trees, laws, only_new)
    long = tuple(device.matrix(relations[r].matrix).longest > HUB for r in order)
    shape = Shape(tuple(counts), order, ends, drawn, bound, only_new, trees.disjoint, long)
    inputs = _inputs(device, shape, relations, trees, laws)
    bounded = relation_bytes(bound, trees.disjoint, drawn, long) <= device.free_bytes // BOUND_SHARE
    sizes = bound.seeds.tobytes(), bound.sizes.tobytes(), tuple(relations[r].matrix.nnz for r in order)
    key = ("relations", *(part for part in shape if part is not bound), *sizes) if bounded and device.prepares else None
    return sampled(device, key, lambda device, _, inputs, __: enqueue(device, shape, inputs, bounded), [], inputs)


def _without_zeros(relation: RelationMatrix, law: RelationLaw) -> RelationLaw:
    """Return the law that kernels draw by: all neighbors by weight, if some have none, are a race in which there is room for every row."""
    if law.fanout >= 0 or not law.draw.law.weighs:
        return law
    if not relation.matrix.stores_zeros:
        return law._replace(draw=replace(law.draw, law=Law.UNIFORM))
    by_key = law.draw.law if law.draw.law in KEYED else Law.RACE
    return law._replace(fanout=int(relation.matrix.degrees.max()), draw=replace(law.draw, law=by_key))


def _inputs(
    device: CudaDevice, shape: Shape, relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]]
) -> RelationInputs:
    """Lay out what a bulk copies to the device, on the host."""
    table = np.zeros((len(laws), len(relations)), RELATION)
    for q, r in enumerate(shape.order):
        relation, there = relations[r], device.matrix(relations[r].matrix)
        timed = None if relation.timed is None else device.constant(relation.timed.entries)
        addresses = [device.launch.address(array) for array in (there.indptr, there.indices, there.values, timed)]
        plain = [*addresses[:2], 0, *addresses[3:]]  # the law takes no note of weights
        for hop, of_hop in enumerate(laws):
            law = of_hop[r]
            flags = _BY_PLACE * relation.repeats | _LAST * law.last | _STRICT * law.strict
            numbers = (law.fanout, law.draw.seed, law.draw.tag, law.draw.law, flags, relation.source, relation.destination, 0)
            table[hop, q] = (*(plain if law.draw.law in _PLAIN else addresses), *numbers)
    types, groups = len(shape.counts), np.zeros(len(shape.bound.sizes) + 1, np.int64)
    np.cumsum(shape.bound.seeds, out=groups[1:])
    seeds, owners = np.empty(groups[-1], np.int32), np.empty(groups[-1], np.int32)
    for t, (vertices, owner) in enumerate(zip(trees.seeds, trees.tree_of_seed, strict=True)):
        minibatch = np.searchsorted(trees.pointers, owner, side="right") - 1
        group, first = minibatch * types + t, np.searchsorted(owner, trees.pointers)
        place = groups[group] + np.arange(len(owner)) - first[minibatch]
        seeds[place], owners[place] = vertices, owner
    firsts = np.searchsorted([source for source, _ in shape.ends], np.arange(types)).astype(np.int64)
    owners_of_trees, words = (owners if shape.disjoint else None), table.reshape(-1).view(np.int64)
    return RelationInputs(words, firsts, groups, seeds, owners_of_trees, np.zeros_like(groups), trees.names, trees.starts, trees.ends)


def enqueue(device: CudaDevice, shape: Shape, inputs: RelationInputs, bounded: bool) -> OpenBulk:
    """Enqueue all hops; waits once a hop unless sizes are bounded."""
    bound, count = shape.bound, len(shape.drawn)
    step, width = 2 * shape.groups + 2, shape.segments + 1  # pointers of a step, and of the segments of a hop
    sizes = device.empty((count + 1) * step + 2 * count * width, np.int64)
    ends, of_segments = [sizes[at * step : (at + 1) * step] for at in range(count + 1)], sizes[(count + 1) * step :]
    segments, edges = ([of_segments[at * width : (at + 1) * width] for at in range(first, first + count)] for first in (0, count))
    expected, empty = int(bound.seeds.sum() + sum(hop.found.sum() for hop in bound.hops)), device.empty(0, np.int32)
    words = relation_state_words(bound) + HUB_WORDS * sum(has_hubs(drawn, shape.hubs) for drawn in shape.drawn)
    with device.zeroed_together(words if bounded else 0):
        numbering = Numbering(device, bound.sizes, expected, bound.most if bounded else None, shape.disjoint)
        with device.phase("seeds"):
            held = HeldVertices(inputs.none, empty, 0, empty if shape.disjoint else None)
            held, seed_rows = numbering.number(held, FoundVertices(inputs.pointers, inputs.seeds, inputs.trees), ends[0])
        most = fresh = np.minimum(bound.seeds, bound.sizes)
        since, hops = None, list[DeviceHop]()
        for h in range(count):
            with device.phase(f"hop {h}"):
                of_type = (most if since is None else fresh).reshape(-1, len(shape.counts)).sum(axis=0)
                rows = bound.hops[h].rows if bounded else int(sum(of_type[destination] for _, destination in shape.ends))
                room = int(bound.hops[h].found.sum()) if bounded else None
                pointers, drawn, entries, counted = _drawn(device, shape, inputs, h, segments[h], edges[h], held, since, rows, room)
                if counted is not None:
                    fresh = np.minimum(np.diff(counted), bound.sizes)
                    most = np.minimum(most + fresh, bound.sizes)
                grown, local = numbering.number(held, drawn, ends[h + 1])
                hops.append(DeviceHop(segments[h], edges[h], pointers, local, None, entries))
                since, held = held.pointers if shape.only_new else None, grown
    division = Division(np.append(0, np.cumsum(bound.seeds)), shape.only_new, len(shape.counts), shape.order)
    return OpenBulk(division, sizes, seed_rows, held, hops)


def _drawn(
    device: CudaDevice, shape: Shape, inputs: RelationInputs, hop: int, segments: Any, edges: Any, held: HeldVertices, since: Any,
    size: int, room: int | None,
) -> tuple[Any, FoundVertices, Any, np.ndarray | None]:  # fmt: skip
    """Launch a hop of at most `size` rows in front of numbering: its rows, then its edges, by one launch for each kind of draw in its laws.

    Returns the row pointers, what is found, and the entries. Edges have `room`; without it, this waits for the pointers of what is found,
    and returns them as well.
    """
    laws, count, types, counted = shape.drawn[hop], len(shape.order), len(shape.counts), None
    words = count * RELATION.itemsize // 8
    relations = inputs.relations[hop * words : (hop + 1) * words]
    pointers, found = device.empty(size + 1, np.int64), device.empty(shape.groups + 1, np.int64)
    rows = device.empty(size * _ROW_WORDS, np.int64)
    hubs = device.zeros(HUB_WORDS) if has_hubs(laws, shape.hubs) else None
    numbers = relations, count, types, shape.groups // types
    device.blocks("relation_segments", 1, *numbers, held.pointers, since, segments)
    frontier = (inputs.firsts, segments, held.pointers, since, held.vertices, held.trees, inputs.names, inputs.starts, inputs.ends)
    device.scan("relation_rows", size, 0, lambda states: (*numbers, *frontier, states, pointers, rows, found, edges, hubs))
    if room is None:
        counted = device.get(found)
        room = int(counted[-1])
    columns, entries = device.empty(room, np.int32), device.empty(room, np.int64)
    trees = device.empty(room, np.int32) if shape.disjoint else None
    common = (relations, rows, segments, shape.segments, pointers, columns, entries, trees)
    if any(fanout and law is not Law.WEIGHTED for fanout, law in laws) or any(fanout < 0 for fanout, _ in laws):
        few = max(FEW if fanout < 0 else min(fanout, FEW) for fanout, _ in laws)
        device.start(f"relation_{8 if few <= 8 else 16 if few <= 16 else 32}", size, *common)
    if any(fanout < 0 or fanout > FEW for fanout, law in laws):
        s = most_in_sets(laws)
        bits = (2 * max(s, 1) - 1).bit_length()
        blocks = max(1, min(size, DRAWING_BLOCKS, device.launch.most_blocks("relation_many")))
        device.blocks("relation_many", blocks, *common, device.empty(blocks * set_words(s), np.uint32), s, bits)
    if any(0 < fanout <= FEW and law in KEYED for fanout, law in laws):
        best = slice_places(laws, shape.hubs, size)
        kept = (None, None) if hubs is None else (device.empty(best, np.float64), device.empty(best, np.int32))
        device.start("relation_race", max(32 * size, best), *common, hubs, *kept)
    if any(fanout > FEW and law in KEYED for fanout, law in laws):
        device.blocks("relation_race_many", size, *common)
    if any(fanout > 0 and law is Law.WEIGHTED for fanout, law in laws):
        shared = 0 if hubs is None else 32 * SLICES * min(size, HUBS)
        device.start("relation_weighted", max(32 * size, shared), *common, hubs)
    return pointers, FoundVertices(found, columns, trees), entries, counted
