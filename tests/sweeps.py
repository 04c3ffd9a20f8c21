"""Parametrized tests of which `make test` runs a few cases and `make test-long` more; `BULKSAMPLE_SWEEP` asks for all of them."""

import os

import pytest

SWEEP = int(os.environ.get("BULKSAMPLE_SWEEP", "1"))  # how many times as many random cases as usual


def sweep(names, values, quick=1, **more):
    """Parametrize a test as ``pytest.mark.parametrize`` does; all values but the first `quick` are long."""
    values = list(values)
    several = not isinstance(names, str) or "," in names
    long = [pytest.param(*(value if several else [value]), marks=pytest.mark.long) for value in values[quick:]]
    return pytest.mark.parametrize(names, [*values[:quick], *long], **more)


def cases(usual):
    """Numbers of the random cases of a test: `usual` of them, or `SWEEP` times as many."""
    return range(usual * SWEEP)


def thinned(values, step, first=0):
    """Every `step`-th value, beginning with the one of index `first` modulo `step`; all values in a sweep."""
    return list(values) if SWEEP > 1 else list(values)[first % step :: step]
