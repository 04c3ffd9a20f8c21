"""Convert sampled hops to the layout of torch_geometric: vertices hop by hop, seeds in their order, one list of edges.

A mini-batch is one tree; with disjoint subgraphs, each seed has its own tree. The trees are merged hop by hop: all vertices
of a hop stand together, so `trim_to_layer` can cut off the last hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.hops import Expansion
from ...sparse import row_pointers, runs


class TreeBatch(NamedTuple):
    """The trees of a mini-batch in local vertex numbers; row r holds the edges into vertex r."""

    vertices: np.ndarray  # int32, shape (N,)
    pointers: np.ndarray  # int64, shape (R + 1,); the first R vertices were expanded
    columns: np.ndarray  # int64, shape (E,): local sources
    carried: np.ndarray | None  # shape (E,): the weight, or the drawn edge, of each entry
    entries: np.ndarray | None  # int64, shape (E,): positions in A, if the back end returned them
    held: np.ndarray  # int64, shape (L + 1,): number of vertices before the first hop and after each hop
    tree: np.ndarray  # int64, shape (N,): the tree of each vertex

    @property
    def rows(self) -> np.ndarray:
        """The vertex of each row: int32, shape (R,)."""
        return self.vertices[: len(self.pointers) - 1]

    def nodes_by_hop(self) -> list[int]:
        """Return the number of vertices that each hop added: L + 1 numbers with the sum N."""
        return [int(count) for count in np.diff(self.held, prepend=0)]

    def edges_by_hop(self) -> list[int]:
        """Return the number of edges of each hop: L numbers with the sum E."""
        return [int(count) for count in np.diff(self.pointers[np.concatenate([[0], self.held[:-1]])])]

    def with_edges(self, copies: np.ndarray, carried: np.ndarray | None) -> TreeBatch:
        """Repeat every edge by its number in `copies`."""
        ends = row_pointers(copies)
        return self._replace(pointers=ends[self.pointers], columns=np.repeat(self.columns, copies), carried=carried, entries=None)


def arrange(trees: Sequence[Expansion]) -> TreeBatch:
    """Merge trees hop by hop. A repeated seed stands in the result as often as in the input, with the same edges."""
    parts = [_with_seeds_first(tree) for tree in trees]
    if len(parts) == 1:
        return parts[0]
    first = row_pointers([len(part.vertices) for part in parts])
    first_row = row_pointers([len(part.pointers) - 1 for part in parts])
    first_edge = row_pointers([len(part.columns) for part in parts])
    hop = np.concatenate([np.repeat(np.arange(len(part.held)), part.nodes_by_hop()) for part in parts])
    tree = np.repeat(np.arange(len(parts)), np.diff(first))
    order = np.argsort(hop, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sizes = np.concatenate([np.diff(part.pointers) for part in parts])
    starts = np.concatenate([part.pointers[:-1] + edge for part, edge in zip(parts, first_edge, strict=False)])
    last = len(parts[0].held) - 1
    rows = order[: np.count_nonzero(hop < last)]
    rows = rows - first[tree[rows]] + first_row[tree[rows]]
    entry = runs(starts[rows], sizes[rows])
    columns = place[np.concatenate([part.columns + start for part, start in zip(parts, first, strict=False)])][entry]
    carried, entries = (_taken(found, entry) for found in ([part.carried for part in parts], [part.entries for part in parts]))
    pointers = row_pointers(sizes[rows])
    held = np.sum([part.held for part in parts], axis=0)
    return TreeBatch(np.concatenate([part.vertices for part in parts])[order], pointers, columns, carried, entries, held, tree[order])


def _with_seeds_first(tree: Expansion) -> TreeBatch:
    """Convert one tree, so that its first vertices are the seeds in the user's order, repetitions included."""
    hop, seeds, held = tree.hops[0], tree.seed_rows, np.array(tree.held)
    if len(seeds) == held[0]:
        pointers, columns, carried, entries = hop.pointers, hop.columns.astype(np.int64), hop.weights, hop.entries
        vertices = tree.vertices
    else:
        order = np.concatenate([seeds, np.arange(held[0], len(tree.vertices))])
        place = np.empty(len(tree.vertices), np.int64)
        place[order[::-1]] = np.arange(len(order))[::-1]  # the first position of a repeated seed
        rows = order[: len(hop.pointers) - 1 + len(seeds) - held[0]]
        sizes = np.diff(hop.pointers)[rows]
        entry = runs(hop.pointers[rows], sizes)
        pointers, columns = row_pointers(sizes), place[hop.columns[entry]]
        carried, entries = (_taken([part], entry) for part in (hop.weights, hop.entries))
        vertices, held = tree.vertices[order], held + len(seeds) - held[0]
    return TreeBatch(vertices, pointers, columns, carried, entries, held, np.zeros(len(vertices), np.int64))


def _taken(parts: Sequence[np.ndarray | None], entry: np.ndarray) -> np.ndarray | None:
    """Concatenate arrays and take some entries; None if there are no arrays."""
    return None if parts[0] is None else np.concatenate(parts)[entry]  # type: ignore[arg-type]  # all are there, or none is
