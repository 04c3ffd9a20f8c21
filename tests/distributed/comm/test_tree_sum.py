"""Sums by a balanced tree: one order, however many ranks add the terms."""

import numpy as np
import pytest

from bulksample.distributed.comm.primitives import TreeSum, tree_sum
from bulksample.distributed.comm.threads import on_threads

TERMS = np.random.default_rng(0).standard_normal((64, 50)).astype(np.float32) * 10.0 ** np.arange(-4, 4, 8 / 50, dtype=np.float32)


def halves(terms):
    """The sum of the first half and that of the second, for powers of two."""
    middle = len(terms) // 2
    return terms[0] if not middle else halves(terms[:middle]) + halves(terms[middle:])


@pytest.mark.parametrize("count", [1, 2, 4, 8, 64])
def test_it_is_the_sum_of_two_halves(count):
    assert (tree_sum(TERMS[:count]) == halves(TERMS[:count])).all()
    assert count < 4 or (tree_sum(TERMS[:count]) != TERMS[:count].cumsum(0)[-1]).any()


@pytest.mark.parametrize("count", [*range(1, 18), 64])
def test_terms_one_after_another_give_the_same_bits(count):
    by_terms = TreeSum()
    for term in TERMS[:count]:
        by_terms.add(term)
    assert (by_terms.total() == tree_sum(TERMS[:count])).all()
    assert by_terms.total() == pytest.approx(TERMS[:count].astype(np.float64).sum(0), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_ranks_that_add_their_shares_first_give_the_bits_of_eight(p):
    def summed(comm):
        own = tree_sum(TERMS[comm.rank * 8 // p : (comm.rank + 1) * 8 // p]).copy()
        return comm.allreduce(own, "gradients")

    assert (on_threads(p, summed)[0] == halves(TERMS[:8])).all()
