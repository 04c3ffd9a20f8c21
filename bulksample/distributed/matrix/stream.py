"""Partition a graph while its edges stream by: restreamed linear deterministic greedy (LDG), with three loads in balance.

Vertices come in the order of their ids, and each goes to the part that holds most of its neighbors, discounted by how full the part is:

    part(v) = argmax_q  neighbors_q(v) * min_k (1 - load_qk / cap_k),      k: vertices, entries of A, training vertices

among the parts whose caps still hold with v; if there is none, to the part with the least of the load of which v is the largest share
of a cap. In later passes a vertex leaves its part before it is placed again. Caps tighten for three passes: loose ones let parts grow
around communities, and the last pass mends what the tight ones tore apart. Only edges *into* v are seen, so a graph with edges both ways
is divided best.

Memory is 4 n bytes for the result and 100 bytes a part; the edges may be a memory map larger than memory. Integers decide, so the parts
are the same on every machine, in C++ and in Python.

Stanton and Kliot, "Streaming graph partitioning for large distributed graphs", 2012; Nishimura and Ugander, "Restreaming graph
partitioning", 2013.
"""

from __future__ import annotations

import importlib
from fractions import Fraction

import numpy as np

from ...backends.native import unavailable_because
from ...sparse import CSR

SLACK = ((50, 45, 50), (22, 17, 22), (10, 5, 10), (10, 5, 10))  # percent above the mean of vertices, entries, training vertices, by pass
_ONE = 2**30


def stream(adjacency: CSR, parts: int, train: np.ndarray | None = None) -> np.ndarray:
    """Assign vertices to parts with few edges between them and about equal vertices, entries and training vertices: int32, shape (n,).

    Row v of the adjacency holds the neighbors that v aggregates from; weights are ignored. `train` is the mask of training vertices. No
    part exceeds the mean by more than 10 % in vertices or training vertices, or by more than 5 % in entries, except by the weight of single
    vertices where these cannot be placed otherwise.
    """
    caps = caps_of_passes(adjacency, parts, train)
    mask = None if train is None else np.ascontiguousarray(train, np.bool_)
    if unavailable_because() is not None:
        return reference(adjacency, parts, mask, caps)
    made: np.ndarray = importlib.import_module("bulksample._native").stream_parts(adjacency.indptr, adjacency.indices, mask, caps, parts)
    return made


def caps_of_passes(adjacency: CSR, parts: int, train: np.ndarray | None) -> np.ndarray:
    """Return the largest load of a part in each pass: int64, shape (passes, 3), ceil(total / parts * (1 + slack))."""
    totals = np.array([adjacency.shape[0], adjacency.nnz, 0 if train is None else np.count_nonzero(train)], np.int64)
    return -(-totals * (100 + np.array(SLACK, np.int64)) // (100 * parts))


def reference(adjacency: CSR, parts: int, train: np.ndarray | None, caps: np.ndarray) -> np.ndarray:
    """Compute what `stream` returns, as its formula reads; some 10 us an entry."""
    n = adjacency.shape[0]
    assignment, load = np.full(n, -1, np.int32), np.zeros((parts, 3), np.int64)
    for cap in caps.tolist():
        for v in range(n):
            row = adjacency.indices[adjacency.indptr[v] : adjacency.indptr[v + 1]]
            weight = np.array([1, len(row), train is not None and train[v]], np.int64)
            if assignment[v] >= 0:
                load[assignment[v]] -= weight
            near = assignment[row[row != v]]
            assignment[v] = q = _best(np.bincount(near[near >= 0], minlength=parts), load, weight, cap)
            load[q] += weight
    return assignment


def _best(neighbors: np.ndarray, load: np.ndarray, weight: np.ndarray, cap: list[int]) -> int:
    """Return the part of a vertex: the best score, then the most room, then the lowest number."""
    fitting = ((load + weight <= cap) | (weight == 0)).all(1) & (neighbors > 0)
    room = [min([_ONE] + [max(c - used, 0) * _ONE // c for used, c in zip(loads, cap, strict=True) if c]) for loads in load.tolist()]
    ranked = [(int(neighbors[q]) * room[q], room[q], -q) for q in np.flatnonzero(fitting) if room[q]]
    if ranked:
        return int(-max(ranked)[2])
    shares = [Fraction(int(weight[k]), cap[k]) if cap[k] else Fraction(0) for k in range(3)]
    return int(np.argmin(load[:, shares.index(max(shares))]))
