"""Enumerate the outcomes of sampling laws with their probabilities, for graphs of a few vertices, and test counts against them.

The oracle of `audit_laws.py`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import factorial, prod
from typing import Any

import numpy as np
from scipy import stats

Outcomes = dict[Any, float]
Rows = Sequence[Sequence[int]]


def total(pairs: Iterable[tuple[Any, float]]) -> Outcomes:
    """Add up the probabilities of equal outcomes."""
    found: defaultdict[Any, float] = defaultdict(float)
    for outcome, p in pairs:
        found[outcome] += p
    return dict(found)


def sequential(weights: Sequence[float] | np.ndarray, s: int) -> Outcomes:
    """Return the probability of each subset of s draws without replacement, one after another in proportion to the weights."""
    candidates = [i for i, weight in enumerate(weights) if weight > 0]

    def chance(order: tuple[int, ...]) -> float:
        left, p = float(sum(weights)), 1.0
        for item in order:
            p, left = p * weights[item] / left, left - weights[item]
        return p

    return total((tuple(sorted(order)), chance(order)) for order in itertools.permutations(candidates, s))


def multisets(weights: Sequence[float] | np.ndarray, s: int) -> Outcomes:
    """Return the probability of each multiset of s independent draws in proportion to the weights."""
    share = np.asarray(weights, float) / np.sum(weights)
    candidates = [i for i, p in enumerate(share) if p > 0]
    return total((tuple(sorted(draws)), prod(share[i] for i in draws)) for draws in itertools.product(candidates, repeat=s))


def uniform_pairs(rows: Rows, s: int) -> Outcomes:
    """Return the probability of the subsets of two rows that draw independently."""
    subsets = [list(itertools.combinations(sorted(row), s)) for row in rows]
    return {a + b: 1 / prod(map(len, subsets)) for a, b in itertools.product(*subsets)}


def first(row: Sequence[int], rank: dict[int, int], s: int) -> tuple[int, ...]:
    """Return the s vertices of a row with the smallest keys, ascending."""
    return tuple(sorted(sorted(row, key=rank.__getitem__)[:s]))


def orders(vertices: Iterable[int]) -> Iterable[dict[int, int]]:
    """Yield every order of the keys of these vertices; all are equally likely."""
    found = sorted(set(vertices))
    return (dict(zip(found, order, strict=True)) for order in itertools.permutations(range(len(found))))


def labor_rows(rows: Rows, s: int) -> Outcomes:
    """Return the probability of the subsets of rows that share the key of every neighbor."""
    union = {v for row in rows for v in row}
    return total((sum((first(row, rank, s) for row in rows), ()), 1 / factorial(len(union))) for rank in orders(union))


def labor_two_hops(rows: Rows, seed: int, s: int, x: np.ndarray) -> float:
    """Return the mean of the aggregation over two hops if both layers share the keys: layer-dependent LABOR.

    A drawn neighbor has a small key. So the draws of the second hop depend on those of the first, and the mean is not the full
    aggregation.
    """
    found = [np.mean([np.mean(x[list(first(rows[t], rank, s))]) for t in first(rows[seed], rank, s)]) for rank in orders(range(len(rows)))]
    return float(np.mean(found))


def aggregated(rows: Rows, x: np.ndarray) -> np.ndarray:
    """Return the mean of x over each row."""
    return np.array([np.mean(x[list(row)]) for row in rows])


def saint_sets(rows: Rows, roots: Sequence[int], length: int) -> Outcomes:
    """Return the probability of each set of vertices that independent walks from the roots visit."""

    def walks(at: int, steps: int) -> Outcomes:
        if steps == 0:
            return {frozenset([at]): 1.0}
        return total((held | {at}, p / len(rows[at])) for there in rows[at] for held, p in walks(there, steps - 1).items())

    found: Outcomes = {frozenset(): 1.0}
    for root in roots:
        found = total((one | other, p * q) for one, p in found.items() for other, q in walks(root, length).items())
    return found


def shadow_sets(rows: Rows, root: int, fanouts: tuple[int, int]) -> Outcomes:
    """Return the probability of each set of vertices that two hops of draws reach, if only new vertices are expanded."""
    found = []
    hops = [[list(itertools.combinations(row, min(s, len(row)))) for row in rows] for s in fanouts]
    for drawn in hops[0][root]:
        new = [v for v in drawn if v != root]
        for picks in itertools.product(*(hops[1][v] for v in new)):
            chance = 1 / len(hops[0][root]) / prod(len(hops[1][v]) for v in new)
            found.append((frozenset({root, *drawn}.union(*picks)), chance))
    return total(found)


def chi_square(counts: Mapping[Any, int], expected: Outcomes) -> float:
    """Return the p-value of the counts of outcomes; 0 if one was found that cannot be."""
    if not set(counts) <= set(expected):
        return 0.0
    total, keys = sum(counts.values()), list(expected)
    return float(stats.chisquare([counts.get(key, 0) for key in keys], [total * expected[key] for key in keys]).pvalue)


def counted(rows: np.ndarray) -> dict[tuple[int, ...], int]:
    """Count the distinct rows of a matrix of integers."""
    found, counts = np.unique(rows, axis=0, return_counts=True)
    return {tuple(row): int(count) for row, count in zip(found.tolist(), counts, strict=True)}


def holm(p_values: list[float]) -> list[float]:
    """Return p-values corrected for their number: the i-th smallest of m times m - i, never below the one before."""
    order = np.argsort(p_values)
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1)
    return [float(p) for p in corrected]
