"""Weights of seeds by coverage: the share of a seed's neighborhood that lies in the view.

    kappa_S(w) = |N(w) and S| / d(w),   1 where d(w) = 0          the coverage of w by the view S
    c_l(v)     = mean over all u in N(v) of [u in S] c_(l-1)(u)   of walks of l steps, c_0 = 1: one product with A for each hop
    w_v        = c_L(v) / mean of c_L over the seeds that have neighbors;   1 for a seed that has none

With w_v = kappa / E kappa the estimate is unbiased for a gradient that is affine in the mean of the neighbors' messages; for
others it is a first-order correction. A weight is the coverage itself, never its inverse: a seed that the view hardly covers
counts little.
"""

from __future__ import annotations

import numpy as np

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
