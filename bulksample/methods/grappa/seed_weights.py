"""Weights of seeds: by coverage, the share of a seed's neighborhood that lies in the view, or by the tree that is sampled.

    kappa_S(w) = |N(w) and S| / d(w),   1 where d(w) = 0          the coverage of w by the view S
    c_l(v)     = mean over all u in N(v) of [u in S] c_(l-1)(u)   of walks of l steps, c_0 = 1: one product with A for each hop
    w_v        = c_L(v) / mean of c_L over the seeds that have neighbors;   1 for a seed that has none

In a graph of several types a row is a sum over relations of means, so c_l(v) is the mean over the relations in which v has neighbors.

With w_v = kappa / E kappa the estimate is unbiased for a gradient that is affine in the mean of the neighbors' messages; for
others it is a first-order correction. A weight is the coverage itself, never its inverse: a seed that the view hardly covers
counts little.

Horvitz-Thompson weights of whole sampled trees are exact if every tree is possible, with a variance that grows with the tree. A seed v
draws a tree T from the view S with probability q_S(T|v), instead of p(T|v) in the whole graph. There is one factor for every row that
draws k neighbors, in each relation. Pi(T) is the probability that the view of v holds the vertices that T needs.

    W_S(T) = p / q_S = product over rows of C(d_S, k) / C(d, k),  k = min(k, d)      without replacement
                                         of (d_S / d)**k                             with replacement; 1 where d = 0
    w = W_S(T) / Pi(T),    Pi(T) = (c / m)**(vertices that T needs, other than v)    fresh chunks, c of m seen

T needs all its vertices; with a halo, only those that draw and have neighbors. E w g(T) = sum over T of p(T|v) g(T) is exact,
because every tree has Pi > 0. A tree is the set of rows that the output of v depends on: a row that two parents share draws
once and counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from ...graph.minibatch import MiniBatch
from ...views.local import PartRelation


def walk_coverage(relations: Sequence[PartRelation], hops: int) -> dict[str, np.ndarray]:
    """Return the share of all walks of so many steps that stay within a view, by type: float64, shape (rows,).

    A step takes one of the relations in which a vertex has neighbors, and then one of these. A walk that ends early counts as staying.
    """
    counts: dict[str, int] = {}
    for (source, _, name), matrix, _ in relations:
        counts[name], counts[source] = matrix.shape
    covered = {name: np.ones(count) for name, count in counts.items()}
    for _ in range(hops):
        sums, linked = ({name: np.zeros(count) for name, count in counts.items()} for _ in range(2))
        for (source, _, name), matrix, degrees in relations:
            stayed = np.bincount(matrix.row_of_entry(), covered[source][matrix.indices], minlength=len(degrees))
            sums[name] += np.divide(stayed, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
            linked[name] += degrees > 0
        covered = {name: np.divide(sums[name], linked[name], out=np.ones(count), where=linked[name] > 0) for name, count in counts.items()}
    return covered


def effective_share(count: float, total: float, squares: float) -> float:
    """Return (sum w)**2 / (n sum w**2), the effective number of seeds as a share of all; 0 without seeds."""
    return total * total / (count * squares) if squares > 0 else 0.0


def capped(weights: np.ndarray, quantile: float) -> tuple[np.ndarray, float]:
    """Limit weights to their quantile; return them and the sum that this removed."""
    if quantile >= 1 or not len(weights):
        return weights, 0.0
    cut = np.minimum(weights, np.quantile(weights, quantile, method="lower"))
    return cut, float(np.sum(weights - cut))


def shrunk(weights: np.ndarray, amount: float) -> np.ndarray:
    """Return (1 - lambda) + lambda w: uniform weights for 0, unchanged ones for 1."""
    return (1 - amount) + amount * weights


def batch_scalar(weights: np.ndarray) -> np.ndarray:
    """Return one weight for a whole batch, the c that minimises sum over v of (w_v - c)**2: their mean.

    By the Cauchy-Schwarz inequality it is also the best choice against unknown gradients: the supremum of |sum_v (w_v - c) g_v| over
    sum |g_v|**2 <= 1 is the root of that sum of squares.
    """
    return np.full(len(weights), weights.mean() if len(weights) else 1.0)


def tree_weights(
    minibatch: MiniBatch, target: str, relations: Sequence[PartRelation], fanouts: Sequence[int], replace: bool, share: float, halo: bool
) -> np.ndarray:
    """Return the weight of the tree of each seed of a node-wise mini-batch: float64, shape (b,).

    `target` is the type of the seeds, and `relations` are the edges within the view, `fanouts` stand from the seeds outwards, `share` is
    c / m, and `halo` is True if the view holds the sources outside its chunks.
    """
    rows, seeds, seed_rows = minibatch.rows, minibatch.num_seeds, minibatch.rows[target].seed_rows
    needs = {name: np.full(len(of_type.vertices), not halo) for name, of_type in rows.items()}
    for (_, _, name), _, degrees in relations:
        needs[name] |= degrees[rows[name].vertices] > 0
    empty = scipy.sparse.csr_array((seeds, 0))
    reach = {name: _widened(empty, int(of_type.sizes[0])) for name, of_type in rows.items()}
    reach[target] = scipy.sparse.csr_array((np.ones(seeds), seed_rows, np.arange(seeds + 1)), shape=(seeds, int(rows[target].sizes[0])))
    log_weight = np.zeros(seeds)
    for hop, (fanout, layer) in enumerate(zip(fanouts, reversed(minibatch.layers), strict=True)):
        drew, reach = reach, {name: _widened(reach[name], int(of_type.sizes[hop + 1])) for name, of_type in rows.items()}
        for key, matrix, degrees in relations:
            source, _, name = key
            block, drawing = layer[key], rows[name].vertices[: drew[name].shape[1]]
            with np.errstate(divide="ignore"):
                log_weight += drew[name] @ np.log(row_ratio(matrix.degrees[drawing], degrees[drawing], fanout, replace))
            shape = len(drawing), reach[source].shape[1]
            drawn = scipy.sparse.csr_array((np.ones(len(block.indices)), block.indices, block.indptr), shape=shape)
            reach[source] = scipy.sparse.csr_array(reach[source] + drew[name] @ drawn)
        for one in reach.values():
            one.sum_duplicates()
            one.data = np.ones(one.nnz)
    tree = drew if halo else reach
    needed = sum(one @ needs[name][: one.shape[1]].astype(np.float64) for name, one in tree.items()) - needs[target][seed_rows]
    weights: np.ndarray = np.exp(log_weight - needed * np.log(share))
    return weights


def _widened(reach: scipy.sparse.csr_array, columns: int) -> scipy.sparse.csr_array:
    """Return the same rows among more columns."""
    return scipy.sparse.csr_array((reach.data, reach.indices, reach.indptr), shape=(reach.shape[0], columns))


def row_ratio(local: np.ndarray, degrees: np.ndarray, fanout: int, replace: bool) -> np.ndarray:
    """Return p / q for each row, d_S of whose d neighbors are in view: float64; 0 where p is 0. A fanout of -1 takes all neighbors.

    Its draws have probability p in the whole graph and q in the view.
    """
    if replace and fanout != -1:
        power: np.ndarray = np.divide(local, degrees, out=np.ones(len(degrees)), where=degrees > 0) ** fanout
        return power
    if fanout == -1:
        return np.where(local == degrees, 1.0, 0.0)
    ratio = np.ones(len(degrees))
    for i in range(min(fanout, int(degrees.max(initial=0)))):
        factor = np.divide(np.maximum(local - i, 0), degrees - i, out=np.ones(len(degrees)), where=degrees > i)
        ratio *= factor
    return ratio
