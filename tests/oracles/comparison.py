"""Compare arrays, and name the first difference."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def assert_identical(got: Iterable[np.ndarray | None], expected: Iterable[np.ndarray | None], what: str = "") -> None:
    """Assert that arrays are equal to the bit, dtype included; name the first position that differs."""
    got, expected = list(got), list(expected)
    assert len(got) == len(expected), f"{what}: {len(got)} arrays, expected {len(expected)}"
    for part, (a, b) in enumerate(zip(got, expected, strict=True)):
        if a is None or b is None:
            assert a is b, f"{what}: part {part} is {a}, expected {b}"
            continue
        assert a.dtype == b.dtype, f"{what}: part {part} has dtype {a.dtype}, expected {b.dtype}"
        assert a.shape == b.shape, f"{what}: part {part} has shape {a.shape}, expected {b.shape}"
        wrong = np.flatnonzero(a != b)
        assert not len(wrong), f"{what}: part {part} differs first at {wrong[0]}: {a[wrong[0]]}, expected {b[wrong[0]]}"
