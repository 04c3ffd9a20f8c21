"""Waiting in tests: for a condition, with the one deadline of all tests.

The deadline only bounds a test that hangs. A wait returns as soon as its condition is true, and a test that is known to fail
fails at once, so a long deadline costs nothing. A slow or busy machine takes a longer one: `BULKSAMPLE_PATIENCE=5` is five times it.
"""

import os
import time

PATIENCE = 300.0 * float(os.environ.get("BULKSAMPLE_PATIENCE", "1"))  # seconds for a condition, a thread, a command or a launch
LONGEST = 3 * PATIENCE  # of a test, which may wait for several; pytest-timeout ends it then


def until(happened, said=str):
    """Wait until ``happened()`` is true and return what it returned; the test fails with ``said()`` if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not (found := happened()):
        if time.monotonic() > deadline:
            _fail(f"it did not happen within {PATIENCE:.0f} s\n{said()}")
        time.sleep(0.02)
    return found


def join(*threads):
    """Wait until threads have ended; the test fails if one does not."""
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
        if thread.is_alive():
            _fail(f"thread {thread.name} did not end within {PATIENCE:.0f} s")


def _fail(why):
    import pytest  # programs of ranks import this module for the deadline alone

    pytest.fail(why)
