"""Bound the sizes of a bulk on relations before it is drawn: what `predicted` does for one relation.

    rows_h(j, r) = held_h(j, destination of r),   found_h(j, type) = sum over the relations r from it of rows_h(j, r) s_r
    held_(h+1)(j, type) = min(held_h + found_h, trees of j x vertices of the type)

A relation with m edges is never drawn more often than m times a tree, but with replacement. Bounds of one mini-batch and type are also
those of its hash table. Beside these arrays a hop has scratch: the best candidates of each slice of a hub, and the sets of rows of many
picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...rng import Law
from ..relational import RelationLaw, RelationRows, Trees
from .device import CudaDevice
from .draws import DRAWING_BLOCKS, FEW, HUBS, KEYED, LISTED_WORDS, SLICES

ROW = 32 + 8  # bytes of a row: its record (DrawnRow of csrc/relations.h) and its pointer
EDGE, NUMBERED = 4 + 8 + 4, 8  # of an edge: its source, its position in A and its local number; its slot while it is numbered
_SLOTS = 4  # of a vertex in a hash table, at most
HUB_WORDS = LISTED_WORDS + 1 + HUBS * (1 + SLICES)  # of RelationHubs of csrc/relations.h
Drawn = Sequence[tuple[int, Law]]  # fanout and law of each relation in a hop


class HopBounds(NamedTuple):
    """Bounds of a hop; those of one mini-batch and type lie at ``j T + type``."""

    rows: int
    found: np.ndarray  # int64, shape (k T,)
    held: np.ndarray  # int64, shape (k T,): after the hop


class BulkBounds(NamedTuple):
    """Bounds of all hops of a bulk."""

    sizes: np.ndarray  # int64, shape (k T,): the vertices that each may hold at all
    seeds: np.ndarray  # int64, shape (k T,)
    hops: list[HopBounds]

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
        hops.append(HopBounds(total, found.reshape(-1), grown.reshape(-1)))
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


def set_words(most: int) -> int:
    """Return the words of 32 bits in which a block draws at most `most` picks of a row."""
    return (2 << (2 * max(most, 1) - 1).bit_length()) + max(most, 0)


def _scratch(drawn: Drawn, long: Sequence[bool], rows: int) -> int:
    """Bound the bytes that a hop of so many rows takes while it draws."""
    most = max((s for s, _ in drawn), default=0)
    blocks = min(rows, DRAWING_BLOCKS) if most > FEW or any(s < 0 for s, _ in drawn) else 0
    return 12 * slice_places(drawn, long, rows) + 4 * blocks * set_words(most_in_sets(drawn))


def peak_bytes(bound: BulkBounds, disjoint: bool, drawn: Sequence[Drawn], long: Sequence[bool]) -> int:
    """Bound the device bytes of a bulk of these sizes, all arrays together and the scratch of the hop that takes most.

    `drawn` are the fanouts and laws of each hop, `long` tells of each relation whether it has hubs.
    """
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
