"""Run the matrix formulation in scipy: P = Q A as a sparse product, then s draws per row by numpy keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import sparse

NAME = "scipy, Q A and numpy draws"
MOST = 1  # mini-batches: all neighbors of a frontier are written out


def make(task):
    ones = np.ones(len(task.indices), np.float32)
    return {"matrix": sparse.csr_matrix((ones, task.indices, task.indptr.astype(np.int32)), shape=(task.n, task.n))}


def expand(matrix, frontier, s, rng):
    rows = len(frontier)
    q = sparse.csr_matrix((np.ones(rows, np.float32), frontier, np.arange(rows + 1)), shape=(rows, matrix.shape[0]))
    p = q @ matrix
    row = np.repeat(np.arange(rows), np.diff(p.indptr))
    order = np.lexsort((rng.random(p.nnz), row))
    rank = np.arange(p.nnz) - np.repeat(p.indptr[:-1], np.diff(p.indptr))
    drawn = p.indices[order[rank < s]]
    held, local = np.unique(np.concatenate([frontier, drawn]), return_inverse=True)
    return held, len(local) - rows


def sampling(task, made, parts):
    def work(batch):
        rng, held, edges = np.random.default_rng(0), np.unique(batch), 0
        for s in task.fanouts:
            held, count = expand(made["matrix"], held, s, rng)
            edges += count
        return edges

    with ThreadPoolExecutor(task.threads) as pool:
        return sum(pool.map(work, task.batches))
