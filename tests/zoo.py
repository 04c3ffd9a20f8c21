"""Graphs on which samplers go wrong."""

from __future__ import annotations

import numpy as np

from bulksample import CSR
from bulksample.sparse import fixed_point


def random_matrix(n, edges, seed, weighted=False, skew=1.0):
    """Random rows; columns bent towards 0 by `skew`; some rows are empty."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n, edges)
    rows = rows[rows % 7 != 3]  # every seventh vertex is isolated
    columns = (n * rng.random(len(rows)) ** skew).astype(np.int64)
    matrix = CSR.from_edges(rows, columns, (n, n))
    if not weighted:
        return matrix
    weights, _ = fixed_point(rng.integers(1, 1000, matrix.nnz) * (rng.random(matrix.nnz) > 0.15), n)
    return matrix.with_values(weights)


def star(leaves):
    """Vertex 0 and its leaves 1 .. n - 1, joined both ways."""
    others = np.arange(1, leaves + 1)
    ends = np.concatenate([np.zeros(leaves, int), others]), np.concatenate([others, np.zeros(leaves, int)])
    return CSR.from_edges(*ends, (leaves + 1, leaves + 1))


def complete(n):
    rows, columns = np.divmod(np.arange(n * n), n)
    return CSR.from_edges(rows[rows != columns], columns[rows != columns], (n, n))


def empty(n):
    return CSR(np.zeros(n + 1, np.int64), np.empty(0, np.int32), None, (n, n))


def loops(n):
    return CSR(np.arange(n + 1), np.arange(n, dtype=np.int32), None, (n, n))


ZOO = {
    "random": random_matrix(200, 3000, 1),
    "skewed": random_matrix(300, 4000, 2, skew=3.0),
    "weighted": random_matrix(200, 3000, 3, weighted=True),
    "sparse": random_matrix(400, 500, 4),
    "star": star(60),
    "complete": complete(24),
    "isolated": empty(30),
    "loops": loops(20),
    "single": empty(1),
    "pair": complete(2),
}
