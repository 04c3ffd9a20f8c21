"""The probability of each vertex to be in a mini-batch of node-wise sampling, by a product with A for each hop.

    p     b / m on the m seeds, 0 elsewhere                             a seed is in a mini-batch of b
    x_uv  p_u times the chance that row u picks v: min(1, s / d_u)
    q     q_v = 1 - prod over u of (1 - x_uv) = 1 - exp(A^T log1p(-x))   drawn by a row
    P     1 - (1 - P) (1 - q)                                            drawn in a hop so far, or a seed

`frontier` ``all`` expands P in the next hop, ``new`` only what q adds to it. Rows are taken as independent, which overstates P; the order
of the vertices is what a cache of features needs.

Kaler, Iliopoulos, Murzynowski, Schardl, Leiserson, Chen, "Communication-efficient graph neural networks with probabilistic neighborhood
expansion analysis and caching", MLSys 2023 (SALIENT++).
"""

from __future__ import annotations

import numpy as np

from ..errors import UsageError
from ..sparse import CSR, row_pointers
from .base import Sampler
from .full import Full
from .labor import Labor
from .sage import Sage

_ENTRIES = 2**24  # multiplied at once


def check_inclusion(sampler: Sampler) -> None:
    """Raise `UsageError` if inclusion probabilities of a sampler are not known."""
    if type(sampler) not in (Sage, Labor, Full):  # a subclass draws otherwise
        raise UsageError(
            f"cache_by inclusion follows the draws of the samplers sage, labor and full; got {sampler.name}: use cache_by degree or "
            "frequency"
        )


def inclusion_probability(a: CSR, sampler: Sampler, seeds: np.ndarray, batch_size: int) -> np.ndarray:
    """Compute the probability of each vertex to be in a mini-batch of b of these distinct seeds: float64, shape (n,).

    Row u of A, n x n, lists the neighbors that u draws from. Takes L products with A, of the rows that can be reached, and 24 bytes a
    vertex. Weighted draws of s neighbors count as s draws with replacement. Raises `UsageError` unless the sampler is sage, labor or full.
    """
    check_inclusion(sampler)
    included = np.zeros(a.shape[0])
    included[seeds] = min(1.0, batch_size / max(1, len(seeds)))
    frontier = included
    for fanout in sampler.fanouts:
        missed = np.exp(_log_missed(a, sampler, fanout, frontier))
        before, included = included, 1 - (1 - included) * missed
        frontier = included if sampler.frontier == "all" else included - before
    return included


def _log_missed(a: CSR, sampler: Sampler, fanout: int, frontier: np.ndarray) -> np.ndarray:
    """Return the logarithm of the probability that no row of the frontier picks a vertex: A^T log1p(-x), float64, shape (n,)."""
    rows, total = np.flatnonzero(frontier > 0), np.zeros(len(frontier))
    ends = np.cumsum(a.degrees[rows])
    cuts = np.searchsorted(ends, np.arange(_ENTRIES, ends[-1] if len(ends) else 0, _ENTRIES))
    for piece in np.split(rows, cuts):
        part = a.take(piece)
        picked = _picked(part, sampler, fanout) * np.repeat(frontier[piece], part.degrees)
        with np.errstate(divide="ignore"):  # a certain pick: minus infinity
            total += np.bincount(part.indices, np.log1p(-picked), minlength=len(total))
    return total


def _picked(part: CSR, sampler: Sampler, fanout: int) -> np.ndarray:
    """Return the probability of each entry of some rows to be picked by its row: float64, shape (entries,)."""
    degrees = np.repeat(part.degrees, part.degrees).astype(np.float64)
    share, weighs = 1 / degrees, part.values is not None and sampler.estimates_weighted_means
    replaces = isinstance(sampler, Sage) and sampler.replace
    if fanout < 0:
        return (part.entries() > 0).astype(np.float64) if weighs else np.ones(len(degrees))
    if weighs:
        weights = part.entries().astype(np.float64)
        degrees = np.repeat(np.diff(row_pointers(weights > 0)[part.indptr]), part.degrees)  # of positive weight
        totals = np.bincount(part.row_of_entry(), weights, minlength=part.shape[0])
        share = weights / np.maximum(np.repeat(totals, part.degrees), 1)
    elif not replaces:
        return np.minimum(1.0, fanout * share)
    chance = 1 - (1 - share) ** fanout
    return chance if replaces else np.where(degrees <= fanout, share > 0, chance)
