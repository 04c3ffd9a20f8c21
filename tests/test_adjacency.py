"""Exact sums of fixed-point weights, and the entries that importance is made of."""

import numpy as np
import pytest
from zoo import random_matrix

from bulksample import CSR, LocalAdjacency, Selection


def test_row_sums_are_exact_where_their_running_total_wraps(backend):
    """4,000 weights near 2**52 add up to more than 2**63 in total; no row may notice."""
    matrix = CSR(np.arange(0, 4001, 4), np.tile(np.arange(4, dtype=np.int32), 1000), np.full(4000, 2**52 - 1), (1000, 1000))
    assert (matrix.row_sums == 4.0 * (2**52 - 1)).all()


def test_squares_are_those_of_the_row_normalised_weights(backend):
    matrix = random_matrix(300, 12_000, 5, weighted=True)
    adjacency = LocalAdjacency(matrix, backend)
    dense = matrix.to_scipy().toarray().astype(float)
    normalised = dense / np.maximum(dense.sum(axis=1, keepdims=True), 1)
    got = adjacency.left_multiply(Selection.everything(300), "squares").to_scipy().toarray()[0]
    assert np.ldexp(got.astype(float), -adjacency._square_bits) == pytest.approx((normalised**2).sum(axis=0), rel=1e-9)


def test_a_row_whose_weights_are_all_zero_keeps_no_edge_by_weight(backend):
    matrix = CSR.from_edges([0, 0, 1], [0, 1, 0], (2, 2)).with_values(np.array([0, 0, 5]))
    everyone = Selection.everything(2)
    kept = LocalAdjacency(matrix, backend).restrict(everyone, everyone)
    assert (kept.pointers.tolist(), kept.columns.tolist(), kept.shares.tolist()) == ([0, 0, 1], [0], [1])
    every = LocalAdjacency(matrix, backend).restrict(everyone, everyone, shares=False)
    assert (every.pointers.tolist(), every.columns.tolist(), every.shares) == ([0, 2, 3], [0, 1, 0], None)


def test_restricted_entries_are_shares_of_their_row(backend):
    for weighted in (False, True):
        matrix = random_matrix(100, 2000, 6, weighted=weighted)
        adjacency = LocalAdjacency(matrix, backend)
        everyone = Selection.everything(100)
        kept = adjacency.restrict(everyone, everyone)
        sums = np.bincount(np.repeat(np.arange(100), np.diff(kept.pointers)), kept.shares, 100)
        dense = matrix.to_scipy().toarray()
        assert np.array_equal(np.diff(kept.pointers), (dense > 0).sum(axis=1))
        assert sums == pytest.approx((dense > 0).any(axis=1).astype(float))


def test_the_only_entry_of_a_row_has_a_share_of_one(backend):
    adjacency, everyone = LocalAdjacency(CSR.from_edges([0, 1, 1], [1, 0, 2], (3, 3)), backend), Selection.everything(3)
    assert adjacency.restrict(everyone, everyone).shares.tolist() == [1, 0.5, 0.5]


@pytest.mark.parametrize("c", [1, 2, 3, 4, 5, 8, 9, 1000, 1024, 1025])
def test_squares_have_as_many_bits_as_their_sum_in_a_column_leaves(backend, c):
    """c rows with one edge each to vertex 0 add c squares of 1: the sum is at most 2**62, and one more bit would exceed it, or 60."""
    star = CSR(np.minimum(np.arange(c + 2), c), np.zeros(c, np.int32), None, (c + 1, c + 1))
    for matrix in (star, star.with_values(np.full(c, 9))):
        adjacency = LocalAdjacency(matrix, backend)
        (total,) = adjacency.left_multiply(Selection.everything(c + 1), "squares").values.tolist()
        bits = adjacency._square_bits
        assert total == c * 2**bits <= 2**62
        assert bits == 60 or 2 * total > 2**62
        assert LocalAdjacency(matrix, backend, longest_column=2**20)._square_bits == 42  # of a block of rows: the whole matrix counts
