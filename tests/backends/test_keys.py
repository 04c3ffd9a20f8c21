"""The fixed-point logarithm and the inclusion probability against high-precision arithmetic."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from bulksample.backends.reference import _log_tables, inclusion_probability, neg_log2
from bulksample.backends.sources import kernel_directory

EDGES = [1, 2, 3, 2**31, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2**20, 2**64 - 2, 2**64 - 1]


def exact_neg_log2(u):
    with localcontext() as context:
        context.prec = 50
        return 64 - Decimal(u).ln() / Decimal(2).ln()


def test_logarithm_is_within_2_to_the_minus_55_everywhere():
    rng = np.random.default_rng(1)
    boundaries = [(128 + i) << 56 for i in range(1, 128)]
    u = [*EDGES, *boundaries, *(b - 1 for b in boundaries), *(int(v) for v in rng.integers(1, 2**64, 500, dtype=np.uint64))]
    got = neg_log2(np.array(u, np.uint64))
    error = max(abs(Decimal(int(g)) / 2**57 - exact_neg_log2(v)) for g, v in zip(got, u, strict=True))
    assert error < Decimal(2) ** -55


def test_logarithm_rises_with_u_by_no_more_than_its_rounding():
    near = np.array([(128 + i) << 56 for i in range(1, 128)], np.uint64)
    steps = np.concatenate([near - np.uint64(1), near, near + np.uint64(1)])
    values = neg_log2(np.sort(steps))
    assert (np.diff(values.astype(np.float64)) <= 2.0**3).all()  # the last digits of the series


def test_u_of_zero_counts_as_one():
    assert neg_log2(np.array([0], np.uint64)) == neg_log2(np.array([1], np.uint64))


def test_the_header_holds_the_tables_of_the_definition():
    text = (kernel_directory() / "race_row.h").read_text()
    for table in _log_tables():
        for value in table:
            assert str(int(value)) in text


@pytest.mark.parametrize("x", [1e-12, 1e-6, 0.01, 0.5, 0.999, 1.0, 1.5, 10.0, 50.0])
def test_inclusion_probability_is_one_minus_two_to_the_minus_x(x):
    with localcontext() as context:
        context.prec = 40
        exact = 1 - (-(Decimal(x) * Decimal(2).ln())).exp()
    got = inclusion_probability(np.array([x]), 2.0**57)[0]
    assert abs(Decimal(float(got)) / exact - 1) < Decimal(2) ** -14 * max(Decimal("1e-9") / Decimal(x), Decimal("1e-9"))


def test_nothing_left_out_means_probability_one():
    assert inclusion_probability(np.array([1.0, 1e9]), np.inf).tolist() == [1.0, 1.0]


def test_uniform_u_gives_exponential_keys():
    u = np.random.default_rng(2).integers(0, 2**64, 200_000, dtype=np.uint64)
    keys = neg_log2(u) * 2.0**-57 * np.log(2)
    counts = np.histogram(1 - np.exp(-keys), 50, (0, 1))[0]
    assert ((counts - 4000) ** 2 / 4000).sum() < 49 + 5 * np.sqrt(98)
