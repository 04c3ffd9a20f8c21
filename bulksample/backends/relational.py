"""Arguments and results of `Backend.expand_relations` and `Backend.sample_relation`, and the definition of `Backend.relabel_trees`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..rng import Draw
from ..sparse import CSR, row_pointers
from .hops import Expansion, Hop


class RelationRows(NamedTuple):
    """The adjacency of a relation."""

    source: int  # the place of its source type
    destination: int
    matrix: CSR  # shape (destinations, sources)
    timed: np.ndarray | None  # int64, shape (m, 2): `TimedRows.entries`; None without times
    repeats: bool  # a row may hold a column twice: parallel edges


class RelationLaw(NamedTuple):
    """The law by which the rows of one relation draw in one hop."""

    fanout: int
    draw: Draw
    last: bool = False
    strict: bool = False


class RelationPicks(NamedTuple):
    """The edges drawn from each of R rows of a relation, in the order of the adjacency."""

    pointers: np.ndarray  # int64, shape (R + 1,)
    columns: np.ndarray  # int32, shape (E,): sources
    entries: np.ndarray  # int64, shape (E,): positions in the adjacency


class Trees(NamedTuple):
    """The t trees of k mini-batches, and their seeds."""

    pointers: np.ndarray  # int64, shape (k + 1,): the trees of each mini-batch
    names: np.ndarray  # int64, shape (t,): word 2 of the counters of each tree
    seeds: list[np.ndarray]  # per type, int32 of shape (R,): vertices within the type, mini-batch by mini-batch
    tree_of_seed: list[np.ndarray]  # per type, int64 of shape (R,)
    starts: np.ndarray | None = None  # int64, shape (t,): the window of each tree; None: since ever
    ends: np.ndarray | None = None  # int64, shape (t,); None: without times
    moving: bool = False  # the end moves with the walk: see `TimeRule`

    @property
    def disjoint(self) -> bool:
        """True unless each mini-batch has one tree."""
        return bool((np.diff(self.pointers) != 1).any())


class HeteroExpansion(NamedTuple):
    """One mini-batch after all its hops, in local numbers; see `backends.hops.Expansion`."""

    seed_rows: list[np.ndarray]  # per type, int32
    vertices: list[np.ndarray]  # per type, int32: within the type
    trees: list[np.ndarray]  # per type, int32: the tree of each vertex among those of the mini-batch; empty if it has one
    held: np.ndarray  # int64, shape (L + 1, types): vertices before the first hop and after each
    hops: list[list[Hop]]  # [hop][relation]; if only new vertices are expanded, the rows of all hops up to it, or one hop that holds all

    def trees_of(self, place: int) -> np.ndarray:
        """Return the tree of each vertex of a type: int32."""
        return self.trees[place] if self.trees else 0 * self.vertices[place]

    @staticmethod
    def of_one(expansion: Expansion) -> HeteroExpansion:
        """Return the expansion of one relation, whose vertices share one tree."""
        held = np.array(expansion.held, np.int64)[:, None]
        return HeteroExpansion([expansion.seed_rows], [expansion.vertices], [], held, [[hop] for hop in expansion.hops])

    def plain(self) -> Expansion:
        """Return the expansion of the only type and the only relation."""
        return Expansion(self.seed_rows[0], self.vertices[0], self.held[:, 0].tolist(), [hop for (hop,) in self.hops])


class TreeVertices(NamedTuple):
    """Vertices of one type, mini-batch by mini-batch, each of a tree; where windows of time move, a tree holds one of each end."""

    vertices: np.ndarray  # int32, shape (N,)
    trees: np.ndarray  # int64, shape (N,): of the bulk
    ends: np.ndarray | None  # int64, shape (N,): the window of each row if it moves


def relabel_by_sorting(
    pointers: np.ndarray, held: TreeVertices, found: TreeVertices, tree_pointers: np.ndarray
) -> tuple[np.ndarray, TreeVertices, np.ndarray]:
    """Number what trees found by sorting all of it; see `Backend.relabel_trees`."""
    vertices, trees = (np.concatenate(pair) for pair in zip(held[:2], found[:2], strict=True))
    ends = None if held.ends is None or found.ends is None else np.concatenate([held.ends, found.ends])
    keys = np.stack([vertices, trees, *([] if ends is None else [ends])]).astype(np.int64)
    order = np.lexsort(keys)  # stable: equal ones in the order in which they were found
    new = np.ones(len(order), bool)
    new[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    first = order[new]
    minibatch = np.searchsorted(tree_pointers, trees[first], side="right") - 1
    rank = np.lexsort((first, minibatch))
    extended = row_pointers(np.bincount(minibatch, minlength=len(pointers) - 1))
    place = np.empty(len(rank), np.int64)
    place[rank] = np.arange(len(rank)) - extended[minibatch[rank]]
    local = np.empty(len(order), np.int64)
    local[order] = place[np.cumsum(new) - 1]
    kept = first[rank]
    every = TreeVertices(vertices[kept], trees[kept], None if ends is None else ends[kept])
    return extended, every, local[len(held.vertices) :].astype(np.int32)
