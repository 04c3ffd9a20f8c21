"""Feature rows on an emulated device: gathered, converted and summed as numpy does it."""

import numpy as np
import pytest
from engines import engine
from zoo import random_matrix

from bulksample.backends.cuda.products import NO_CACHE, Cache, FloatCSR, aggregate, gather, transposed
from bulksample.backends.reference import Reference


@pytest.fixture(params=["emulated 0", "emulated 3", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    return engine(request.param).device


def bf16(x):
    """Rounded to nearest even, by float64 arithmetic on the upper half: uint16."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    low, half = bits & 0xFFFF, bits >> 16
    return (half + ((low > 0x8000) | ((low == 0x8000) & (half & 1 == 1)))).astype(np.uint16)


def all_sorts(n):
    """Normal numbers, ties between two halves, subnormal and overflowing ones, infinity and zeros of both signs."""
    rng = np.random.default_rng(n)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 6, n)).astype(np.float32)
    low = np.abs(x[::5]).clip(0, 6e4).astype(np.float16)
    x[::5] = (low.astype(np.float32) + np.nextafter(low, np.float16(np.inf)).astype(np.float32)) / 2
    edges = [0.0, -0.0, np.inf, -np.inf, 65504, 65519.996, 65520, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, 2.0**-14, 6.1e-5]
    x[: len(edges)] = edges
    return x


@pytest.mark.parametrize("width", [1, 3, 8, 25, 100, 129])
def test_rows_are_gathered_in_every_width(device, width):
    x = np.random.default_rng(width).standard_normal((50, width)).astype(np.float32)
    rows = np.random.default_rng(1).integers(0, 50, 77).astype(np.int32)
    for held, array in (("float32", x), ("float16", x.astype(np.float16)), ("bfloat16", bf16(x))):
        got = device.get(gather(device, device.put(array), width, device.put(rows), held, held)).reshape(77, width)
        assert (got == array[rows]).all(), held


def test_conversions_round_as_numpy_does(device):
    x = all_sorts(4000)
    every = np.arange(4000, dtype=np.int32)
    put = device.put(x), 1, device.put(every)
    with np.errstate(over="ignore"):
        assert (device.get(gather(device, *put, wanted="float16")).view(np.uint16) == x.astype(np.float16).view(np.uint16)).all()
    assert (device.get(gather(device, *put, wanted="bfloat16")) == bf16(x)).all()
    halves = np.arange(2**16, dtype=np.uint16)
    every = device.put(np.arange(2**16, dtype=np.int32))
    back = device.get(gather(device, device.put(halves.view(np.float16)), 1, every, "float16", "float32"))
    numbers = ~np.isnan(halves.view(np.float16))
    assert (back.view(np.uint32)[numbers] == halves.view(np.float16).astype(np.float32).view(np.uint32)[numbers]).all()
    assert np.isnan(back[~numbers]).all()
    wide = device.get(gather(device, device.put(halves), 1, every, "bfloat16", "float32"))
    assert (wide.view(np.uint32) == halves.astype(np.uint32) << 16).all()


@pytest.mark.parametrize("width", [1, 33, 130, 300])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_their_gradients_are_dense_products(device, width, mean, weighted):
    rng, matrix = np.random.default_rng(width), random_matrix(90, 900, 5)
    weights = rng.random(matrix.nnz).astype(np.float32) if weighted else None
    dense = np.zeros(matrix.shape)
    dense[matrix.row_of_entry(), matrix.indices] = 1 if weights is None else weights
    if mean:
        dense /= np.maximum(matrix.degrees, 1)[:, None]
    block = FloatCSR(device.put(matrix.indptr), device.put(matrix.indices), None if weights is None else device.put(weights), 90, 90)
    x = rng.standard_normal((90, width)).astype(np.float32)
    forwards = device.get(aggregate(device, block, device.put(x), width, mean)).reshape(90, width)
    np.testing.assert_allclose(forwards, dense @ x, rtol=1e-5, atol=1e-5)
    backwards = device.get(aggregate(device, transposed(device, block, mean), device.put(x), width, False)).reshape(90, width)
    np.testing.assert_allclose(backwards, dense.T @ x, rtol=1e-5, atol=1e-5)
    again = device.get(aggregate(device, block, device.put(x), width, mean)).reshape(90, width)
    assert (again.view(np.uint32) == forwards.view(np.uint32)).all()


STORED = {"float32": lambda x: x, "float16": lambda x: x.astype(np.float16), "bfloat16": bf16}


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("width", [0, 1, 33, 100, 130])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_rows_are_summed_where_they_lie_as_the_reference_does(device, kind, width, scaled, weighted, mean):
    """Some rows have no entries; frequent rows come from a cache, and are nowhere else."""
    rng, matrix = np.random.default_rng(width), random_matrix(90, 400, 5)
    assert 0 in matrix.degrees
    x = STORED[kind](rng.standard_normal((90, width)).astype(np.float32))
    scale = rng.random(90).astype(np.float32) if scaled else None
    weights = rng.random(matrix.nnz).astype(np.float32) if weighted else None
    expected = Reference().spmm(matrix.indptr, matrix.indices, weights, x, scale, mean)
    entries, factors = (None if part is None else device.put(part) for part in (weights, scale))
    block = FloatCSR(device.put(matrix.indptr), device.put(matrix.indices), entries, 90, 90)
    hot, slots, cold = rng.permutation(90)[:30], np.full(90, -1, np.int32), x.copy()
    slots[hot], cold[hot] = np.arange(30), STORED[kind](np.full((30, width), np.nan, np.float32))
    for rows, cache in ((x, NO_CACHE), (cold, Cache(device.put(x[hot].reshape(-1)), device.put(slots)))):
        got = device.get(aggregate(device, block, device.put(rows.reshape(-1)), width, mean, kind, factors, cache)).reshape(90, width)
        if weighted:  # a product and its sum may be rounded once
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        else:
            assert (got.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("kind", STORED)
def test_rows_that_begin_anywhere_are_summed(device, kind):
    """Four numbers are read at once where they lie at a multiple of their bytes, and nowhere else."""
    matrix = random_matrix(90, 400, 5)
    x = STORED[kind](np.random.default_rng(1).standard_normal((90, 100)).astype(np.float32))
    block = FloatCSR(device.put(matrix.indptr), device.put(matrix.indices), None, 90, 90)
    expected = Reference().spmm(matrix.indptr, matrix.indices, None, x)
    for shift in range(5):
        rows = device.put(np.concatenate([np.zeros(shift, x.dtype), x.reshape(-1)]))[shift:]
        got = device.get(aggregate(device, block, rows, 100, False, kind)).reshape(90, 100)
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("kind", STORED)
def test_a_back_end_sums_rows_of_every_type(kind):
    rng, matrix, engine_ = np.random.default_rng(1), random_matrix(90, 400, 5), engine("emulated 0")
    x, scale = STORED[kind](rng.standard_normal((90, 33)).astype(np.float32)), rng.random(90).astype(np.float32)
    for indptr in (matrix.indptr, matrix.indptr[20:50]):  # whose entries begin in the middle
        got, expected = (one.spmm(indptr, matrix.indices, None, x, scale, True) for one in (engine_, Reference()))
        assert (got.view(np.uint32) == expected.view(np.uint32)).all()
