"""Take mini-batches through their hops on relations: the loop over hops and relations, written once.

    hop h:  for each relation r = (S, name, D) in order:  the frontier's rows of type D draw; what is new joins the vertices of type S
    the frontier of the next hop is the union over relations, by type

A mini-batch consists of trees. One tree holds all its seeds; or, if trees are disjoint, each seed is a tree of its own, and a vertex that
two trees meet is two vertices of the mini-batch. The draws of a tree depend on its name alone, so it is the same alone and in any
mini-batch.

Per type the seeds come first, then what each hop found: by relation, row and position, which is torch_geometric's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..sparse import row_pointers
from .base import Backend
from .hops import Hop, joined, part_of
from .relation_draws import Frontier, draw_rows
from .relational import HeteroExpansion, RelationLaw, RelationMatrix, RowPicks, Trees, TreeVertices

DrawHop = Callable[[int, Sequence[Frontier]], list[RowPicks]]  # the draws of each relation in hop h, from the frontier of each type


@dataclass(eq=False)
class _Held:
    """The vertices of one type that the mini-batches hold, mini-batch by mini-batch."""

    pointers: np.ndarray  # int64, shape (k + 1,)
    all: TreeVertices

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.pointers)

    def found(self, backend: Backend, new: TreeVertices, tree_pointers: np.ndarray) -> tuple[_Held, np.ndarray]:
        """Add the vertices that trees found, unless they hold them; return all held vertices, and the place of each in its mini-batch."""
        if not len(new.vertices):
            return self, np.empty(0, np.int32)
        pointers, every, local = backend.relabel_trees(self.pointers, self.all, new, tree_pointers)
        return _Held(pointers, every), local

    def added_since(self, sizes: np.ndarray) -> np.ndarray:
        """Return the rows beyond the first `sizes` of each mini-batch: positions, int64."""
        place = np.arange(len(self.all.vertices)) - np.repeat(self.pointers[:-1], self.sizes)
        return np.flatnonzero(place >= np.repeat(sizes, self.sizes))


def expand_relations(
    backend: Backend, relations: Sequence[RelationMatrix], trees: Trees, laws: Sequence[Sequence[RelationLaw]], only_new: bool,
) -> list[HeteroExpansion]:  # fmt: skip
    """Expand k mini-batches hop by hop, by the primitives of any back end; this defines `Backend.expand_relations`.

    Hops name the entries of the adjacencies. If `only_new`, they expand only the vertices that the previous hop found; otherwise all
    vertices found so far.
    """

    def draw_hop(hop: int, frontiers: Sequence[Frontier]) -> list[RowPicks]:
        pairs = zip(relations, laws[hop], strict=True)
        return [draw_rows(backend, relation, frontiers[relation.destination], law, trees.moving) for relation, law in pairs]

    return expand_hops(backend, draw_hop, [(relation.source, relation.destination) for relation in relations], trees, len(laws), only_new)


def expand_hops(
    backend: Backend, draw_hop: DrawHop, ends_of: Sequence[tuple[int, int]], trees: Trees, hop_count: int, only_new: bool
) -> list[HeteroExpansion]:  # fmt: skip
    """Expand k mini-batches by the draws of each hop, wherever they are made; the back end numbers what the hops find.

    `ends_of` are the places of the source type and of the destination type of each relation. For the others see `expand_relations`.
    """
    k, minibatch_of_tree = len(trees.pointers) - 1, np.repeat(np.arange(len(trees.pointers) - 1), np.diff(trees.pointers))
    held, seed_rows = [], []
    for vertices, owner in zip(trees.seeds, trees.tree_of_seed, strict=True):
        ends = trees.ends[owner] if trees.moving and trees.ends is not None else None
        none = _Held(np.zeros(k + 1, np.int64), TreeVertices(vertices[:0], owner[:0], None if ends is None else ends[:0]))
        kind, rows = none.found(backend, TreeVertices(vertices, owner, ends), trees.pointers)
        held.append(kind)
        seed_rows.append(rows)
    sizes, drawn = [np.stack([kind.sizes for kind in held])], []
    for h in range(hop_count):
        since = [(sizes[h - 1][t] if only_new and h else np.zeros(k, np.int64)) for t in range(len(held))]
        frontiers = [(kind, kind.added_since(beyond)) for kind, beyond in zip(held, since, strict=True)]
        every, hops = draw_hop(h, [_frontier(kind.all, rows, trees) for kind, rows in frontiers]), []
        for (source, destination), picks in zip(ends_of, every, strict=True):
            rows_held, rows = frontiers[destination][0].all, frontiers[destination][1]
            counts, of_rows = np.diff(picks.pointers), rows_held.trees[rows]
            owner, ends = np.repeat(of_rows, counts), None
            if rows_held.ends is not None:  # the window of a source ends where its edge was; without times it stays where it was
                ends = np.repeat(rows_held.ends[rows], counts) if picks.times is None else picks.times
            held[source], columns = held[source].found(backend, TreeVertices(picks.columns, owner, ends), trees.pointers)
            frontier = row_pointers(np.bincount(minibatch_of_tree[of_rows], minlength=k))
            hops.append((frontier, Hop(picks.pointers, columns, None, picks.entries)))
        drawn.append(hops)
        sizes.append(np.stack([kind.sizes for kind in held]))
    return [_cut(j, trees, held, seed_rows, np.stack(sizes), drawn, only_new) for j in range(k)]


def _frontier(held: TreeVertices, rows: np.ndarray, trees: Trees) -> Frontier:
    owner = held.trees[rows]
    starts = None if trees.starts is None else trees.starts[owner]
    ends = None if trees.ends is None else trees.ends[owner] if held.ends is None else held.ends[rows]
    return Frontier(held.vertices[rows], _names(held, trees)[rows], trees.names[owner], starts, ends)


def _names(held: TreeVertices, trees: Trees) -> np.ndarray:
    """Return the name of each row: its vertex; where its tree met the vertex before, at another time, 2**31 + its place in the tree."""
    if held.ends is None:
        return held.vertices
    by_tree = np.argsort(held.trees, kind="stable")
    counts = np.bincount(held.trees, minlength=len(trees.names))
    place = np.empty(len(by_tree), np.int64)
    place[by_tree] = np.arange(len(by_tree)) - np.repeat(row_pointers(counts)[:-1], counts)
    order = np.lexsort((place, held.vertices, held.trees))
    again = np.zeros(len(order), bool)
    again[order[1:]] = (held.vertices[order[1:]] == held.vertices[order[:-1]]) & (held.trees[order[1:]] == held.trees[order[:-1]])
    return np.where(again, place + 2**31, held.vertices).astype(np.uint32).view(np.int32)


def _cut(
    j: int, trees: Trees, kinds: list[_Held], seed_rows: list[np.ndarray], sizes: np.ndarray,
    drawn: list[list[tuple[np.ndarray, Hop]]], only_new: bool,
) -> HeteroExpansion:  # fmt: skip
    """Cut mini-batch j out of a bulk."""
    first_tree, last_tree = trees.pointers[j], trees.pointers[j + 1]
    rows = []
    for of_seed, numbers in zip(trees.tree_of_seed, seed_rows, strict=True):
        rows.append(numbers[np.searchsorted(of_seed, first_tree) : np.searchsorted(of_seed, last_tree)])
    spans = [slice(kind.pointers[j], kind.pointers[j + 1]) for kind in kinds]
    vertices = [kind.all.vertices[span] for kind, span in zip(kinds, spans, strict=True)]
    owners = [(kind.all.trees[span] - first_tree).astype(np.int32) for kind, span in zip(kinds, spans, strict=True)]
    hops = [[part_of(hop, frontier[j], frontier[j + 1]) for frontier, hop in of_hop] for of_hop in drawn]
    if only_new:
        hops = [[joined([of_hop[r] for of_hop in hops]) for r in range(len(hops[0]))]]
    return HeteroExpansion(rows, vertices, owners, sizes[:, :, j], hops)
