"""The vertices that the trees of mini-batches hold, and their numbers: the definition of `Backend.relabel_trees`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..sparse import row_pointers


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
