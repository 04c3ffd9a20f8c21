"""Weights of seeds: by coverage, the share of a seed's neighborhood that lies in the view, or by the tree that is sampled.

    kappa_S(w) = |N(w) and S| / d(w),   1 where d(w) = 0          the coverage of w by the view S
    c_l(v)     = mean over all u in N(v) of [u in S] c_(l-1)(u)   of walks of l steps, c_0 = 1: one product with A for each hop
    w_v        = c_L(v) / mean of c_L over the seeds that have neighbors;   1 for a seed that has none

With w_v = kappa / E kappa the estimate is unbiased for a gradient that is affine in the mean of the neighbors' messages; for
others it is a first-order correction. A weight is the coverage itself, never its inverse: a seed that the view hardly covers
counts little.

Horvitz-Thompson weights of whole sampled trees are exact if every tree is possible, with a variance that grows with the tree. A seed v
draws a tree T from the view S with probability q_S(T|v), instead of p(T|v) in the whole graph. There is one factor for every row that
draws k neighbors. Pi(T) is the probability that the view of v holds the vertices that T needs.

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
from ...sparse import CSR


def walk_coverage(matrix: CSR, degrees: np.ndarray, hops: int) -> np.ndarray:
    """Return the share of all walks of so many steps that stay within a view: float64, shape (m,).

    Parameters
    ----------
    matrix : CSR, shape (m, m)
        The edges within the view.
    degrees : integers, shape (m,)
        In-neighbors in the whole graph. A walk that ends early counts as staying.
    """
    covered, row = np.ones(matrix.shape[0]), matrix.row_of_entry()
    for _ in range(hops):
        sums = np.bincount(row, covered[matrix.indices], minlength=len(covered))
        covered = np.divide(sums, degrees, out=np.ones(len(covered)), where=degrees > 0)
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
    minibatch: MiniBatch, matrix: CSR, degrees: np.ndarray, fanouts: Sequence[int], replace: bool, share: float, halo: bool
) -> np.ndarray:
    """Return the weight of the tree of each seed of a node-wise mini-batch: float64, shape (b,).

    Parameters
    ----------
    matrix : CSR, shape (m, m)
        The edges within the view.
    degrees : integers, shape (m,)
        In-neighbors in the whole graph.
    fanouts : L fanouts, from the seeds outwards
    share : float
        c / m.
    halo : bool
        True if the view holds the sources outside its chunks.
    """
    local = matrix.degrees
    log_weight = np.zeros(len(minibatch.seeds))
    needs = degrees[minibatch.vertices] > 0 if halo else np.ones(len(minibatch.vertices), bool)
    reach = scipy.sparse.csr_array(
        (np.ones(len(minibatch.seeds)), minibatch.seed_rows, np.arange(len(minibatch.seeds) + 1)),
        shape=(len(minibatch.seeds), minibatch.blocks[-1].num_destinations),
    )
    for fanout, block in zip(fanouts, reversed(minibatch.blocks), strict=True):
        drawing = minibatch.vertices[: block.num_destinations]
        with np.errstate(divide="ignore"):
            log_weight += reach @ np.log(row_ratio(local[drawing], degrees[drawing], fanout, replace))
        drew, reach = reach, _reached(reach, block.indptr, block.indices, block.num_sources)
    tree = drew if halo else reach
    needed = tree @ needs[: tree.shape[1]].astype(np.float64) - needs[minibatch.seed_rows]
    weights: np.ndarray = np.exp(log_weight - needed * np.log(share))
    return weights


def row_ratio(local: np.ndarray, degrees: np.ndarray, fanout: int, replace: bool) -> np.ndarray:
    """Return p / q for each row: its draws have probability p in the whole graph and q in the view. float64; 0 where p is 0.

    Parameters
    ----------
    local, degrees : integers
        d_S and d.
    fanout : int
        k; -1 takes all neighbors.
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


def _reached(reach: scipy.sparse.csr_array, indptr: np.ndarray, indices: np.ndarray, sources: int) -> scipy.sparse.csr_array:
    """Return the rows of the next hop that each seed depends on: the same vertices, and those that they drew."""
    drawn = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(indptr) - 1, sources))
    same = scipy.sparse.csr_array((reach.data, reach.indices, reach.indptr), shape=(reach.shape[0], sources))
    reached = scipy.sparse.csr_array(same + reach @ drawn)
    reached.sum_duplicates()
    reached.data = np.ones(reached.nnz)
    return reached
