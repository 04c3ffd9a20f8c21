"""Take k mini-batches through their hops on relations, on a device: sized by bounds and enqueued in one call, or hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...rng import Law
from ..relational import RelationLaw, RelationRows, Trees
from .bulk import BOUND_SHARE
from .device import CudaDevice
from .draws import HUB, KEYED
from .predicted_relations import bounds, peak_bytes
from .recording import recorded
from .relation_bulk import Inputs, OpenRelationBulk, RelationBulk, Shape, close
from .relation_hops import RELATION, enqueue

_BY_PLACE, _LAST, _STRICT = 1, 2, 4
_PLAIN = (Law.UNIFORM, Law.REPLACEMENT)


def expand_relations(
    device: CudaDevice, counts: Sequence[int], relations: Sequence[RelationRows], trees: Trees, laws: Sequence[Sequence[RelationLaw]],
    only_new: bool,
) -> RelationBulk | None:  # fmt: skip
    """Take mini-batches through all hops on relations, where the arrays stay; see `Backend.expand_relations`.

    Returns None for windows that move, which the definition draws. Waits once, at the end, if the largest bulk that the fanouts allow takes
    at most an eighth of the free memory; otherwise once a hop.
    """
    if trees.moving:
        return None  # a vertex that a tree meets at two times is two
    laws = [[_without_zeros(*pair) for pair in zip(relations, of_hop, strict=True)] for of_hop in laws]
    order = tuple(sorted(range(len(relations)), key=lambda r: relations[r].source))
    ends = tuple((relations[r].source, relations[r].destination) for r in order)
    disjoint = len(trees.names) != len(trees.pointers) - 1 or bool((np.diff(trees.pointers) != 1).any())
    drawn = tuple(tuple((of_hop[r].fanout, of_hop[r].draw.law) for r in order) for of_hop in laws)
    bound = bounds(counts, relations, trees, laws, only_new)
    long = tuple(device.matrix(relations[r].matrix).longest > HUB for r in order)
    shape = Shape(tuple(counts), order, ends, drawn, bound, only_new, disjoint, long)
    inputs = _inputs(device, shape, relations, trees, laws)
    bounded = peak_bytes(bound, disjoint, drawn, long) <= device.free_bytes // BOUND_SHARE
    if not (bounded and device.prepares):
        return close(device, shape, enqueue(device, shape, _put(device, inputs), bounded))
    sizes = bound.seeds.tobytes(), bound.sizes.tobytes(), tuple(relations[r].matrix.nnz for r in order)
    given = device.free_bytes, device.numbering, tuple(array is None for array in inputs)
    key = ("relations", *(part for part in shape if part is not bound), *sizes, *given)
    recording = recorded(device, key, partial(_recorded, shape, inputs), [])
    asked, bulk = recording.result
    with device.phase("enqueue"):
        pairs = [(there, array) for there, array in zip(asked, inputs, strict=True) if array is not None]
        return close(device, shape, bulk, recording.enqueue(device, [], pairs, []))


def _without_zeros(relation: RelationRows, law: RelationLaw) -> RelationLaw:
    """Return the law that kernels draw by: all neighbors by weight, if some have none, are a race in which there is room for every row."""
    if law.fanout >= 0 or not law.draw.law.weighs:
        return law
    if not relation.matrix.stores_zeros:
        return law._replace(draw=replace(law.draw, law=Law.UNIFORM))
    by_key = law.draw.law if law.draw.law in KEYED else Law.RACE
    return law._replace(fanout=int(relation.matrix.degrees.max()), draw=replace(law.draw, law=by_key))


def _inputs(
    device: CudaDevice, shape: Shape, relations: Sequence[RelationRows], trees: Trees, laws: Sequence[Sequence[RelationLaw]]
) -> Inputs:
    """Lay out what a bulk copies to the device, on the host."""
    table = np.zeros((len(laws), len(relations)), RELATION)
    for q, r in enumerate(shape.order):
        relation, there = relations[r], device.matrix(relations[r].matrix)
        timed = None if relation.timed is None else device.constant(relation.timed)
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
    own, words = (owners if shape.disjoint else None), table.reshape(-1).view(np.int64)
    return Inputs(words, firsts, groups, seeds, own, np.zeros_like(groups), trees.names, trees.starts, trees.ends)


def _put(device: CudaDevice, inputs: Inputs) -> Inputs:
    """Copy the inputs to the device, in one copy."""
    there = iter(device.put_together(*(array for array in inputs if array is not None)))
    return Inputs(*(None if array is None else next(there) for array in inputs))


def _recorded(
    shape: Shape, inputs: Inputs, device: CudaDevice, outside: Sequence[Any]
) -> tuple[tuple[Inputs, OpenRelationBulk], list[Any]]:
    """Enqueue all hops on a device that records."""
    asked = _put(device, inputs)
    bulk = enqueue(device, shape, asked, True)
    kept = [bulk.sizes, bulk.seed_rows, bulk.held.vertices, *(part for hop in bulk.hops for part in hop)]
    return (asked, bulk), kept if bulk.held.trees is None else [*kept, bulk.held.trees]
