"""Slow definitions of results of the package: by dense matrices and by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike

from bulksample import CSR, Block


def dense_block(block: Block) -> np.ndarray:
    """Return the block as a dense matrix, destinations x sources; entries are weights, or the mean's 1 / degree."""
    out = np.zeros((block.num_destinations, block.num_sources))
    for row in range(block.num_destinations):
        edges = slice(block.indptr[row], block.indptr[row + 1])
        count = block.indptr[row + 1] - block.indptr[row]
        weights = np.full(count, 1.0 / max(count, 1)) if block.weights is None else block.weights[edges]
        np.add.at(out[row], block.indices[edges], weights)
    return out


def sequential_inclusion(weights: ArrayLike, s: int) -> np.ndarray:
    """Return exact inclusion probabilities of s sequential draws without replacement, by enumeration."""
    weights = np.asarray(weights, float)
    inclusion = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), s):
        left, probability = weights.sum(), 1.0
        for item in order:
            probability *= weights[item] / left
            left -= weights[item]
        inclusion[list(order)] += probability
    return inclusion


def row_mean(matrix: CSR, x: np.ndarray) -> np.ndarray:
    """Aggregate all neighbors with row-normalised entries, dense; rows without neighbours are zero."""
    dense = np.zeros(matrix.shape)
    dense[matrix.row_of_entry(), matrix.indices] = matrix.entries()
    sums = dense.sum(axis=1, keepdims=True)
    means: np.ndarray = np.divide(dense, sums, out=np.zeros_like(dense), where=sums > 0) @ x
    return means
