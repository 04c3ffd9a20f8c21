"""SpGEMM against scipy and a dense product."""

import hypothesis
import numpy as np
import pytest
from engines import engine
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_identical

from bulksample import CSR, UsageError


def random_csr(rng, rows, columns, density, style):
    dense = (rng.random((rows, columns)) < density) * rng.integers(-4, 5, (rows, columns))
    if style == "hole" and rows:
        dense[rng.integers(0, rows)] = 0
    if style == "full row" and rows:
        dense[rng.integers(0, rows)] = rng.integers(1, 5, columns)
    row, column = np.nonzero(dense)
    matrix = CSR.from_edges(row, column, dense.shape, dense[row, column])
    return matrix.with_values(None) if style == "ones" else matrix


def check_product(backend, a, b):
    dense = a.to_scipy().toarray().astype(np.int64) @ b.to_scipy().toarray().astype(np.int64)
    product = backend.spgemm(a, b).validate("product")
    rows, columns = np.nonzero(dense)
    expected = CSR.from_edges(rows, columns, dense.shape, dense[rows, columns])
    assert_identical((product.indptr, product.indices, product.values), (expected.indptr, expected.indices, expected.values), "dense")
    oracle = CSR.from_scipy(a.to_scipy() @ b.to_scipy())
    assert_identical((product.indptr, product.indices), (oracle.indptr, oracle.indices), "scipy")


sides = st.integers(0, 24)
styles = st.sampled_from(["plain", "plain", "hole", "full row", "ones"])


def products(backend, examples):
    """A test that multiplies `examples` pairs of random matrices on the back end that ``backend(seed)`` names."""

    @settings(max_examples=examples)
    @given(sides, sides, sides, st.floats(0, 1), st.floats(0, 1), styles, styles, st.integers(0, 2**32))
    def test(m, n, q, density_a, density_b, style_a, style_b, seed):
        rng = np.random.default_rng(seed)
        a, b = random_csr(rng, m, n, density_a, style_a), random_csr(rng, n, q, density_b, style_b)
        check_product(engine(backend(seed)), a, b)

    return test


test_native_product_equals_scipy_and_dense = products(lambda seed: "native 2", 500)
test_reference_product_equals_scipy_and_dense = products(lambda seed: "reference", 500)
test_emulated_product_equals_scipy_and_dense = products(lambda seed: f"emulated {seed % 4}", 300)


@pytest.mark.long
@pytest.mark.parametrize(("name", "examples"), [("native 2", 900), ("reference", 650)])
@pytest.mark.parametrize("turn", range(7))
def test_many_products_equal_scipy_and_dense(name, examples, turn):
    hypothesis.seed(turn)(products(lambda _: name, examples))()


def test_larger_products_agree(backend):
    rng = np.random.default_rng(5)
    a = random_csr(rng, 300, 500, 0.05, "plain")
    b = random_csr(rng, 500, 400, 0.1, "hole")
    check_product(backend, a, b)


def test_cancelled_sums_are_not_stored(backend):
    a = CSR(np.array([0, 2]), np.array([0, 1], np.int32), np.array([1, -1]), (1, 2))
    b = CSR(np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32), np.array([5, 2, 5, 1]), (2, 2))
    product = backend.spgemm(a, b)
    assert product.indices.tolist() == [1]
    assert product.values.tolist() == [1]


def test_shapes_that_do_not_meet_are_refused(backend):
    a = CSR.from_edges([0], [0], (1, 3))
    with pytest.raises(UsageError, match=r"\(1, 3\) and \(1, 3\)"):
        backend.spgemm(a, a)


def test_real_values_are_refused(backend):
    a = CSR.from_edges([0], [0], (1, 1), np.array([0.5]))
    with pytest.raises(UsageError, match="fixed_point"):
        backend.spgemm(a, a)


def test_a_sum_that_could_overflow_is_refused_and_one_below_is_exact(backend):
    def column(value):
        return CSR(np.arange(3), np.zeros(2, np.int32), np.full(2, value), (2, 1))

    ones = CSR(np.array([0, 2]), np.arange(2, dtype=np.int32), None, (1, 2))
    assert backend.spgemm(ones, column(2**62 - 1)).values.tolist() == [2**63 - 2]
    with pytest.raises(OverflowError, match="could exceed int64"):
        backend.spgemm(ones, column(2**62))
