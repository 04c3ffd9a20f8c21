"""Bias, relu and dropout in one pass: the same bits from every back end, a mask that is a function of names, and its law and gradient."""

import math
from itertools import cycle, product

import numpy as np
import pytest
import torch
from engines import engine
from oracles import assert_identical, philox

from bulksample import Stream, UsageError
from bulksample.backends.cuda import epilogue as on_device
from bulksample.backends.dropout import Mask, kept_parts
from bulksample.rng import MAX_EPOCHS, MAX_LAYERS, MAX_PLACES, MaskSite

WIDTHS = (1, 5, 8, 47, 64, 256, 5000)
KEPT = (1, 300, 32768, 58982, 65535)
MINIBATCHES = (0, 7, 2**32 - 1)
KEY = 2**64 - 3**33
LARGEST = 2**31 - 1
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # numpy's, of infinities that are added up


def a_mask(rows, kept=32768, minibatch=7, trees=False, key=KEY, seed=0):
    rng = np.random.default_rng(seed)
    vertices = rng.integers(0, LARGEST, rows, endpoint=True).astype(np.int32)
    return Mask(key, minibatch, vertices, rng.integers(0, LARGEST, rows, endpoint=True).astype(np.int32) if trees else None, kept)


def all_sorts(rows, f, seed=0):
    """Normal and subnormal numbers, zeros of both signs, infinities, and NaN."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, f)).astype(np.float32)
    flat = x.reshape(-1)
    for i, odd in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42)):
        flat[i::41] = odd
    return x


def bits(x):
    """The bits of float32, those of every NaN alike: machines choose them."""
    return None if x is None else np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32))


def forward(backend, z, bias=None, relu=False, mask=None):
    out = np.full_like(z, 7.5)
    backend.epilogue(z, bias, relu, mask, out)
    return out


def backward(backend, grad, y=None, mask=None, bias=True):
    out = np.full_like(grad, 7.5)
    return out, backend.epilogue_gradient(grad, y, mask, bias, out)


def multiplier(backend, mask, f):
    """The mask as numbers: 0, or 65536 / k."""
    return forward(backend, np.ones((len(mask.vertices), f), np.float32), mask=mask)


# ---- one definition


@pytest.mark.parametrize("f", WIDTHS)
def test_rows_and_gradients_equal_the_reference(reference, fast, f):
    kept, minibatches = cycle(KEPT), cycle(MINIBATCHES)
    for rows in (0, 1, 3, 20) if f > 256 else (0, 1, 255, 256, 257, 600):
        z, grad, b = all_sorts(rows, f), all_sorts(rows, f, 1), all_sorts(1, f, 2)[0]
        for with_bias in (False, True):
            for relu in (False, True):
                for mask in (None, *(a_mask(rows, next(kept), next(minibatches), trees) for trees in (False, True))):
                    what = f"{rows} x {f}, bias {with_bias}, relu {relu}, mask {mask and (*mask[:2], mask.trees is not None, mask.kept)}"
                    y, expected = (forward(backend, z, b if with_bias else None, relu, mask) for backend in (fast, reference))
                    assert_identical([bits(y)], [bits(expected)], what)
                    got, expected = (backward(one, grad, y if relu else None, mask, with_bias) for one in (fast, reference))
                    assert_identical(map(bits, got), map(bits, expected), f"gradient, {what}")


def test_entries_equal_the_reference(reference, fast):
    rng = np.random.default_rng(5)
    for rows, most in ((0, 1), (1, 0), (1, 2000), (700, 9)):
        indptr = np.r_[0, np.cumsum(rng.integers(0, most, rows, endpoint=True))]
        indices = rng.integers(0, LARGEST, indptr[-1], endpoint=True).astype(np.int32)
        values = all_sorts(1, len(indices))[0]
        for mask in (a_mask(rows, 40_000, 2**32 - 1), a_mask(rows, 3, trees=True)):
            got, expected = (backend.drop_entries(indptr, indices, values, mask) for backend in (fast, reference))
            assert_identical([bits(got)], [bits(expected)], f"{rows} rows")


def test_entries_are_masked_as_those_of_a_dense_matrix(backend):
    rng = np.random.default_rng(2)
    dense = rng.standard_normal((90, 75)).astype(np.float32)
    where = rng.random(dense.shape) < 0.3
    columns, indptr = np.nonzero(where)[1].astype(np.int32), np.r_[0, np.cumsum(where.sum(1))]
    mask = a_mask(90, 20_000, trees=True)
    assert (backend.drop_entries(indptr, columns, dense[where], mask) == forward(backend, dense, mask=mask)[where]).all()


@pytest.mark.parametrize("f", [5, 47, 256])
def test_results_may_take_the_place_of_arguments(backend, f):
    z, b, mask = all_sorts(300, f), all_sorts(1, f, 2)[0], a_mask(300)
    expected, here = forward(backend, z, b, True, mask), z.copy()
    backend.epilogue(here, b, True, mask, here)
    assert_identical([bits(here)], [bits(expected)])
    grad = np.random.default_rng(3).standard_normal((300, f)).astype(np.float32)
    dz, db = backward(backend, grad, mask=mask)
    assert (backend.epilogue_gradient(grad, None, mask, True, grad) == db).all()
    assert_identical([grad], [dz])


@pytest.mark.parametrize("name", ["emulated 0", "emulated 3", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_device_arrays_need_not_begin_at_16_bytes(reference, name):
    device, f, mask = engine(name).device, 64, a_mask(300, trees=True)
    z, b = all_sorts(300, f), all_sorts(1, f, 2)[0]
    put, to = device.put(np.r_[np.float32(0), z.reshape(-1)])[1:], device.empty(300 * f + 1, np.float32)[1:]
    there = mask._replace(vertices=device.put(mask.vertices), trees=device.put(mask.trees))
    on_device.epilogue(device, put, f, device.put(b), True, there, to)
    expected = forward(reference, z, b, True, mask)
    assert_identical([bits(device.get(to).reshape(300, f))], [bits(expected)])
    total = on_device.epilogue_gradient(device, put, to, f, there, True, put)
    dz, db = backward(reference, z, expected, mask)
    assert_identical([bits(device.get(put).reshape(300, f)), bits(device.get(total))], [bits(dz), bits(db)])


# ---- the mask


def plainly_kept(key, minibatch, vertex, tree, kept, j):
    """True if number j of a row is kept."""
    word = philox((j // 8, vertex, minibatch, tree), key)[j % 8 // 2]
    return (word // 2**16 if j % 2 else word % 2**16) < kept


@pytest.mark.parametrize("trees", [False, True])
def test_a_mask_is_what_its_names_say(backend, trees):
    for f, kept, minibatch in ((47, 1000, 0), (64, 32768, 2**32 - 1), (301, 58982, 12)):
        mask = a_mask(9, kept, minibatch, trees)
        expected = [
            [plainly_kept(KEY, minibatch, int(v), int(t), kept, j) for j in range(f)]
            for v, t in zip(mask.vertices, mask.trees if trees else np.zeros(9, int), strict=True)
        ]
        assert (multiplier(backend, mask, f) == np.where(expected, np.float32(65536 / kept), 0)).all()


@pytest.mark.parametrize("kept", KEPT)
def test_numbers_are_kept_with_their_chance(backend, kept):
    rows, f = 1000, 128
    there = multiplier(backend, a_mask(rows, kept), f) > 0
    for axis, drawn in ((None, rows * f), (1, f), (0, rows)):
        chance = kept / 65536
        apart = np.abs(there.sum(axis) - drawn * chance)
        assert (apart <= 6 * math.sqrt(drawn * chance * (1 - chance)) + 2).all()


def test_a_row_has_its_mask_wherever_it_stands(backend):
    mask = a_mask(600, trees=True)
    whole = multiplier(backend, mask, 47)
    for some in (np.arange(600)[::-1], np.array([5, 599, 5, 0]), np.arange(256, 300)):
        part = mask._replace(vertices=mask.vertices[some], trees=mask.trees[some])
        assert (multiplier(backend, part, 47) == whole[some]).all()
    wider = multiplier(backend, mask, 300)
    assert (wider[:, :47] == whole).all()


@pytest.mark.parametrize("name", ["key", "upper key", "minibatch", "vertices", "trees", "no trees"])
def test_masks_of_other_names_are_independent(backend, name):
    mask = a_mask(200, trees=True)
    other = {
        "key": {"key": KEY + 1},
        "upper key": {"key": KEY - 2**40},
        "minibatch": {"minibatch": 8},
        "vertices": {"vertices": mask.vertices ^ 1},
        "trees": {"trees": mask.trees ^ 1},
        "no trees": {"trees": None},
    }[name]
    one, two = (multiplier(backend, names, 64) for names in (mask, mask._replace(**other)))
    drawn = one.size
    assert abs((one != two).sum() - drawn / 2) < 6 * math.sqrt(drawn / 4)
    for lane in range(8):
        assert abs((one != two)[:, lane::8].sum() - drawn / 16) < 6 * math.sqrt(drawn / 32)


def test_without_trees_a_mask_is_that_of_tree_zero(backend):
    mask = a_mask(50)
    assert (multiplier(backend, mask, 20) == multiplier(backend, mask._replace(trees=np.zeros(50, np.int32)), 20)).all()


# ---- what is computed with it


def test_a_nan_is_kept_by_relu_and_dropped_by_the_mask(backend):
    mask = a_mask(100)
    kept = multiplier(backend, mask, 8) > 0
    for bias in (None, np.full(8, np.nan, np.float32)):
        y = forward(backend, np.full((100, 8), 1 if bias is not None else np.nan, np.float32), bias, True, mask)
        assert np.isnan(y[kept]).all()
        assert (y[~kept] == 0).all()
    y, _ = backward(backend, np.full((100, 8), 3, np.float32), y, mask)
    assert (y == np.where(kept, 6, 0)).all()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_gradients_are_those_of_autograd(backend, relu, dropped):
    rng = np.random.default_rng(4)
    z, grad = (rng.standard_normal((600, 47)).astype(np.float32) for _ in range(2))
    b, mask = rng.standard_normal(47).astype(np.float32), a_mask(600, 50_000) if dropped else None
    there, bias = torch.from_numpy(z).requires_grad_(), torch.from_numpy(b).requires_grad_()
    act = torch.relu(there + bias) if relu else there + bias
    y = act * torch.from_numpy(multiplier(backend, mask, 47)) if dropped else act
    y.backward(torch.from_numpy(grad))
    made = forward(backend, z, b, relu, mask)
    assert_identical([made], [y.detach().numpy()])
    dz, db = backward(backend, grad, made if relu else None, mask)
    assert_identical([dz], [there.grad.numpy()])
    np.testing.assert_allclose(db, bias.grad.numpy(), rtol=1e-4, atol=1e-4)
    error, bound = np.abs(db - dz.sum(0, dtype=np.float64)), 256 * 2.0**-24 * np.abs(dz).sum(0, dtype=np.float64)
    assert (error <= bound).all()
    assert backward(backend, grad, made if relu else None, mask, bias=False)[1] is None


def test_sums_of_256_rows_are_added_in_float64(backend):
    """In float32 every later 1 would be lost."""
    grad = np.zeros((5 * 256, 9), np.float32)
    grad[0], grad[256::256] = 2**24, 1
    assert (backward(backend, grad)[1] == 2**24 + 4).all()
    grad[:] = 0
    grad[:3] = np.array([[2**24], [1], [-(2**24)]])  # within 256 rows float32 rounds, row after row
    assert (backward(backend, grad)[1] == 0).all()


def test_no_row_has_a_gradient_of_zero(backend):
    assert backward(backend, np.empty((0, 47), np.float32), mask=a_mask(0))[1].tolist() == [0] * 47


# ---- the chance, and the keys


@pytest.mark.parametrize("p", [1, 1.0, -0.1, math.nan, math.inf, True, False, "x", None, 1e-6, 0.999999])
def test_a_chance_that_cannot_be_kept_is_refused(p):
    with pytest.raises(UsageError, match=f"dropout.*got {p!r}"):
        kept_parts(p)
    with pytest.raises(UsageError, match="attention_dropout"):
        kept_parts(p, "attention_dropout")


def test_the_realised_share_is_the_nearest_in_65536_parts():
    for p, kept in ((0, 65536), (0.0, 65536), (0.5, 32768), (1 / 65536, 65535), (65535 / 65536, 1)):
        assert kept_parts(p) == kept
    for p in np.linspace(0.001, 0.999, 200).tolist():
        assert abs(kept_parts(p) / 65536 - (1 - p)) <= 1 / 131072 + 1e-12


SITES = [MaskSite(*site) for site in product((0, 1, 255), (0, 1, 255), (0, 1, 65535), (0, 1, 2**32 - 1))]


def test_every_dropout_of_a_run_has_a_key_of_its_own():
    streams = Stream(0), Stream(1), Stream(2**64 - 1)
    keys = {stream.mask_key(site, epoch) for stream in streams for site in SITES for epoch in (0, 1, MAX_EPOCHS - 1)}
    assert len(keys) == 3 * len(SITES) * 3
    assert all(0 <= key < 2**64 for key in keys)
    assert Stream(1).mask_key(MaskSite(1), 0) == Stream(1).mask_key(MaskSite(1, 0, 0, 0), 0)


@pytest.mark.parametrize("name", MaskSite._fields)
def test_a_site_that_does_not_fit_its_bits_is_refused(name):
    limit = {"layer": MAX_LAYERS, "place": MAX_PLACES, "kind": 2**16, "stage": 2**32}[name]
    for number in (-1, limit):
        with pytest.raises(UsageError, match=f"dropout {name} must be a whole number from 0 to {limit - 1}; got {number}"):
            Stream(1).mask_key(MaskSite(1)._replace(**{name: number}), 0)


@pytest.mark.parametrize("epoch", [-1, MAX_EPOCHS])
def test_an_epoch_that_does_not_fit_its_bits_is_refused(epoch):
    with pytest.raises(UsageError, match=f"epoch {epoch} is out of range"):
        Stream(1).mask_key(MaskSite(1), epoch)
