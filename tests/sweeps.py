"""Parametrized tests of which `make test` runs a few cases and `make test-long` the others."""

import pytest


def sweep(names, values, quick=1, **more):
    """Parametrize a test as ``pytest.mark.parametrize`` does; all values but the first `quick` are long."""
    values = list(values)
    several = not isinstance(names, str) or "," in names
    long = [pytest.param(*(value if several else [value]), marks=pytest.mark.long) for value in values[quick:]]
    return pytest.mark.parametrize(names, [*values[:quick], *long], **more)
