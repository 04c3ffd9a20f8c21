"""Waiting in tests: for a condition, with a deadline."""

import time

import pytest


def until(happened, seconds=60.0, said=str):
    """Wait until ``happened()`` is true and return what it returned; after `seconds` the test fails with ``said()``."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        if time.monotonic() > deadline:
            pytest.fail(f"it did not happen within {seconds} s\n{said()}")
        time.sleep(0.02)
    return found
