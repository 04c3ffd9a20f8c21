"""A plugin of pytest that ends a test which its deadline cannot end: one that hangs in compiled code, or as it is torn down.

pytest-timeout raises in the main thread, which must return to Python for that, and once in a test. After `PATIENCE` more seconds this
plugin writes where all threads stand to the standard error of the run, and ends the process. With several workers, the test then
counts as failed, by its name, and another worker takes the tests that were left.
"""

import faulthandler
import os

import pytest
from waiting import LONGEST, PATIENCE

_ERROR = pytest.StashKey[int]()


def pytest_configure(config):
    config.stash[_ERROR] = os.dup(2)  # that of the run: the output of tests is not captured yet


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    own = item.get_closest_marker("timeout")
    faulthandler.dump_traceback_later((own.args[0] if own else LONGEST) + PATIENCE, exit=True, file=item.config.stash[_ERROR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_unconfigure(config):
    if _ERROR in config.stash:  # not where another plugin has refused to begin
        os.close(config.stash[_ERROR])
