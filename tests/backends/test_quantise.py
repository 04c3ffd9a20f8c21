"""Stochastic rounding: the same bits from every back end, unbiased, of bounded variance; and why header and cut are as they are."""

import numpy as np
import pytest
from oracles import assert_identical

from bulksample import DataError, backends
from bulksample.backends import quantiser as grids
from bulksample.backends.quantiser import Noise

WIDTHS = (1, 3, 7, 8, 127, 128, 602)
BITS = (2, 4, 8)


def some_rows(m, f, seed=0):
    """Rows of every sort: normal, far from zero, positive, constant, tiny, huge, zeros of both signs."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((m, f)).astype(np.float32)
    rows[1::7] += 300
    rows[2::7] = np.maximum(rows[2::7], 0)
    rows[3::7] = rng.standard_normal((len(rows[3::7]), 1))
    rows[4::7] *= np.float32(1e-42)
    rows[5::7] *= np.float32(1e37)
    rows[6::7] = rng.choice(np.array([-0.0, 0.0], np.float32), rows[6::7].shape)
    return rows


def names_of(rows, first=5):
    return np.arange(first, first + len(rows), dtype=np.int32)


def header_of(records, f, bits, wide=False):
    words = np.ascontiguousarray(records[:, -(-f * bits // 8) :]).view("<u4" if wide else "<u2").astype(np.uint32)
    return grids.grid(*words.T, wide)


@pytest.mark.parametrize("f", WIDTHS)
def test_records_equal_the_reference(reference, fast, f):
    for m in (0, 1, 2, 3, 5, 200):
        rows = some_rows(m, f, m)
        for bits in BITS:
            for wide in (False, True):
                for noise in (None, Noise(2**63 + 5, 77, 3)):
                    got, expected = (b.quantise(rows, bits, names_of(rows), noise, wide) for b in (fast, reference))
                    assert_identical([got], [expected], f"{m} x {f}, {bits} bits, wide {wide}")
                    back = [b.dequantise(got, f, bits, wide) for b in (fast, reference)]
                    assert_identical([back[0].view(np.uint32)], [back[1].view(np.uint32)], f"back, {m} x {f}, {bits} bits, wide {wide}")


@pytest.mark.parametrize("f", WIDTHS)
@pytest.mark.parametrize("bits", BITS)
def test_records_have_their_size_and_rows_stay_within_a_step(backend, f, bits):
    rows = some_rows(140, f)
    for wide in (False, True):
        records = backend.quantise(rows, bits, names_of(rows), Noise(1, 2), wide)
        assert records.shape == (140, -(-f * bits // 8) + (8 if wide else 4))
        back = backend.dequantise(records, f, bits, wide)
        step = header_of(records, f, bits, wide)[1]
        error = np.abs(back.astype(np.float64) - rows)
        assert (error <= step[:, None] + 2.0**-23 * np.abs(rows) + 2.0**-149).all()
        assert (back[3::7] == rows[3::7]).all()  # constant rows come back to the bit
        assert (back[6::7] == 0).all()


def test_extremes_have_the_extreme_codes(backend):
    rows = np.array([[-1, 0, 2], [4, 4.75, 4.25]], np.float32)
    for bits in BITS:
        records = backend.quantise(rows, bits, names_of(rows), Noise(3, 3), wide=True)
        back = backend.dequantise(records, 3, bits, wide=True)
        assert (back.min(1) == rows.min(1)).all()
        np.testing.assert_allclose(back.max(1), rows.max(1), rtol=1e-6)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("bits", BITS)
def test_what_lies_on_the_grid_is_not_moved(backend, bits, wide):
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2**bits, (50, 33))
    codes[:, 0], codes[:, 1] = 0, 2**bits - 1
    rows = (-2 + codes * 2.0 ** rng.integers(-4, 3, (50, 1))).astype(np.float32)
    back = backend.dequantise(backend.quantise(rows, bits, names_of(rows), Noise(1, 1), wide), 33, bits, wide)
    assert (back == rows).all()


def test_the_noise_is_that_of_the_row_the_receiver_and_the_column(backend):
    rows = np.ascontiguousarray(some_rows(60, 40)[::7])
    names = names_of(rows)
    noise = Noise(9, 4, 2)
    records = backend.quantise(rows, 4, names, noise)
    some = np.array([5, 0, 3])
    assert (backend.quantise(rows[some], 4, names[some], noise) == records[some]).all()
    others = [(names + 1, noise), (names, Noise(8, 4, 2)), (names, Noise(9, 5, 2)), (names, Noise(9, 4, 1))]
    assert all((backend.quantise(rows, 4, *other) != records).any() for other in others)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**126, -3.4e38])
def test_what_cannot_be_rounded_is_refused(backend, value):
    rows = np.ones((300, 9), np.float32)
    rows[100:, 4] = value
    with pytest.raises(DataError, match="row 105 holds"):
        backend.quantise(rows, 8, names_of(rows))
    rows[100:, 4] = np.nextafter(np.float32(2.0**126), np.float32(0))
    assert np.isfinite(backend.dequantise(backend.quantise(rows, 2, names_of(rows)), 9, 2)).all()


def test_without_noise_codes_are_the_nearest(backend):
    row = np.array([[0, 3, 0.4, 0.5, 0.6, 1.5, 2.51]], np.float32)
    back = backend.dequantise(backend.quantise(row, 2, names_of(row)), 7, 2)
    assert back[0].tolist() == [0, 3, 0, 0, 1, 1, 3]


# ---- the law, by drawing often; and quantisers that break it


def draws(row, bits, wide=False, times=4000):
    """The row drawn `times` times, and its step, on the default back end."""
    backend = backends.make()
    rows = np.tile(row, (times, 1))
    records = backend.quantise(rows, bits, np.arange(times, dtype=np.int32), Noise(7, 1), wide)
    return backend.dequantise(records, len(row), bits, wide).astype(np.float64), float(header_of(records, len(row), bits, wide)[1][0])


def biased(drawn, row, step):
    """Entries whose mean is further from the truth than 5 standard errors allow, sqrt(S^2 / 4 T) each."""
    return np.abs(drawn.mean(0) - row) > 5 * step / (2 * np.sqrt(len(drawn))) + 1e-7 * np.abs(row).max()


@pytest.mark.parametrize("shift", [0.0, 1.37, -300.0])
@pytest.mark.parametrize("bits", BITS)
def test_rounding_is_unbiased_and_its_variance_bounded(bits, shift):
    f = 64
    ratios = []
    for seed in range(4):
        row = (np.random.default_rng(seed).standard_normal(f) + shift).astype(np.float32)
        for wide in (False, True):
            drawn, step = draws(row, bits, wide)
            assert not biased(drawn, row, step).any()
            squares = np.square(drawn - row).sum(1)
            spread = squares.std() / np.sqrt(len(squares))
            assert squares.mean() <= f * step**2 / 4 + 5 * spread
            ratios.append(squares.mean() / (f * step**2 / 6))
    if shift == 0:  # of a uniform fraction it would be 1
        assert 0.85 < np.mean(ratios) < 1.15


def test_a_header_that_is_rounded_after_coding_is_biased():
    """The published form: codes on the float32 grid, sent beside bfloat16 that were cut off. The test above must fail for it."""
    row = (np.random.default_rng(0).standard_normal(64) + 1.37).astype(np.float32)
    times, bits = 4000, 8
    zero, top = float(row.min()), 2**bits - 1
    step = (float(row.max()) - zero) / top
    cut = (np.array([zero, step], np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    codes = np.floor((row - zero) / step + np.random.default_rng(1).random((times, 64))).clip(max=top)
    assert biased(cut[0] + codes * cut[1], row, step).mean() > 0.5
    assert not biased(zero + codes * step, row, step).any()


def test_without_the_cut_a_code_spills_into_its_neighbour():
    """In float32, as published kernels compute, the row maximum lies above the highest code in some rows; `np.minimum` is what keeps it."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 8)).astype(np.float32)
    top = np.float32(3)
    lo, hi = rows.min(1), rows.max(1)
    inverse = top / (hi - lo)
    place = (hi - lo) * inverse
    above = place > top
    assert 0.01 < above.mean() < 0.3
    codes = np.floor(place[above] + np.nextafter(np.float32(1), np.float32(0))).astype(np.uint8)
    spilt = codes[:, None] << np.array([0], np.uint8)
    assert (spilt >> 2 > 0).any()  # a code of two bits that sets a third: its neighbour's
    uncut, cut = (_with_words_of_ones(rows, limit) for limit in (255, 3))
    assert (uncut > 3).any()
    assert (cut <= 3).all()


def _with_words_of_ones(rows, limit):
    """Codes of the definition at the greatest word, on a grid in which the maximum lies a rounding error above the highest code."""
    lo, hi = rows.min(1).astype(np.float64), rows.max(1).astype(np.float64)
    step = np.nextafter((hi - lo) / 3, 0)
    return grids._codes(rows, lo, step, limit, np.zeros(rows.shape, np.uint32))
