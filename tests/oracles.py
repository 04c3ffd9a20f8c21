"""Slow and obvious oracles, and comparisons that name the first difference."""

from __future__ import annotations

import itertools

import numpy as np


def assert_identical(got, expected, what=""):
    """Equal to the bit, dtype included; the first position that differs is named."""
    got, expected = list(got), list(expected)
    assert len(got) == len(expected), f"{what}: {len(got)} arrays, expected {len(expected)}"
    for part, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a is None or b is None:
            assert a is b, f"{what}: part {part} is {a}, expected {b}"
            continue
        assert a.dtype == b.dtype, f"{what}: part {part} has dtype {a.dtype}, expected {b.dtype}"
        assert a.shape == b.shape, f"{what}: part {part} has shape {a.shape}, expected {b.shape}"
        wrong = np.flatnonzero(a != b)
        assert not len(wrong), f"{what}: part {part} differs first at {wrong[0]}: {a[wrong[0]]}, expected {b[wrong[0]]}"


def dense_block(block):
    """The block as a dense matrix, destinations x sources; entries are weights, or the mean's 1 / degree."""
    out = np.zeros((block.num_destinations, block.num_sources))
    for row in range(block.num_destinations):
        edges = slice(block.indptr[row], block.indptr[row + 1])
        count = block.indptr[row + 1] - block.indptr[row]
        weights = np.full(count, 1.0 / max(count, 1)) if block.weights is None else block.weights[edges]
        np.add.at(out[row], block.indices[edges], weights)
    return out


def sequential_inclusion(weights, s):
    """Exact inclusion probabilities of s sequential draws without replacement, by enumeration."""
    weights = np.asarray(weights, float)
    inclusion = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), s):
        left, probability = weights.sum(), 1.0
        for item in order:
            probability *= weights[item] / left
            left -= weights[item]
        inclusion[list(order)] += probability
    return inclusion


def row_mean(matrix, x):
    """Full aggregation with row-normalised entries, dense; rows without neighbours are zero."""
    dense = np.zeros(matrix.shape)
    dense[matrix.row_of_entry(), matrix.indices] = matrix.entries()
    sums = dense.sum(axis=1, keepdims=True)
    return np.divide(dense, sums, out=np.zeros_like(dense), where=sums > 0) @ x
