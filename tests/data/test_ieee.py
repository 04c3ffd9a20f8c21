"""exp, log and the normal quantile against the library's, to 1e-13; and their ends."""

import math

import numpy as np
import scipy.special

from bulksample.data.random_words import exp, log, normal


def test_exp():
    x = np.concatenate([np.random.default_rng(0).uniform(-700, 700, 50_000), [0.0, 1.0, -1.0, 1e-300, 0.5 * math.log(2)]])
    np.testing.assert_allclose(exp(x), np.exp(x), rtol=1e-13)
    assert exp(np.array(0.0)) == 1.0


def test_log():
    rng = np.random.default_rng(1)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 50_000)), 1 + rng.uniform(-1e-3, 1e-3, 10_000), [1.0, 2.0**-33, 5e-324]])
    np.testing.assert_allclose(log(x), np.log(x), rtol=1e-13, atol=0)
    assert log(np.array(1.0)) == 0.0


def test_normal():
    words = np.random.default_rng(2).integers(0, 2**32, 200_000, dtype=np.uint32)
    words[:4] = [0, 1, 2**32 - 1, 2**31]
    found = normal(words)
    np.testing.assert_allclose(found, scipy.special.ndtri((words + 0.5) / 2**32), rtol=1e-13)
    assert found[0] == -found[2]
    assert abs(found.mean()) < 0.01
    assert abs(found.std() - 1) < 0.01


def test_shapes_are_kept():
    words = np.arange(24, dtype=np.uint32).reshape(2, 3, 4) << 27
    assert normal(words).shape == (2, 3, 4)
    np.testing.assert_array_equal(normal(words).ravel(), normal(words.ravel()))
    assert normal(np.empty((0, 4), np.uint32)).shape == (0, 4)


def test_bits_are_pinned():
    """Machines agree to the last bit, or this differs on one of them."""
    words = (np.arange(4096, dtype=np.uint64) * 1048583 % 2**32).astype(np.uint32)
    z = normal(words)
    total = np.bitwise_xor.reduce((z.view(np.uint64) * np.arange(1, 4097, dtype=np.uint64)) ^ exp(z).view(np.uint64))
    assert hex(int(total)) == "0xc52f65bfb9b7bf79"
