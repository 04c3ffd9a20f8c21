"""Sums of the ranks of links do not depend on who adds them up."""

from fractions import Fraction

import numpy as np
import pytest

from bulksample.evaluation.links import scores_of_sums, sums_of_ranks


@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_scores_are_the_same_on_any_number_of_ranks(p):
    found = np.random.default_rng(1).integers(2, 2000, 5000) / 2  # ties count half
    sums = sum(sums_of_ranks(found[rank::p], (1, 10)) for rank in range(p))
    scores = scores_of_sums("val", sums, (1, 10))
    exact = sum(Fraction(2, int(2 * rank)) for rank in found) / len(found)
    assert scores["val_mrr"] == scores_of_sums("val", sums_of_ranks(found, ()), ())["val_mrr"]
    assert scores["val_mrr"] == pytest.approx(float(exact), rel=1e-9)
    assert scores["val_hits@10"] == np.mean(found <= 10)


def test_a_split_without_edges_has_no_scores():
    assert scores_of_sums("test", sums_of_ranks(np.empty(0), (1,)), (1,)) == {}
